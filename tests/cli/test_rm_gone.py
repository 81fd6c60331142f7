"""`rm` asks before it removes more than named files; `--gone` keeps the videos of a missing drive."""

import os
import shutil

import pytest

from tests.cli.conftest import numbers
from tests.toy import write_clip


@pytest.fixture
def indexed(run, videos, tmp_path):
    """Two clips in a folder, and one on a drive."""
    (tmp_path / "drive" / "trip").mkdir(parents=True)
    write_clip(tmp_path / "drive" / "trip" / "sun.mp4", ["yellow"])
    run("index", videos, tmp_path / "drive")
    return run


def listed(run):
    return len(run("ls")[1].splitlines())


def forgotten(run, yes=True):
    """The exit code of `rm --gone`, and the number of removed videos."""
    code, out, _ = run("rm", "--gone", *(["--yes"] if yes else []))
    return code, numbers(out)


def test_removal_without_a_terminal_requires_the_yes_option(indexed, videos):
    (videos / "flag.mp4").unlink()
    code, out, err = indexed("rm", "--gone")
    assert (code, out) == (2, "")
    assert ["--dry-run" in err, "--yes" in err] == [True, True]
    assert listed(indexed) == 3


@pytest.mark.parametrize(("answer", "left"), [(True, 2), (False, 3)])
def test_removal_on_a_terminal_asks_for_confirmation(indexed, videos, monkeypatch, answer, left):
    (videos / "flag.mp4").unlink()
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.confirm", lambda question, **_: question.startswith("1 ") and answer)
    code, _, _ = indexed("rm", "--gone")
    assert code == (0 if answer else 1)
    assert listed(indexed) == left


@pytest.mark.parametrize("target", ["--all", "folder"])
@pytest.mark.parametrize("is_terminal", [True, False])
def test_removal_of_all_videos_or_of_a_folder_asks_first(indexed, tmp_path, monkeypatch, target, is_terminal):
    monkeypatch.setattr("sys.stdin.isatty", lambda: is_terminal, raising=False)
    monkeypatch.setattr("typer.confirm", lambda question, **_: False)
    arguments = ["--all" if target == "--all" else tmp_path / "drive"]
    assert indexed("rm", *arguments)[0] == (1 if is_terminal else 2)
    assert listed(indexed) == 3
    assert indexed("rm", *arguments, "--yes")[0] == 0
    assert listed(indexed) == (0 if target == "--all" else 2)


def test_a_named_file_is_removed_without_a_question(indexed, videos):
    assert indexed("rm", videos / "flag.mp4")[0] == 0
    assert listed(indexed) == 2


def test_an_unknown_path_is_refused_without_a_question(indexed, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.confirm", lambda question, **_: pytest.fail(question))
    assert indexed("rm", tmp_path / "nowhere")[0] == 2


def test_a_dry_run_lists_what_would_be_removed(indexed, videos):
    (videos / "flag.mp4").unlink()
    code, out, err = indexed("rm", "--gone", "--dry-run")
    assert (code, numbers(out)) == (0, [1])
    assert str(videos / "flag.mp4") in err
    assert numbers(indexed("rm", videos, "--dry-run")[1]) == [2]
    assert listed(indexed) == 3


@pytest.mark.parametrize("leaves", ["empty", "nothing"])
def test_videos_of_a_missing_drive_are_kept_until_it_is_named(indexed, videos, tmp_path, leaves):
    (videos / "flag.mp4").unlink()
    shutil.rmtree(tmp_path / "drive")
    if leaves == "empty":
        (tmp_path / "drive").mkdir()
    else:
        (videos / "sea [1].mp4").unlink()  # nothing in their common folder remains
        (videos / "notes.txt").touch()
    code, out, err = indexed("rm", "--gone", "--yes")
    assert code == 3
    root = tmp_path / "drive" / ("trip" if leaves == "empty" else "")
    assert f"untrimmed rm {root}" in err
    assert out.startswith("1" if leaves == "empty" else "2")
    assert numbers(indexed("rm", root, "--yes")[1]) == [1]


def test_videos_of_a_deleted_subfolder_are_removed(indexed, videos, tmp_path):
    shutil.rmtree(tmp_path / "drive" / "trip")
    (tmp_path / "drive" / "notes.txt").touch()
    write_clip(tmp_path / "drive" / "moon.mp4", ["white"])
    indexed("index", tmp_path / "drive")
    assert forgotten(indexed) == (0, [1])


def test_an_unreadable_path_does_not_count_as_deleted(indexed, videos, monkeypatch):
    real_stat = os.stat

    def stat(path, *args, **kwargs):
        if str(path).endswith(".mp4"):
            raise OSError(116, "Stale file handle")
        return real_stat(path, *args, **kwargs)

    monkeypatch.setattr("untrimmed.search.store.listing.os.stat", stat)
    assert forgotten(indexed) == (0, [0])


def test_a_broken_link_counts_as_a_missing_drive(indexed, videos, tmp_path):
    (videos / "usb").symlink_to(tmp_path / "drive")
    (tmp_path / "disk").mkdir()
    write_clip(tmp_path / "disk" / "moon.mp4", ["white"])
    (videos / "moon.mp4").symlink_to(tmp_path / "disk" / "moon.mp4")
    indexed("rm", "--all", "--yes")
    indexed("index", videos, videos / "usb", videos / "moon.mp4")
    count = listed(indexed)
    shutil.rmtree(tmp_path / "drive")
    shutil.rmtree(tmp_path / "disk")
    code, out, err = indexed("rm", "--gone", "--yes")
    assert (code, numbers(out), listed(indexed)) == (3, [0], count)
    for link in ("usb", "moon.mp4"):
        assert str(videos / link) in err


def test_a_folder_with_only_hidden_files_counts_as_a_missing_drive(indexed, videos, tmp_path):
    write_clip(tmp_path / "drive" / "moon.mp4", ["white"])
    indexed("index", tmp_path / "drive")
    shutil.rmtree(tmp_path / "drive")
    (tmp_path / "drive").mkdir()
    (tmp_path / "drive" / ".keep").touch()
    assert forgotten(indexed) == (3, [0])


def test_a_drive_that_returns_before_the_confirmation_loses_no_video(indexed, videos, monkeypatch):
    (videos / "flag.mp4").rename(videos / "away")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.confirm", lambda *_, **__: (videos / "away").rename(videos / "flag.mp4"))
    assert forgotten(indexed, yes=False) == (0, [0])
    assert listed(indexed) == 3
