"""Exported moments, read back from the files."""

import csv
import io
import json
import shutil
import threading
import zipfile
from dataclasses import replace
from types import SimpleNamespace
from typing import get_args

import pytest

from tests.refusals import refused
from tests.server.conftest import HOSTILE
from untrimmed.errors import ConfigError, VideoError
from untrimmed.exports.counting import RATES
from untrimmed.exports.formats import FORMATS
from untrimmed.search.store.records import VideoRecord
from untrimmed.server import export as export_module
from untrimmed.server.schemas import ExportFormat, ExportRequest, FrameRate, Mark


def record_of(path):
    return VideoRecord(
        video_id="0" * 16, path=path, content_hash="", size=1, mtime_ns=1, duration_s=900.0, width=4, height=4,
        num_frames=40, sampling="2 fps", encoder_identity="toy:1", model="frames", indexed_at=0.0, frame_rate="25",
    )  # fmt: skip


@pytest.fixture
def export(client):
    def run(format, *moments, **fields):
        return client.post("/api/export", json={"format": format, "moments": list(moments), **fields})

    return run


@pytest.fixture
def moments(ids):
    return [
        {"video_id": ids["sea [1].mp4"], "start_s": 1.0, "end_s": 2.5, "note": "=cmd()"},
        {"video_id": ids["flag.mp4"], "start_s": 3.04, "end_s": 4.0, "note": "two\nlines; #1"},
        {"video_id": ids["flag.mp4"], "start_s": 0.0, "end_s": 1.5, "note": ""},
        {"video_id": ids[f"{HOSTILE}.mp4"], "start_s": 0.25, "end_s": 0.75, "note": ""},
    ]


def test_csv_has_a_row_per_moment_and_no_formulas(export, moments):
    answer = export("csv", *moments)
    rows = list(csv.DictReader(io.StringIO(answer.text, newline="")))
    assert [(row["start_s"], row["end_s"]) for row in rows] == [
        ("1.000", "2.500"),
        ("3.040", "4.000"),
        ("0.000", "1.500"),
        ("0.250", "0.750"),
    ]
    assert [row["note"] for row in rows] == ["'=cmd()", "two\nlines; #1", "", ""]
    assert rows[3]["video"].endswith(f"/{HOSTILE}.mp4")
    assert answer.headers["content-disposition"] == 'attachment; filename="moments.csv"'


@pytest.mark.parametrize(
    ("note", "cell"),
    [
        ("=1+1", "'=1+1"),
        (" =1+1", "' =1+1"),
        ("\n=1+1", "\n'=1+1"),
        ("\u3000\u00a0@SUM(1)", "'\u3000\u00a0@SUM(1)"),
        ("\u200b\ufeff=1+1", "'\u200b\ufeff=1+1"),
        ("\uff1d1+1", "'\uff1d1+1"),
        ('"=1+1"', '\'"=1+1"'),
        ("a;=1+1", "a;'=1+1"),
        ("a; -1;b\t+1", "a;' -1;b\t'+1"),
        ("a = b; c", "a = b; c"),
        ("10 - 20, x@y", "10 - 20, x@y"),
        ("", ""),
        (" ;", " ;"),
    ],
)
def test_csv_cells_that_spreadsheets_would_evaluate_begin_with_an_apostrophe(export, moments, note, cell):
    answer = export("csv", {**moments[0], "note": note})
    assert list(csv.reader(io.StringIO(answer.text, newline="")))[1][3] == cell


def test_json_has_the_requested_moments(export, moments):
    exported = export("json", *moments).json()["moments"]
    assert [{name: row[name] for name in moments[0]} for row in exported] == moments


@pytest.mark.parametrize(("format", "suffix"), [("srt", ".srt"), ("vtt", ".vtt"), ("chapters", ".ffmetadata")])
def test_each_video_has_its_own_file_of_subtitles(export, moments, format, suffix):
    answer = export(format, *moments)
    assert answer.headers["content-type"] == "application/zip"
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        names = archive.namelist()
        texts = [archive.read(name).decode() for name in names]
    assert names[:2] == [f"01_sea _1_{suffix}", f"02_flag{suffix}"]
    assert len(names) == 3
    assert [("two lines" in text, "cmd" in text) for text in texts] == [(False, True), (True, False), (False, False)]


def test_webvtt_has_a_header_and_escapes_markup(export, moments):
    text = export("vtt", {**moments[1], "note": "a <b> & --> c"}).text
    assert text == "WEBVTT\n\n00:00:03.040 --> 00:00:04.000\na &lt;b&gt; &amp; → c\n"


def test_subtitles_of_a_single_video_are_the_notes(export, moments):
    text = export("srt", *moments[1:3]).text
    assert "00:00:03,040 --> 00:00:04,000\ntwo lines; #1" in text
    assert "00:00:00,000 --> 00:00:01,500\nflag\n" in text


def test_subtitles_have_the_sign_between_times_only_once(export, moments):
    note = "left --> right\n00:00:01,000 --> 00:00:02,000 --->"
    blocks = export("srt", {**moments[1], "note": note}, moments[2]).text.split("\n\n")
    assert [block.count("-->") for block in blocks] == [1, 1]
    assert "\nleft → right 00:00:01,000 → 00:00:02,000 -→" in blocks[1]


@pytest.mark.parametrize("format", FORMATS)
def test_names_that_are_not_utf8_are_escaped(format, tmp_path):
    mark = Mark(video_id="0" * 16, start_s=0.0, end_s=700.0, note="")
    record = record_of("/videos/caf\udce9.mp4")
    made = export_module.export(ExportRequest(format=format, moments=[mark]), [record], threading.Event())
    assert "\\udce9" in made.path.read_text(encoding="utf-8")


def test_formats_and_rates_of_requests_are_those_of_exports():
    assert {*get_args(ExportFormat)} == {*FORMATS}
    assert {*get_args(get_args(FrameRate)[0])} == {*RATES}


def test_chapters_are_read_by_ffmpeg(export, moments, tmp_path):
    import av

    (tmp_path / "chapters.txt").write_bytes(export("chapters", *moments[1:3]).content)
    with av.open(str(tmp_path / "chapters.txt"), format="ffmetadata") as read:
        chapters = read.chapters()
    titles = {chapter["metadata"]["title"]: (chapter["start"], chapter["end"]) for chapter in chapters}
    assert titles == {"two lines; #1": (3040, 4000), "flag": (0, 1500)}


def test_a_timeline_has_the_rate_of_the_videos_or_the_requested_one(client, export, moments):
    assert "TITLE: moments, 30 frames per second" in export("edl", *moments).text  # three per frame of the videos
    assert 'name="Scene 1 &amp; 2"' in export("fcpxml", *moments, title="Scene 1 & 2").text
    request = {"format": "edl", "moments": moments, "rate": "29.97df"}
    text = client.post("/api/export", json=request).text
    assert "\nFCM: DROP FRAME\n" in text
    assert "001  sea_1    V     C        00:00:01;00 00:00:02;15 01:00:00;00 01:00:01;15" in text
    assert "* FROM CLIP NAME:  sea [1].mp4" in text
    assert "* COMMENT: two lines; #1" in text


def test_an_edit_list_of_videos_with_different_rates_is_refused(client, moments):
    records = [
        replace(record_of("/v/a.mp4"), video_id=f"{number:016d}", frame_rate=str(25 + 5 * number)) for number in (0, 1)
    ]
    marks = [Mark(video_id=record.video_id, start_s=0.0, end_s=1.0) for record in records]
    records[1] = replace(records[1], path="/v/b.mp4")
    with refused(ConfigError, "b.mp4"):
        export_module.export(ExportRequest(format="edl", moments=marks), records, threading.Event())


@pytest.mark.parametrize("format", ["otio", "csv"])
def test_an_unknown_rate_is_measured_from_the_file(client, monkeypatch, moments, format):
    record = client.app.state.service.record(moments[0]["video_id"])
    unknown = replace(record, frame_rate="")
    request = ExportRequest(format=format, moments=[Mark(**moments[0])])
    measured = export_module.export(request, [unknown], threading.Event()).path.read_text()
    assert measured == export_module.export(request, [record], threading.Event()).path.read_text()


def test_an_unknown_rate_of_a_missing_file_is_refused_in_timelines_and_left_out_in_tables(moments):
    record = replace(record_of("/videos/gone.mp4"), frame_rate="")
    mark = Mark(**{**moments[0], "video_id": record.video_id})
    with refused(VideoError, "gone.mp4"):
        export_module.export(ExportRequest(format="xml", moments=[mark]), [record], threading.Event())
    table = export_module.export(ExportRequest(format="csv", moments=[mark]), [record], threading.Event())
    row = next(csv.DictReader(table.path.read_text().splitlines()))
    assert (row["start_s"], row["frame_rate"], row["in_frame"]) == ("1.000", "", "")


def test_otio_is_read_by_its_own_library(export, moments):
    import opentimelineio as otio

    timeline = otio.adapters.read_from_string(export("otio", *moments).text, "otio_json")
    clips = list(timeline.find_clips())
    # edges are at frames of the files, which have 10 frames per second
    assert [round(clip.source_range.start_time.to_seconds(), 3) for clip in clips] == [1.0, 3.0, 0.0, 0.3]
    assert [round(clip.source_range.duration.to_seconds(), 3) for clip in clips] == [1.5, 1.0, 1.5, 0.5]
    assert clips[0].media_reference.target_url.endswith("/sea%20%5B1%5D.mp4")


def test_clips_come_in_one_archive_under_harmless_names(export, moments):
    answer = export("clips", *moments[2:])
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        names = archive.namelist()
        assert names[0] == "01_flag_0.0-1.5s.mp4"
        assert not any(letter in names[1] for letter in "<>\n\"'\u202e/")
        assert all(archive.read(name)[4:8] == b"ftyp" for name in names)


def test_nothing_is_written_to_a_disk_that_is_nearly_full(client, export, moments, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1 << 20))
    assert export("clips", *moments).status_code == 507
    span = {"start_s": 1.0, "end_s": 2.0}
    assert client.get(f"/api/videos/{moments[0]['video_id']}/clip", params=span).status_code == 507


def test_clips_of_videos_with_equal_names_say_which_folder(client, monkeypatch, tmp_path):
    def write(file, start_s, end_s, out, ends):
        out.write_bytes(b"clip")
        return out

    monkeypatch.setattr(export_module, "write_clip", write)
    monkeypatch.setattr(export_module, "media_file", lambda record: record)
    paths = ["/day 1/cam/a.mp4", "/day 2/cam/a.mp4", "/day 2/cam/b.mp4"]
    mark = Mark(video_id="0" * 16, start_s=0.0, end_s=1.0, note="")
    request = ExportRequest(format="clips", moments=[mark] * 3)
    exported = export_module.export(request, [record_of(path) for path in paths], threading.Event())
    with zipfile.ZipFile(exported.path) as archive:
        assert archive.namelist() == ["01_day 1_a_0.0-1.0s.mp4", "02_day 2_a_0.0-1.0s.mp4", "03_b_0.0-1.0s.mp4"]


def test_clips_of_videos_with_the_longest_names_keep_span_and_suffix(client, tmp_path):
    name = "\N{GOTHIC LETTER AHSA}" * 62 + "abc.mp4"
    assert len(name.encode()) == 255
    record = replace(client.app.state.service.records()[0], path=f"/videos/{name}")
    for span in ((0.0, 1.5), (9_999_400.1, 9_999_999.9)):
        made = f"500_{export_module.clip_name(record, *span)}"
        assert made.startswith("500_\N{GOTHIC LETTER AHSA}")
        assert made.endswith(f"\N{GOTHIC LETTER AHSA}_{span[0]:.1f}-{span[1]:.1f}s.mp4")
        (tmp_path / made).touch()


def test_invalid_spans_are_refused(export, ids):
    flag = ids["flag.mp4"]
    for format, start_s, end_s in [("csv", 2.0, 2.0), ("csv", 3.0, 2.0), ("clips", 0.0, 601.0)]:
        assert export(format, {"video_id": flag, "start_s": start_s, "end_s": end_s}).status_code == 422
    assert export("csv", {"video_id": flag, "start_s": 0.0, "end_s": 601.0}).status_code == 200  # too long for a clip
    assert export("csv", {"video_id": "0123456789abcdef", "start_s": 0, "end_s": 1}).status_code == 404
    assert export("doc", {"video_id": flag, "start_s": 0, "end_s": 1}).status_code == 422
    assert export("csv").status_code == 422


def test_temporary_files_are_deleted(export, moments, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for format in ("csv", "otio", "clips"):
        assert export(format, *moments).status_code == 200
    assert export("clips", {**moments[0], "start_s": 50.0, "end_s": 51.0}).status_code == 422
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("byte_range", ["bytes=abc", "bytes=999999999-", "bytes=0-9"])
def test_temporary_files_are_deleted_after_a_range_request(client, ids, monkeypatch, tmp_path, byte_range):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    url, span = f"/api/videos/{ids['flag.mp4']}/clip", {"start_s": 0, "end_s": 0.5}
    assert client.get(url, params=span, headers={"range": byte_range}).status_code in (206, 400, 416)
    assert list(tmp_path.iterdir()) == []


def test_an_archive_of_many_hours_is_refused(export, ids):
    long = {"video_id": ids["flag.mp4"], "start_s": 0.0, "end_s": 600.0}
    answer = export("clips", *[long] * 7)
    assert (answer.status_code, "4200 s" in answer.json()["detail"]) == (422, True)
    assert export("csv", *[long] * 7).status_code == 200


def test_no_further_clip_is_written_once_the_service_ends(client, export, moments, monkeypatch, tmp_path):
    written, write = [], export_module.write_clip

    def write_and_end(*values):
        client.app.state.service.close()
        written.append(values)
        return write(*values)

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(export_module, "write_clip", write_and_end)
    assert export("clips", *moments).status_code == 503
    paths = client.get("/api/openapi.json").json()["paths"]
    described = {path for path, verbs in paths.items() if "503" in str(verbs)}
    assert described >= {"/api/export", "/api/videos/{video_id}/clip", "/api/videos/{video_id}/proxy"}
    assert len(written) == 1
    assert list(tmp_path.iterdir()) == []


def test_warnings_of_an_export_are_in_a_header(client, export, moments, monkeypatch):
    assert "x-warnings" not in export("edl", moments[1]).headers
    service = client.app.state.service
    original = service.record
    monkeypatch.setattr(service, "record", lambda video_id: replace(original(video_id), start_timecode="01:00:00:77"))
    (warning,) = json.loads(export("edl", moments[1]).headers["x-warnings"])
    assert "01:00:00:77" in warning
