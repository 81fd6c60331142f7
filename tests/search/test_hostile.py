"""Damaged files, odd names, full and read-only disks, and files that change while they are indexed.

In each case no committed video is lost, each failure is reported in one line, and other files are not affected.
"""

import os
import random
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import untrimmed
from tests.toy import write_clip
from untrimmed.errors import UntrimmedError

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.usefixtures("encoder")


@pytest.fixture
def videos(tmp_path):
    folder = tmp_path / "videos"
    folder.mkdir()
    write_clip(folder / "flag.mp4", ["red", "white", "green"])
    write_clip(folder / "sea.mp4", ["blue", "blue", "white"])
    return folder


@pytest.fixture
def lib(tmp_path):
    return untrimmed.open(tmp_path / "library")


def names(lib):
    return {Path(record.path).name for record in lib.videos()}


def require_one_line_each(failures):
    for failure in failures:
        assert failure.reason.isprintable(), f"more than one line: {failure.reason!r}"
        assert repr(failure.path.name)[1:-1] in failure.reason or failure.path.name in failure.reason


# -- damaged files


def damage(source, target, kind, rng):
    content = bytearray(source.read_bytes())
    if kind == "cut off":
        del content[rng.randrange(len(content)) :]
    else:
        for _ in range(rng.choice([1, 10, 100, 1000])):
            position = rng.randrange(len(content))
            content[position] ^= 1 << rng.randrange(8)
    target.write_bytes(content)


@pytest.mark.check
@pytest.mark.shared
def test_sixty_damaged_real_files_do_not_affect_others(shared, tmp_path, videos, lib):
    rng = random.Random(9)
    clips = sorted((shared / "videos").glob("*.m*"), key=lambda path: path.stat().st_size)[:10]
    clips = [clip for clip in clips if clip.suffix in (".mp4", ".mov")]
    for number in range(60):
        clip = clips[number % len(clips)]
        damage(clip, videos / f"{number:02d} {clip.name}", ("cut off", "flipped bits")[number // 30], rng)
    report = lib.index(videos)
    assert len(report.done) + len(report.skipped) + len(report.failed) == 62
    assert {"flag.mp4", "sea.mp4"} <= names(lib)
    assert len(report.failed) > 10, "too few files were damaged"
    assert len(report.done) > 12, "too many files were damaged"
    require_one_line_each(report.failed)
    assert lib.search("green")[0].video.name == "flag.mp4"


# -- odd paths


def test_files_with_odd_paths_are_indexed_or_reported_without_blocking(videos, lib):
    odd = ["two words.mp4", "line\nend.mp4", "tab\t.mp4", "-o.mp4", "ü 日本 🎬.mp4", "'\"`$(x).mp4", "%s %20.mp4"]
    for number, name in enumerate(odd):
        write_clip(videos / name, ["red", "blue"] * (number + 1), seconds_each=0.5)
    (videos / "deep" / "a b").mkdir(parents=True)
    write_clip(videos / "deep" / "a b" / ("x" * 240 + ".mp4"), ["yellow"])
    (videos / "deep" / "loop").symlink_to(videos)
    (videos / "itself.mp4").symlink_to(videos / "itself.mp4")
    (videos / "nowhere.mp4").symlink_to(videos / "gone.mp4")
    (videos / "folder.mp4").mkdir()
    shutil.copyfile(videos / "sea.mp4", os.fsencode(videos) + b"/caf\xe9.mp4")
    os.mkfifo(videos / "fifo.mp4")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.path.relpath(videos / "socket.mp4"))  # an absolute name may be too long for a socket
        report = lib.index(videos)
    assert {*odd, "x" * 240 + ".mp4", "flag.mp4", "sea.mp4"} == names(lib)
    failed = {os.fsencode(failure.path.name) for failure in report.failed}
    assert failed == {b"itself.mp4", b"nowhere.mp4", b"caf\xe9.mp4", b"fifo.mp4", b"socket.mp4"}
    assert all(failure.reason.isprintable() for failure in report.failed)
    again = lib.index(videos)
    assert not again.done
    assert len(again.skipped) == len(odd) + 3


# -- disks


@pytest.fixture
def small_disk(tmp_path):
    """A file system of two megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_full_disk_ends_the_run_in_one_line_and_keeps_finished_videos(small_disk, videos):
    lib = untrimmed.open(small_disk / "library")
    lib.index(videos / "flag.mp4")
    ballast = small_disk / "ballast"
    with pytest.raises(OSError, match="No space left"):
        ballast.write_bytes(bytes(2 << 20))  # fills the disk
    with pytest.raises(UntrimmedError) as stopped:
        lib.index(videos)
    assert str(stopped.value).isprintable()
    assert "library" in str(stopped.value)
    assert names(lib) == {"flag.mp4"}
    assert lib.search("green")[0].video.name == "flag.mp4"
    ballast.unlink()
    assert len(lib.index(videos).done) == 1
    assert names(lib) == {"flag.mp4", "sea.mp4"}


def test_a_read_only_library_can_be_searched_but_not_changed(small_disk, videos):
    lib = untrimmed.open(small_disk / "library")
    lib.index(videos / "flag.mp4")
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    assert untrimmed.open(lib.folder).search("green")[0].video.name == "flag.mp4"
    with pytest.raises(UntrimmedError, match="Read-only file system") as stopped:
        untrimmed.open(lib.folder).index(videos)
    assert str(stopped.value).isprintable()
    with pytest.raises(UntrimmedError, match="Read-only file system"):
        lib.remove([videos / "flag.mp4"])
    assert names(lib) == {"flag.mp4"}


# -- files that change while they are indexed


def test_a_folder_removed_while_indexing_affects_only_its_files(videos, lib):
    for number in range(12):
        write_clip(videos / f"{number:02d}.mp4", ["red", "blue"] * (number + 1), seconds_each=0.5)

    def remove(step):
        if step.state == "done":
            shutil.rmtree(videos, ignore_errors=True)

    report = lib.index(videos, progress=remove)
    assert len(report.done) + len(report.failed) == 14
    assert report.failed
    require_one_line_each(report.failed)
    assert len(names(lib)) == len(report.done) >= 1


def test_a_file_that_changes_while_it_is_read_is_refused(videos, lib):
    long, short = videos / "long.mp4", videos / "short.mkv"
    write_clip(long, ["red"] * 60)
    write_clip(short, ["blue"])
    original = long.read_bytes()

    def change(step):
        if step.state == "encoding" and step.path == long:
            long.write_bytes(short.read_bytes())

    report = lib.index(long, progress=change)
    assert [failure.path for failure in report.failed] == [long]
    assert long.name in report.failed[0].reason
    long.write_bytes(original)
    assert len(lib.index(long).done) == 1
    assert lib.videos()[0].num_frames == 240


# -- many files and long files


@pytest.mark.slow
def test_two_thousand_tiny_files_can_be_indexed_and_searched(tmp_path, lib):
    folder = tmp_path / "tiny"
    folder.mkdir()
    colours = ("red", "green", "blue", "white", "yellow")
    for number in range(2000):
        size = (16 + 2 * (number // 5 % 20), 16)
        write_clip(folder / f"{number:04d}.mp4", [colours[number % 5]], seconds_each=0.1, size=size)
    report = lib.index(folder)
    assert len(report.failed) == 0
    assert len(names(lib)) == 2000
    assert len(lib.index(folder).skipped) == 2000
    assert lib.search("green", limit=5)[0].score > lib.search("green", limit=2000)[-1].score


@pytest.mark.slow
def test_two_hours_of_video_need_no_more_memory_than_ten_minutes(tmp_path):
    peaks = {}
    for minutes in (10, 120):
        video = write_clip(
            tmp_path / f"{minutes}.mp4", ["red", "blue"], seconds_each=minutes * 30, fps=2, size=(32, 32)
        )
        program = (
            "import resource, runpy, sys, untrimmed; runpy.run_module('tests.index_child', run_name='__main__')\n"
            "assert untrimmed.open(sys.argv[1]).search('red')[0].moments\n"
            "print(*(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))"
        )
        child = subprocess.run(
            [sys.executable, "-c", program, tmp_path / f"library-{minutes}", video],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        )
        lines = child.stdout.split()
        assert "done" in lines
        # peak memory of the process that indexed and searched, and of its largest child, which decoded
        peaks[minutes] = np.array(lines[-2:], dtype=np.int64) * (1 if sys.platform == "darwin" else 1024)
    assert (peaks[10] > 10e6).all(), peaks  # both were measured
    assert (peaks[120] - peaks[10] < 60e6).all(), peaks  # 13,200 more vectors and times, but no more frames
