"""The commands for a folder of videos, from `index` to `rm`."""

import importlib
import io
import json
import math
import os
import re
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest
from PIL import Image
from rich.console import Console

import untrimmed
from tests.cli.conftest import NOTICE, numbers
from tests.toy import ToyEncoder, write_clip
from untrimmed.encoders.registry import ENCODERS

bars_module = importlib.import_module("untrimmed.cli.bars")
console_module = importlib.import_module("untrimmed.cli.console")
cut_module = importlib.import_module("untrimmed.cli.cut")
index_module = importlib.import_module("untrimmed.cli.index")  # in its package, `index` is the command


def test_index_then_search_finds_the_moment(run, videos):
    code, out, err = run("index", videos)
    assert code == 0
    assert numbers(out, 3) == [2, 0, 0]
    assert err.count(NOTICE) == 1
    assert "\n\n" not in err
    code, out, err = run("search", "something green", "-k", "1")
    assert code == 0
    assert "flag.mp4" in out
    assert err == "", "the encoder was spoken of when the library was made"
    code, out, _ = run("search", "blue", "--json")
    document = json.loads(out)
    assert document["text"] == "blue"
    assert [hit["rank"] for hit in document["hits"]] == [1, 2]
    assert document["hits"][0]["video"] == str(videos / "sea [1].mp4")
    assert document["hits"][0].keys() == {
        "rank", "video", "video_id", "score", "confidence", "duration_s", "start_s", "end_s", "peak_s",
        "moments", "width", "height",
    }  # fmt: skip


def test_parts_are_indexed_separately_and_merged(run, videos, tmp_path):
    for number in (1, 2):
        assert run("index", videos, "--part", f"{number}/2")[0] == 0
    parts = [tmp_path / f"library.part-{number}-of-2" for number in (1, 2)]
    code, out, err = run("merge", tmp_path / "library", parts[0])
    assert code == 2
    assert "library.part-2-of-2" in err
    code, out, _ = run("merge", tmp_path / "library", *parts)
    assert code == 0
    assert str(tmp_path / "library") in out
    assert json.loads(run("merge", tmp_path / "library", *parts, "--json")[1])["copied"] == 0
    assert json.loads(run("search", "blue", "--json")[1])["hits"][0]["video"] == str(videos / "sea [1].mp4")
    assert "'3'" in run("index", videos, "--part", "3")[2]
    assert "--part" in run("index", videos, "--part", "1/2", "--model", "none")[2]


def test_a_cluster_that_does_not_answer_is_reported_in_one_line(run, videos):
    pytest.importorskip("ray", reason="untrimmed[ray] is not installed")
    run("index", videos)
    code, _, err = run("search", "blue", "--ray", "127.0.0.1:1", "--shards", "2")
    assert code == 2
    assert err.startswith("untrimmed: 127.0.0.1:1: ")
    assert run("search", "blue", "--shards", "2")[0] == 2


@pytest.mark.parametrize("width", [40, 80, 200])
def test_on_a_terminal_a_bar_shows_files_and_speed(run, videos, monkeypatch, width):
    (videos / "broken.mp4").write_bytes(b"no video at all")
    terminal = io.StringIO()
    console = Console(file=terminal, force_terminal=True, width=width, highlight=False, soft_wrap=True)
    for module in (bars_module, console_module, index_module):
        monkeypatch.setattr(module, "progress_console", console)
    code, out, _ = run("index", videos)
    assert code == 3
    assert numbers(out, 3) == [2, 0, 1]
    shown = terminal.getvalue()
    assert "3/3" in shown
    assert str(videos / "flag.mp4") in shown
    assert "broken.mp4" in shown


def test_json_of_indexing_has_one_line_per_file(run, videos, tmp_path, monkeypatch):
    (videos / "broken.mp4").write_bytes(b"no video at all")
    (videos / "flag.srt").write_text("1\n00:00:00,500 --> 00:00:01,500\nA flag in the wind.\n")
    printed = []

    def note(fields, indent):
        printed.append((fields, len(run_ls(tmp_path))))

    monkeypatch.setattr(index_module, "print_json", note)
    assert run("index", videos, "--json")[0] == 3
    with_passages = [fields for fields, _ in printed if fields.get("state") == "passages"]
    assert [(Path(file["path"]).name, file["passages"]) for file in with_passages] == [("flag.mp4", 1)]
    printed = [(fields, count) for fields, count in printed if fields.get("state") != "passages"]
    files = [fields for fields, _ in printed[:-1]]
    assert [(Path(file["path"]).name, file["state"], file["position"], file["total"]) for file in files] == [
        ("broken.mp4", "failed", 1, 3),
        ("flag.mp4", "done", 2, 3),
        ("sea [1].mp4", "done", 3, 3),
    ]
    assert "broken.mp4" in files[0]["reason"]
    assert [count for _, count in printed] == [0, 1, 2, 2], "what is reported done is there by then"
    assert printed[-1][0]["event"] == "report"
    monkeypatch.undo()


def test_copies_of_indexed_files_are_named(run, videos):
    run("index", videos)
    shutil.copy(videos / "flag.mp4", videos / "copy.mp4")
    _, out, err = run("index", videos)
    assert str(videos / "copy.mp4") in err
    assert numbers(out, 3) == [0, 3, 0]
    shutil.copy(videos / "flag.mp4", videos / "other.mp4")
    files = [json.loads(line) for line in run("index", videos, "--json")[1].splitlines()[:4]]
    assert {Path(file["path"]).name for file in files if file["state"] == "copied"} == {"other.mp4"}


def run_ls(tmp_path):
    return untrimmed.open(tmp_path / "library").videos()


def test_json_of_indexing_and_searching_is_valid_for_any_file_name(run, videos):
    (videos / "flag.mp4").rename(videos / "флаг.mp4")
    bad = os.fsdecode(bytes(videos) + b"/\xff.mp4")
    shutil.copy(videos / "флаг.mp4", bad)
    code, out, _ = run("index", videos, "--json")
    assert code == 3
    assert "флаг.mp4" in out
    lines = [json.loads(line) for line in out.splitlines()]
    assert bad in [line["path"] for line in lines[:-1]]
    assert lines[-1]["failed"][0]["path"] == bad
    code, out, _ = run("search", "red", "--json")
    assert code == 0
    assert "флаг.mp4" in out
    code, out, _ = run("similar", f"{bad}@1", "--json")
    assert json.loads(out)["like"] == f"{bad}@1"


def test_linked_folders_that_are_not_followed_are_named(run, videos, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    write_clip(tmp_path / "elsewhere" / "sun.mp4", ["yellow"])
    (videos / "away").symlink_to(tmp_path / "elsewhere")
    (videos / "loop").symlink_to(videos)
    code, out, err = run("index", videos)
    assert code == 0
    assert numbers(out, 1) == [2]
    assert f"{videos / 'away'} " in err
    code, out, err = run("index", videos / "away", "--json")
    assert json.loads(out.splitlines()[-1])["done"] == [str(videos / "away" / "sun.mp4")]
    assert f"{videos / 'away'} " not in err


def test_nothing_above_the_threshold_is_exit_code_1(run, videos):
    run("index", videos)
    code, out, _ = run("search", "green", "--min-score", "1.5", "--json")
    assert (code, json.loads(out)["hits"]) == (1, [])


def test_a_bad_file_is_exit_code_3_and_named_with_its_reason(run, videos):
    (videos / "broken.mp4").write_bytes(b"no video at all")
    code, out, err = run("index", videos)
    assert code == 3
    assert numbers(out, 3) == [2, 0, 1]
    assert "broken.mp4" in err
    code, out, _ = run("index", videos, "--json")
    report = json.loads(out.splitlines()[-1])
    assert [failure["path"] for failure in report["failed"]] == [str(videos / "broken.mp4")]
    assert len(report["skipped"]) == 2


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["search", "red"], "library"),
        (["index", "/nowhere/at all.mp4"], "/nowhere/at all.mp4"),
        (["rm"], "--gone"),
        (["rm", ""], ""),
        (["index", ""], ""),
        (["features", "", "--out", "x"], ""),
        (["search", "red", "--in", ""], "--in"),
        (["similar", "a.jpg", "--in", ""], "--in"),
        (["search", "red", "--library", ""], "--library"),
        (["cut", "1", "-o", ""], ""),
        (["cut", "1", "-o", "x.mp4"], "1"),
        (["cut", "a.mp4@5", "-o", "x.mp4"], "START-END"),
        (["similar", "nowhere.jpg"], "nowhere.jpg"),
        (["search", "red", "-k", "0"], "-k is 0"),
        (["similar", "x" * 300], "x" * 300),
        (["index", "x" * 300], "File name too long"),
        (["evaluate", ".", "--queries", "q.jsonl", "--format", "csv"], "json"),
        (["serach", "red"], "serach"),
    ],
)
def test_wrong_use_is_exit_code_2_and_no_stack_trace(run, arguments, expected):
    code, out, err = run(*arguments)
    assert code == 2
    assert expected in err
    assert "Traceback" not in out + err


def test_a_missing_run_is_reported_in_one_line_without_a_bar(run, videos, tmp_path):
    run("index", videos)
    code, out, err = run("index", "--model", tmp_path / "nowhere")
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert str(tmp_path / "nowhere") in err
    assert "ms_sl+ral" in run("index", "--model", "ms_sl+ral")[2]


def test_a_missing_model_is_refused_before_videos_are_indexed(run, videos, tmp_path):
    code, out, err = run("index", videos, "--model", tmp_path / "nowhere")
    assert (code, out) == (2, "")
    assert str(tmp_path / "nowhere") in err
    assert run("ls")[0] == 2  # there is no library
    run("index", videos / "flag.mp4")
    assert run("index", videos, "--model", tmp_path / "nowhere")[0] == 2
    assert len(run("ls")[1].splitlines()) == 1


def test_indexing_a_part_prints_where_it_is_written(run, videos):
    _, _, err = run("index", videos, "--part", "1/2")
    folder = next(line.rpartition(" ")[2] for line in err.splitlines() if ".part-1-of-2" in line)
    assert Path(folder).is_dir()


def test_an_unreadable_file_fails_alone_and_can_be_removed(run, videos, monkeypatch):
    run("index", videos)
    # Simulates missing permissions, because root can read all files.
    monkeypatch.setattr("os.access", lambda path, *_, **__: Path(path).parent != videos)
    monkeypatch.setattr(
        "untrimmed.search.indexing.video_files.content_hash", Mock(side_effect=PermissionError(13, "Permission denied"))
    )
    write_clip(videos / "late.mp4", ["red"])
    code, out, err = run("index", videos / "late.mp4", videos / "flag.mp4")
    assert code == 3
    assert numbers(out, 3) == [0, 1, 1]
    assert "late.mp4" in err
    assert "Permission denied" in err
    assert run("rm", videos / "flag.mp4")[0] == 0


def test_a_folder_without_videos_is_not_an_error_and_creates_no_library(run, tmp_path):
    (tmp_path / "empty").mkdir()
    code, out, _ = run("index", tmp_path / "empty")
    assert (code, numbers(out, 1)) == (0, [0])
    assert [entry.name for entry in tmp_path.iterdir() if entry.name != "videos"] == ["empty"]


def test_interrupting_is_exit_code_130(run, videos, monkeypatch):
    def interrupted(self, frames):
        raise KeyboardInterrupt

    monkeypatch.setattr(ToyEncoder, "encode_frames", interrupted)
    code, _, err = run("index", videos)
    assert code == 130
    assert "Traceback" not in err


def test_names_cannot_steer_the_terminal_and_frames_of_long_ones_are_saved(run, videos, tmp_path):
    (videos / "flag.mp4").rename(videos / f"\x1b[31m\n{'é' * 110}.mp4")
    _, out, err = run("index", videos)
    assert "\x1b" not in out + err
    assert len([line for line in err.splitlines() if line.startswith("done")]) == 2
    code, out, _ = run("search", "green", "-k", "1", "--save-frames", tmp_path / "frames")
    assert code == 0
    assert "\x1b" not in out + run("ls")[1]
    assert len(list((tmp_path / "frames").iterdir())) == 1
    (tmp_path / "file").touch()
    code, _, err = run("search", "green", "--save-frames", tmp_path / "file")
    assert code == 2
    assert str(tmp_path / "file") in err


def test_a_frame_that_cannot_be_written_completely_is_deleted(run, videos, tmp_path, monkeypatch):
    run("index", videos)

    def full(self, file, *_, **__):
        Path(file).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Image.Image, "save", full)
    code, _, err = run("search", "red", "--save-frames", tmp_path / "frames")
    assert code == 2
    assert "_flag_" in err
    assert "No space left" in err
    assert list((tmp_path / "frames").glob("*")) == []


def test_names_that_look_like_markup_or_emoji_are_printed_verbatim(run, videos):
    odd = videos / "a :dog: [red]b[bold].mp4"
    (videos / "flag.mp4").rename(odd)
    (videos / ":cat: [broken].mp4").write_bytes(b"no video")
    _, _, err = run("index", videos)
    assert odd.name in err
    assert ":cat: [broken].mp4" in err
    assert odd.name in run("ls")[1]
    assert odd.name in run("search", "red", "--in", odd)[1]


def test_ls_status_and_rm(run, videos):
    run("index", videos)
    code, out, _ = run("ls")
    assert code == 0
    assert len(out.splitlines()) == 2
    assert "sea [1].mp4" in out
    (videos / "flag.mp4").unlink()
    assert "(gone)" in run("ls")[1]
    facts = json.loads(run("status", "--json")[1])
    assert (facts["videos"], facts["gone"], facts["encoder_identity"], facts["sampling"]) == (2, 1, "toy:1", "2 fps")
    assert numbers(run("rm", "--gone", "--yes")[1]) == [1]
    assert [record["path"] for record in json.loads(run("ls", "--json")[1])] == [str(videos / "sea [1].mp4")]
    assert numbers(run("rm", videos, "--yes")[1]) == [1]
    assert (videos / "sea [1].mp4").exists()


def test_commands_take_names_of_indexed_videos_as_paths(run, videos, tmp_path):
    run("index", videos)
    for name in ("flag.mp4", "flag"):
        assert run("cut", f"{name}@1-2", "-o", tmp_path / f"{name}.mp4")[0] == 0
        code, _, refusal = run("cut", f"{name}@1-2", "-o", tmp_path / "clip.foo")
        assert (code, ".mkv" in refusal, ".otio" in refusal) == (2, True, True)
        code, out, _ = run("similar", f"{name}@1", "-k", "1", "--json")
        assert Path(json.loads(out)["hits"][0]["video"]) == videos / "flag.mp4"
        code, out, _ = run("search", "green", "--in", name, "--json")
        assert {Path(hit["video"]).name for hit in json.loads(out)["hits"]} == {"flag.mp4"}
        code, out, err = run("search", "--like", f"{name}@1", "-k", "1", "--json")
        assert code == 0, err
        code, out, err = run("rm", name, "--dry-run")
        assert (code, "flag.mp4" in out + err) == (0, True)
    assert run("cut", "nowhere@1-2", "-o", tmp_path / "no.mp4")[0] == 2
    assert run("rm", "nowhere", "--dry-run")[0] == 2


def test_a_hit_is_cut_by_its_number_and_frames_are_saved(run, videos, tmp_path):
    import av

    run("index", videos)
    code, out, _ = run("search", "green", "-k", "1", "--json", "--save-frames", tmp_path / "frames")
    hit = json.loads(out)["hits"][0]
    assert code == 0
    assert (tmp_path / "frames").is_dir()
    assert hit["frame"].startswith(str(tmp_path / "frames"))
    code, out, _ = run("cut", "1", "-o", tmp_path / "green.mp4")
    assert code == 0
    with av.open(str(tmp_path / "green.mp4")) as container:
        pictures = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    assert len(pictures) == 20, "exactly the green shot, although the hit is a little longer"
    assert hit["end_s"] - hit["start_s"] == pytest.approx(2.25)
    assert all(picture.reshape(-1, 3).mean(axis=0).argmax() == 1 for picture in pictures)
    assert pictures[-1].mean(axis=(0, 1)).argmax() == 1  # green


def test_hits_are_written_as_a_timeline_with_the_sentence(run, videos, tmp_path):
    import opentimelineio as otio

    run("index", videos)
    hits = json.loads(run("search", "green", "then", "red", "-k", "2", "--json", "--exact-cuts")[1])["hits"]
    code, out, err = run("cut", "1-2", "-o", tmp_path / "new" / "cut.otio", "--rate", "25", "--margin", "0.2")
    assert (code, str(tmp_path / "new" / "cut.otio") in out) == (0, True), err
    clips = otio.adapters.read_from_file(str(tmp_path / "new" / "cut.otio")).video_tracks()[0]
    starts = [round(max(0.0, hit["start_s"] - 0.2) * 25) for hit in hits]
    assert [clip.source_range.start_time.value for clip in clips] == starts
    assert {marker.name for clip in clips for marker in clip.markers} == {"green then red"}
    assert run("cut", "1-2", "-o", tmp_path / "new" / "cut.otio")[0] == 2
    assert run("cut", "1", "-o", tmp_path / "cut.edl", "--rate", "31")[0] == 2
    assert run("cut", "1", "-o", tmp_path / "cut.mp4", "--rate", "25")[0] == 2
    assert run("cut", "1-2", "-o", tmp_path / "text.vtt")[0] == 0
    assert sorted(path.name for path in tmp_path.glob("*.*")) == ["text.zip"]


def test_a_span_of_a_file_that_is_not_indexed_is_written_as_a_timeline(run, videos, tmp_path):
    code, _, err = run("cut", f"{videos / 'sea [1].mp4'}@1-2.5", "-o", tmp_path / "cut.edl")
    assert code == 0, err
    assert "00:00:01:00 00:00:02:15 01:00:00:00 01:00:01:15" in (tmp_path / "cut.edl").read_text()
    assert run("cut", f"{videos / 'sea [1].mp4'}@2-1", "-o", tmp_path / "no.edl")[0] == 2
    assert not (tmp_path / "no.edl").exists()


def test_a_bin_is_written_as_a_timeline_and_as_clips(run, videos, tmp_path):
    import opentimelineio as otio

    from untrimmed.search.store.bins import BinMoment, Bins

    run("index", videos)
    ids = {Path(record.path).name: record.video_id for record in untrimmed.open(tmp_path / "library").videos()}
    spans = [
        ("sea [1].mp4", 0.4, 1.4, "waves", "blue"),
        ("flag.mp4", 2.0, 4.0, "", "white"),
        ("gone.mp4", 0.0, 1.0, "", ""),
    ]
    moments = [BinMoment(ids.get(name, "e" * 16), str(videos / name), *span) for name, *span in spans]
    Bins(tmp_path / "library").create("Trailer", moments)
    code, _, err = run("cut", "--bin", "Trailer", "-o", tmp_path / "cut.otio", "--rate", "25")
    assert (code, "gone.mp4" in err) == (3, True)
    clips = otio.adapters.read_from_file(str(tmp_path / "cut.otio")).video_tracks()[0]
    values = [
        (clip.source_range.start_time.value, clip.source_range.duration.value, clip.markers[0].name) for clip in clips
    ]
    assert values == [(10, 25, "waves"), (50, 50, "white")]
    assert run("cut", "--bin", "Trailer", "-o", tmp_path / "clips")[0] == 3
    assert [file.name for file in sorted((tmp_path / "clips").iterdir())] == [
        "01_sea [1]_0.4-1.4s.mp4",
        "02_flag_2.0-4.0s.mp4",
    ]
    for words in (["--bin", "Reel"], ["1", "--bin", "Trailer"], []):
        assert run("cut", *words, "-o", tmp_path / "no.edl")[0] == 2
    assert not (tmp_path / "no.edl").exists()


def test_several_hits_are_cut_into_a_folder_by_rank(run, videos, tmp_path):
    run("index", videos)
    run("search", "green")
    clips = tmp_path / "new" / "clips"
    code, out, _ = run("cut", "1-2,1.1", "-o", clips)
    assert code == 0
    names = sorted(path.name for path in clips.iterdir())
    assert len(out.splitlines()) == len(names) == 3
    assert [name.partition("_")[0] for name in names] == ["01.1", "01", "02"]
    assert names[1].startswith("01_flag_")
    assert names[2].startswith("02_sea [1]_0.0-")
    code, _, err = run("cut", "1-2", "-o", tmp_path / "hits.oto")  # a mistyped .otio
    assert (code, ".otio" in err, (tmp_path / "hits.oto").exists()) == (2, True, False)
    assert run("cut", "1-2", "-o", tmp_path / "St.Gallen")[0] == 0
    assert len(list((tmp_path / "St.Gallen").iterdir())) == 2
    code, _, err = run("cut", "1", "-o", clips)
    assert (code, names[1] in err, "--overwrite" in err) == (2, True, True)
    assert run("cut", "1", "-o", clips, "--overwrite")[0] == 0
    assert sorted(path.name for path in clips.iterdir()) == names


def test_a_hit_that_cannot_be_cut_does_not_stop_the_others(run, videos, tmp_path):
    run("index", videos)
    run("search", "green")
    (videos / "flag.mp4").unlink()
    code, _, err = run("cut", "1-2", "-o", tmp_path / "clips")
    assert code == 3
    assert "flag.mp4" in err
    assert [path.name[:2] for path in (tmp_path / "clips").iterdir()] == ["02"]
    (videos / "sea [1].mp4").unlink()
    assert run("cut", "1-2", "-o", tmp_path / "none")[0] == 3
    assert not (tmp_path / "none").exists()
    code, _, err = run("cut", "1-3", "-o", tmp_path / "none")
    assert (code, "2 hits" in err) == (2, True)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_cut_shows_its_progress(run, videos, tmp_path, monkeypatch, is_terminal):
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=is_terminal, width=120, highlight=False)
    for module in (bars_module, cut_module):
        monkeypatch.setattr(module, "progress_console", console)
    monkeypatch.setattr(cut_module, "_LINE_INTERVAL_S", 0.0)
    monkeypatch.setattr(
        "untrimmed.video.reader.cut",
        lambda *_, progress, **__: max((progress(at_s), at_s)[1] for at_s in (20.0, 61.0, 64.0)),
    )
    assert run("cut", f"{videos / 'flag.mp4'}@1:00-1:10", "-o", tmp_path / "out.mp4")[0] == 0
    times = [re.findall(r"\d+:\d\d\.\d", line) for line in stream.getvalue().splitlines()]
    if not is_terminal:
        assert times == [["1:00.0", "0:20.0"], ["0:01.0", "0:10.0"], ["0:04.0", "0:10.0"]]
    else:
        assert ["0:04.0", "0:10.0"] in times


def test_a_cut_has_a_time_limit(run, videos, tmp_path):
    code, _, err = run("cut", f"{videos / 'flag.mp4'}@0-5", "-o", tmp_path / "out.mp4", "--timeout", "0.01")
    assert code == 2
    assert "flag.mp4" in err
    assert "0.01 s" in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("end", "options"), [("200000", []), ("20", ["--margin", "1e7"]), ("20", ["--timeout", "inf"])]
)
def test_a_span_beyond_the_end_is_cut_at_the_end_which_is_printed(run, videos, tmp_path, end, options):
    code, out, _ = run("cut", f"{videos / 'flag.mp4'}@0-{end}", "-o", tmp_path / "out.mp4", *options)
    assert code == 0
    assert all(value in out for value in (str(tmp_path / "out.mp4"), "0:00.0 - 0:06.0", str(videos / "flag.mp4")))


def test_a_cut_that_makes_progress_has_no_time_limit(run, videos, tmp_path, monkeypatch):
    """A container without an index is decoded from its beginning, even for a short span."""
    used_limits = []
    monkeypatch.setattr("untrimmed.video.reader.cut", lambda *_, limits, **__: used_limits.append(limits) or 2.0)
    assert run("cut", f"{videos / 'flag.mp4'}@1-2", "-o", tmp_path / "out.mp4")[0] == 0
    assert (used_limits[0].stall_s, used_limits[0].total_s) == (600.0, math.inf)


def test_several_clips_are_refused_for_a_name_with_a_video_suffix(run, videos, tmp_path):
    run("index", videos)
    run("search", "green")
    code, _, err = run("cut", "1-2", "-o", tmp_path / "many.mp4")
    assert (code, "many.mp4" in err) == (2, True)
    assert not (tmp_path / "many.mp4").exists()


def test_similar_refuses_a_missing_time_and_a_time_after_the_end(run, videos):
    run("index", videos)
    code, out, err = run("similar", f"{videos / 'sea [1].mp4'}@99")
    assert (code, out) == (2, "")
    assert ["99 s" in err, "4.0 s" in err] == [True, True]
    assert run("similar", f"{videos / 'sea [1].mp4'}@4.0")[0] == 0, "the length itself, as it is printed"
    code, _, err = run("similar", videos / "flag.mp4")
    assert (code, f"{videos / 'flag.mp4'}@" in err) == (2, True)


def test_status_counts_videos_with_an_older_sampling(run, videos):
    run("index", videos)
    (videos / "flag.mp4").unlink()
    run("index", videos, "--keyframes")
    (line,) = [line for line in run("status")[1].splitlines() if "toy:1" in line]
    assert ["key frames" in line, "2 fps" in line] == [True, True]


def test_evaluate_scores_a_library_on_labelled_sentences(run, videos, tmp_path):
    run("index", videos)
    queries = tmp_path / "queries.jsonl"
    queries.write_text(
        '{"video": "flag", "query": "green", "start_s": 4.0, "end_s": 6.0}\n'
        '{"file": "sea [1].mp4", "queries": [{"query": "blue", "start": 0, "end": 4}]}\n'
    )
    code, out, err = run("evaluate", tmp_path / "library", "--queries", queries, "--format", "json")
    document = json.loads(out)
    assert code == 0
    assert NOTICE not in err
    assert document["figures"]["R@1"] == 100.0
    assert document["figures"]["mean IoU"] > 70
    assert [query["rank"] for query in document["queries"]] == [1, 1]
    queries.write_text('{"video": "flag"}\n')
    code, _, err = run("evaluate", tmp_path / "library", "--queries", queries)
    assert code == 2
    assert "line 1" in err


@pytest.mark.parametrize(
    "words",
    [
        ["--against", "RUN2"],
        ["--no-moments"],
        ["--split", "val"],
        ["--data", "tvr"],
        ["--root", "."],
        ["--video-features", "x"],
    ],
)
def test_evaluate_refuses_options_of_a_run_for_a_library(run, tmp_path, words):
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "library.json").touch()
    code, _, err = run("evaluate", tmp_path / "library", "--queries", "q.jsonl", *words)
    assert code == 2
    assert words[0] in err


def test_evaluate_skips_unknown_videos_on_request(run, videos, tmp_path):
    run("index", videos)
    queries = tmp_path / "queries.jsonl"
    queries.write_text(
        '{"video": "flag", "query": "green", "start_s": 4.0, "end_s": 6.0}\n'
        '{"video": "lost", "query": "red"}\n{"video": "lost", "query": "blue"}\n{"video": "away", "query": "red"}\n'
    )
    code, out, err = run("evaluate", tmp_path / "library", "--queries", queries)
    assert (code, out) == (2, "")
    assert all(value in err for value in ("'lost'", "line 2", "'away'", "line 4"))
    code, out, err = run("evaluate", tmp_path / "library", "--queries", queries, "--skip-unknown", "--format", "json")
    assert code == 0
    assert [skipped["video"] for skipped in json.loads(out)["skipped"]] == ["lost", "lost", "away"]
    assert len(json.loads(out)["queries"]) == 1


def test_help_shows_defaults_in_brackets(run, monkeypatch):
    """Typer reads square brackets as markup and hides them unless a backslash precedes them."""
    monkeypatch.setenv("COLUMNS", "200")
    code, out, _ = run("index", "--help")
    assert code == 0
    assert re.search(r"\[default: .+?\]", out)
    unescaped = [
        line
        for path in Path(untrimmed.__path__[0], "cli").glob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"(?<!\\)\[default: ", line)
    ]
    assert unescaped == []


def test_the_list_of_encoders_fits_80_columns(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = run("encoders")
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    for name, card in ENCODERS.items():
        assert name in out
        assert (card.hub_id or card.note) in out


def test_thumbnails_are_added_when_asked_counted_and_repaired(run, videos, tmp_path):
    run("index", videos, "--no-thumbnails")
    assert json.loads(run("status", "--json")[1])["thumbnail_bytes"] == 0
    out = run("index", videos, "--thumbnails")[1]
    assert 2 in numbers(out)
    files = list((tmp_path / "library" / "thumbnails").iterdir())
    assert json.loads(run("status", "--json")[1])["thumbnail_bytes"] == sum(file.stat().st_size for file in files) > 0
    files[0].write_bytes(b"damaged")
    out = run("doctor", "--repair")[1]
    assert "--thumbnails" in out
    assert files[0].name in "".join(out.split())
    report = json.loads(run("index", videos, "--thumbnails", "--json")[1].splitlines()[-1])
    assert len(report["thumbnails"]) == 1
    assert files[0].read_bytes() != b"damaged"
