"""Exported timelines are read back: every in, out and record point is on the expected frame."""

import csv
import io
import json
import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import opentimelineio as otio
import pytest

from untrimmed.errors import ConfigError, FeatureError
from untrimmed.exports.counting import RATES, ExportedMoment, read_rate
from untrimmed.exports.formats import FORMATS, export
from untrimmed.video.timing import NTSC, Timing

# Frame numbers in a file of 13 hours: next to the start, where drop frames begin, and late.
SPANS = ((0, 1), (1, 40), (1797, 1811), (17981, 17983), (89_910, 90_000), (1_000_001, 1_000_777))
LENGTH = 2_900_000
DROP_START = {"29.97df": 107_892, "59.94df": 215_784}


@dataclass(frozen=True)
class Clip:
    """What a reader found: frames of the file from its first frame and start timecode, and frames of the timeline."""

    source_in: int
    source_out: int
    record_in: int
    record_out: int


def moments(rate, timecode="", *, timing=None, num_audio_tracks=1, spans=SPANS):
    """Moments at frames of a file, in seconds as a search gives them: rounded to milliseconds."""
    timing = timing or Timing(str(rate), False, timecode, num_audio_tracks)
    return [
        ExportedMoment(
            Path("/videos/sea [1] & more.mov"),
            round(float(first / rate), 3),
            round(float(end / rate), 3),
            f"a note {first}",
            float(LENGTH / rate),
            640,
            360,
            timing,
            "0" * 16,
        )
        for first, end in spans
    ]


def expected(spans=SPANS, start_frame=0, factor=1):
    clips, record = [], 0
    for first, end in spans:
        length = (end - first) * factor
        source = start_frame + first * factor
        clips.append(Clip(source, source + length, record, record + length))
        record += length
    return clips


def write(format, moments, rate=None):
    return export(moments, format, None if rate is None else read_rate(rate), None).content.decode()


def whole(value):
    assert abs(value - round(value)) < 1e-4
    return round(value)


def read_timeline(timeline, source_rate, timeline_rate, start_frame=0, kind="Video"):
    track = next(track for track in timeline.tracks if track.kind == kind)
    clips = []
    for clip in track.find_clips():
        source = clip.source_range
        record = track.range_of_child(clip)
        points = [source.start_time, source.end_time_exclusive()]
        source_frames = [whole(time.to_seconds() * source_rate) + start_frame for time in points]
        times = [record.start_time, record.end_time_exclusive()]
        clips.append(Clip(*source_frames, *(whole(time.to_seconds() * timeline_rate) for time in times)))
    return clips


def read_otio(text, source_rate, rate, start_frame):
    timeline = otio.adapters.read_from_string(text, "otio_json")
    assert timeline.global_start_time.rate == float(rate.frames_per_s)
    assert whole(timeline.global_start_time.value) == frames_of(start_of(rate), rate.frames_per_s)
    assert {marker.name for clip in timeline.video_tracks()[0] for marker in clip.markers} == NOTES
    video, audio = (read_timeline(timeline, source_rate, rate.frames_per_s, kind=kind) for kind in ("Video", "Audio"))
    assert video == audio
    return video


def read_xml(text, source_rate, rate, start_frame):
    timeline = otio.adapters.read_from_string(text, "fcp_xml")
    assert timeline.metadata["fcp_xml"]["timecode"]["displayformat"] == ("DF" if rate.is_drop else "NDF")
    assert ET.fromstring(text).findtext(".//sequence/timecode/string") == start_of(rate)
    markers = {
        marker.name: marker.marked_range.start_time for clip in timeline.video_tracks()[0] for marker in clip.markers
    }
    assert {name: whole(time.value) for name, time in markers.items()} == {
        f"a note {first}": first * int(source_rate / FILE_RATE) for first, _ in SPANS
    }
    video, audio = (read_timeline(timeline, source_rate, rate.frames_per_s, kind=kind) for kind in ("Video", "Audio"))
    assert video == audio
    places = [
        (clip.source_in - start_frame, clip.source_out - start_frame, clip.record_in, clip.record_out) for clip in video
    ]
    assert own_places(text) == (places, places)
    size = ET.fromstring(text).find(".//sequence/media/video/format/samplecharacteristics")
    assert (size.find("width").text, size.find("height").text) == ("640", "360")
    for clip in timeline.find_clips():
        assert clip.media_reference.target_url.endswith("/sea%20%5B1%5D%20%26%20more.mov")
    return video


def own_places(text):
    """Frames in the file and on the timeline of each item, which must have its own and no reference to another item."""
    root = ET.fromstring(text)
    tracks = [root.findall(f".//{kind}/track/clipitem") for kind in ("video", "audio")]
    names = ("in", "out", "start", "end")
    video, audio = ([tuple(int(item.find(name).text) for name in names) for item in track] for track in tracks)
    ids = [item.get("id") for track in tracks for item in track]
    assert len(set(ids)) == len(ids)
    for item in (item for track in tracks for item in track):
        links = [link.find("linkclipref").text for link in item.findall("link")]
        assert item.get("id") in links
        assert [places for places, name in zip(video + audio, ids, strict=True) if name in links] == [
            tuple(int(item.find(name).text) for name in names)
        ] * len(links)
    return video, audio


def read_edl(text, source_rate, rate, start_frame):
    form = "DROP FRAME" if rate.is_drop else "NON-DROP FRAME"
    head = [f"TITLE: moments, {float(rate.frames_per_s):.5g} frames per second", f"FCM: {form}"]
    assert text.splitlines()[:2] == head
    assert re.search(r"^001 .* (\S+) \S+$", text, re.MULTILINE)[1] == start_of(rate)
    timeline = otio.adapters.read_from_string(text, "cmx_3600", rate=float(rate.frames_per_s))
    video, audio = (read_timeline(timeline, source_rate, rate.frames_per_s, kind=kind) for kind in ("Video", "Audio"))
    assert video == audio
    clips = timeline.video_tracks()[0]
    assert {clip.metadata["cmx_3600"]["reel"] for clip in clips} == {"sea_1_more"}
    assert {comment for clip in clips for comment in clip.metadata["cmx_3600"]["comments"]} == {
        f"COMMENT: {n}" for n in NOTES
    }
    return video


def read_kdenlive(text, source_rate, rate, start_frame):
    timeline = otio.adapters.read_from_string(text, "kdenlive")
    markers = {marker.name: whole(marker.marked_range.start_time.value) for marker in timeline.tracks.markers}
    video, audio = (
        read_timeline(timeline, rate.frames_per_s, rate.frames_per_s, start_frame, kind) for kind in ("Video", "Audio")
    )
    assert video == audio
    assert list(markers.values()) == [clip.record_in for clip in video]
    return video


def read_fcpxml(text, source_rate, rate, start_frame):
    root = ET.fromstring(text)
    formats = {element.get("id"): 1 / seconds(element.get("frameDuration")) for element in root.iter("format")}
    sequence, asset = root.find(".//sequence"), root.find(".//asset")
    assert (formats[sequence.get("format")], formats[asset.get("format")]) == (rate.frames_per_s, source_rate)
    assert sequence.get("tcFormat") == ("DF" if rate.is_drop else "NDF")
    assert seconds(asset.get("start")) * source_rate == start_frame
    first_s = seconds(sequence.get("tcStart"))
    assert first_s * rate.frames_per_s == frames_of(start_of(rate), rate.frames_per_s)
    assert asset.find("media-rep").get("src") == "file:///videos/sea%20%5B1%5D%20%26%20more.mov"
    clips = []
    for clip in sequence.find("spine"):
        start, offset, length = (seconds(clip.get(name)) for name in ("start", "offset", "duration"))
        assert clip.find("marker").get("value") in NOTES
        assert clip.find("marker").get("start") == clip.get("start")
        points = (start * source_rate, (start + length) * source_rate)
        points += tuple((time - first_s) * rate.frames_per_s for time in (offset, offset + length))
        assert all(point.denominator == 1 for point in points)
        clips.append(Clip(*map(int, points)))
    return clips


def seconds(text):
    assert text.endswith("s")
    return Fraction(text[:-1])


def frames_of(text, rate):
    """The number of the frame with a timecode, counted from the rules of SMPTE and not with our code."""
    base = -(-rate // 1)
    hours, minutes, secs, frames = map(int, re.split("[:;]", text))
    total_minutes = 60 * hours + minutes
    dropped = base // 15 * (total_minutes - total_minutes // 10) if ";" in text else 0
    return (60 * total_minutes + secs) * base + frames - dropped


def start_of(rate):
    """The timecode at which timelines of editors start."""
    return "01:00:00;00" if rate.is_drop else "01:00:00:00"


def read_table(rows, source_rate, rate, start_frame):
    clips, day = [], 24 * 3600
    for row in rows:
        assert (Fraction(row["frame_rate"]), Fraction(row["timeline_rate"])) == (source_rate, rate.frames_per_s)
        assert (";" in row["record_in"]) == rate.is_drop
        points = [frames_of(row[name], source_rate) for name in ("source_in", "source_out")]
        assert [int(row[name]) + start_frame for name in ("in_frame", "out_frame")] == points
        start = frames_of(start_of(rate), rate.frames_per_s)
        points += [frames_of(row[name], rate.frames_per_s) - start for name in ("record_in", "record_out")]
        assert max(points) < day * rate.frames_per_s
        clips.append(Clip(*points))
    return clips


def read_csv(text, *counting):
    return read_table(csv.DictReader(io.StringIO(text, newline="")), *counting)


def read_json(text, *counting):
    return read_table(json.loads(text)["moments"], *counting)


READERS = {
    "otio": read_otio, "edl": read_edl, "xml": read_xml, "fcpxml": read_fcpxml, "kdenlive": read_kdenlive,
    "csv": read_csv, "json": read_json,
}  # fmt: skip
NOTES = {f"a note {first}" for first, _ in SPANS}
FILE_RATE = Fraction(1)


@pytest.mark.parametrize("has_timecode", [False, True], ids=["from 0", "from a timecode"])
@pytest.mark.parametrize("name", RATES)
@pytest.mark.parametrize("format", READERS)
def test_every_point_is_on_its_frame(format, name, has_timecode, monkeypatch):
    rate = RATES[name]
    monkeypatch.setattr(f"{__name__}.FILE_RATE", rate.frames_per_s)
    timecode, start_frame = "", 0
    if has_timecode:
        timecode = "01:00:00;00" if rate.is_drop else "01:00:00:00"
        start_frame = DROP_START.get(name, 3600 * rate.base)
    text = write(format, moments(rate.frames_per_s, timecode), name)
    assert READERS[format](text, rate.frames_per_s, rate, start_frame) == expected(SPANS, start_frame)


@pytest.mark.parametrize("name", RATES)
@pytest.mark.parametrize("format", READERS)
def test_the_rate_of_the_files_is_the_default(format, name, monkeypatch):
    rate = RATES[name]
    monkeypatch.setattr(f"{__name__}.FILE_RATE", rate.frames_per_s)
    timecode = "00:00:00;00" if rate.is_drop else "00:00:00:00"
    assert (
        READERS[format](write(format, moments(rate.frames_per_s, timecode)), rate.frames_per_s, rate, 0) == expected()
    )


@pytest.mark.parametrize("timecode", ["", "01:00:00:05"])
@pytest.mark.parametrize("format", READERS)
def test_a_file_of_10_frames_per_second_counts_at_30(format, timecode, monkeypatch):
    monkeypatch.setattr(f"{__name__}.FILE_RATE", Fraction(10))
    start_frame = 3600 * 30 + 15 if timecode else 0
    monkeypatch.setattr(f"{__name__}.SPANS", spans := SPANS[:5])
    monkeypatch.setattr(f"{__name__}.NOTES", {f"a note {first}" for first, _ in spans})
    text = write(format, moments(Fraction(10), timecode, spans=spans))
    assert READERS[format](text, Fraction(30), RATES["30"], start_frame) == expected(spans, start_frame, factor=3)


@pytest.mark.parametrize("format", READERS)
@pytest.mark.parametrize("name", ["25", "29.97", "29.97df"])
def test_a_file_of_variable_rate_counts_by_its_times(format, name, monkeypatch):
    rate = RATES[name]
    monkeypatch.setattr(f"{__name__}.FILE_RATE", rate.frames_per_s)
    timing = Timing("1873/75", True, "", 1)
    text = write(format, moments(rate.frames_per_s, timing=timing), name)
    assert READERS[format](text, rate.frames_per_s, rate, 0) == expected()


def test_a_moment_can_be_repeated_and_have_no_note():
    spans = (SPANS[1], SPANS[0], SPANS[1], SPANS[1])
    plain = [replace(moment, note="") for moment in moments(Fraction(25), "01:00:00:00", spans=spans)]
    places = [(clip.source_in, clip.source_out, clip.record_in, clip.record_out) for clip in expected(spans)]
    assert own_places(write("xml", plain)) == (places, places)
    for format, adapter in (("otio", "otio_json"), ("edl", "cmx_3600"), ("kdenlive", "kdenlive")):
        options = {"rate": 25} if format == "edl" else {}
        timeline = otio.adapters.read_from_string(write(format, plain), adapter, **options)
        start_frame = 90_000 if format != "kdenlive" else 0
        assert read_timeline(timeline, 25, 25) == expected(spans, start_frame)


def test_sound_stays_at_its_place_if_some_files_have_none():
    clips = moments(Fraction(25), spans=SPANS[:3])
    silent = replace(clips[1], video=Path("/videos/silent.mov"), timing=replace(clips[1].timing, num_audio_tracks=0))
    video, audio = own_places(write("xml", [clips[0], silent, clips[2]]))
    assert (len(video), audio) == (3, [video[0], video[2]])
    text = write("edl", [clips[0], silent, clips[2]])
    assert re.findall(r"^\d+  \S+ +(\w) ", text, flags=re.MULTILINE) == ["B", "V", "B"]
    timeline = otio.adapters.read_from_string(write("kdenlive", [clips[0], silent, clips[2]]), "kdenlive")
    assert [clip.record_in for clip in read_timeline(timeline, 25, 25, kind="Audio")] == [0, 40]


@pytest.mark.parametrize("format", ["otio", "xml", "fcpxml", "csv", "json"])
def test_files_of_another_rate_start_on_their_own_frames(format):
    spans = ((300, 600), (90_000, 90_090))
    text = write(format, moments(30 * NTSC, "01:00:00:00", spans=spans), "25")
    if format in ("csv", "json"):
        rows = json.loads(text)["moments"] if format == "json" else list(csv.DictReader(io.StringIO(text, newline="")))
        actual = [
            (int(row["in_frame"]), frames_of(row["record_in"], 25) - 90_000, frames_of(row["record_out"], 25) - 90_000)
            for row in rows
        ]
    elif format == "fcpxml":
        clips = ET.fromstring(text).find(".//spine")
        assert [clip.find("conform-rate").get("srcFrameRate") for clip in clips] == ["29.97", "29.97"]
        times = [[seconds(clip.get(name)) for name in ("start", "offset", "duration")] for clip in clips]
        actual = [
            (int(start * 30 * NTSC) - 108_000, int((at - 3600) * 25), int((at - 3600 + long) * 25))
            for start, at, long in times
        ]
    else:
        timeline = otio.adapters.read_from_string(text, {"otio": "otio_json", "xml": "fcp_xml"}[format])
        track = timeline.video_tracks()[0]
        ranges = [(clip.source_range.start_time, track.range_of_child(clip)) for clip in track]
        actual = [
            (
                whole(start.value) - 108_000,
                round(record.start_time.to_seconds() * 25),
                round(record.end_time_exclusive().to_seconds() * 25),
            )
            for start, record in ranges
        ]
    assert actual == [(300, 0, 250), (90_000, 250, 325)]


def test_the_reel_of_each_file_is_its_own():
    (moment,) = moments(Fraction(25), spans=SPANS[1:2])
    paths = ["/b/C0001.MP4", "/a/C0001.MP4", "/a/c0001_1.mp4", "/a/海.mp4", "/b/海.mp4", "/a/Black.mp4", "/b/C0001.MP4"]
    spans = [replace(moment, video=Path(path)) for path in paths]
    clips = otio.adapters.read_from_string(write("edl", spans), "cmx_3600", rate=25).video_tracks()[0]
    edl = [clip.metadata["cmx_3600"]["reel"] for clip in clips]
    assert [clip.media_reference.target_url for clip in clips] == [Path(path).as_uri() for path in paths]
    assert edl[:3] == ["C0001_3", "C0001_2", "c0001_1"]
    assert len(set(edl)) == len(set(paths))
    assert edl[0] == edl[-1]
    assert all(re.fullmatch(r"[\w.-]{1,8}", reel, re.ASCII) for reel in edl)
    xml = ET.fromstring(write("xml", spans))
    assert {reel.findtext("name") for reel in xml.iter("reel")} == set(edl)
    assert {md.get("value") for md in ET.fromstring(write("fcpxml", spans)).iter("md")} == set(edl)
    alone = otio.adapters.read_from_string(write("edl", spans[3:4]), "cmx_3600", rate=25).video_tracks()[0][0]
    assert alone.metadata["cmx_3600"]["reel"] == edl[3], "a name from the path does not depend on the other files"


@pytest.mark.parametrize("name", ["29.97", "29.97df", "59.94", "59.94df"])
def test_source_timecodes_of_an_edit_list_count_as_their_file_does(name):
    rate = RATES[name]
    starts = {"01:00:00;00": DROP_START[name.removesuffix("df") + "df"], "01:00:00:00": 3600 * rate.base}
    texts = ["01:00:00;00", "01:00:00;00", "01:00:00:00", "01:00:00;00"]
    spans = ((0, 60), (17981, 17983), (1797, 1811), (60, 120))
    clips = [moments(rate.frames_per_s, text, spans=[span])[0] for text, span in zip(texts, spans, strict=True)]
    clips = [replace(clip, video=Path(f"/v/{text[8] == ';'}.mov")) for clip, text in zip(clips, texts, strict=True)]
    text = write("edl", clips, name)
    timeline = otio.adapters.read_from_string(text, "cmx_3600", rate=float(rate.frames_per_s))
    record, places = 0, []
    for (first, end), start in zip(spans, texts, strict=True):
        places.append(Clip(starts[start] + first, starts[start] + end, record, record + end - first))
        record += end - first
    assert read_timeline(timeline, rate.frames_per_s, rate.frames_per_s) == places
    points = re.findall(r"^\d+ .* (\S+) \S+ (\S+) \S+$", text, flags=re.MULTILINE)
    assert [frames_of(source, rate.frames_per_s) for source, _ in points] == [place.source_in for place in places]
    assert [";" in source for source, _ in points] == [";" in start for start in texts]
    assert [";" in record for _, record in points] == [rate.is_drop] * 4
    forms = re.findall(r"^(?:FCM: (.*)|\d+ .*)$", text, flags=re.MULTILINE)
    drop, other = ["DROP FRAME", "", ""], ["NON-DROP FRAME", ""]
    assert forms == [*([] if rate.is_drop else other[:1]), *drop, *other, *drop[:2]]


def test_an_edit_list_refuses_files_of_other_rates():
    mixed = [replace(moments(Fraction(25))[0], video=Path("/videos/other.mov")), moments(30 * NTSC)[0]]
    for rate in (None, "25", "29.97", "30"):
        with pytest.raises(ConfigError):
            write("edl", mixed, rate)


@pytest.mark.parametrize("format", FORMATS)
def test_a_span_after_the_end_of_its_video_is_refused(format):
    late = [replace(moments(Fraction(25))[0], start_s=500.0, end_s=502.0, duration_s=16.7)]
    with pytest.raises(ConfigError):
        write(format, late)


def test_files_without_sound_have_no_audio():
    silent = moments(Fraction(25), num_audio_tracks=0)
    for format, adapter in (("otio", "otio_json"), ("xml", "fcp_xml"), ("edl", "cmx_3600"), ("kdenlive", "kdenlive")):
        options = {"rate": 25} if format == "edl" else {}
        timeline = otio.adapters.read_from_string(write(format, silent), adapter, **options)
        assert not [track for track in timeline.audio_tracks() if track.find_clips()], format
    assert ET.fromstring(write("fcpxml", silent)).find(".//asset").get("hasAudio") is None


def test_all_timelines_and_tables_are_tested():
    assert set(READERS) == {name for name, form in FORMATS.items() if form.per_video is None}


@pytest.mark.parametrize("format", ["edl", "xml", "csv"])
def test_a_start_timecode_that_does_not_exist_is_reported_once_per_file(format):
    wrong = moments(Fraction(25), "01:00:00:29")
    (warning,) = export(wrong, format, None, None).warnings
    assert "sea [1] & more.mov" in warning
    assert "01:00:00:29" in warning
    assert export(moments(Fraction(25), "01:00:00:24"), format, None, None).warnings == ()


@pytest.mark.parametrize(("format", "start"), [("srt", "00:00:02,500"), ("vtt", "00:00:02.500"), ("chapters", "2500")])
def test_times_for_players_count_from_sound_that_begins_before_the_picture(format, start):
    moment = ExportedMoment(Path("/videos/late.mp4"), 2.0, 3.0, "waves", 16.7)
    late = Timing("25", picture_start_s=0.5)
    assert start in export([moment], format, None, lambda _: late).content.decode()


def test_subtitles_do_not_need_the_video():
    def unreadable(_):
        raise FeatureError("the drive is not connected")

    moment = ExportedMoment(Path("/videos/late.mp4"), 2.0, 3.0, "waves", 16.7)
    assert "00:00:02,000" in export([moment], "srt", None, unreadable).content.decode()
