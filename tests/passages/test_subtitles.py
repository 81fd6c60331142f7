"""Subtitles inside videos and beside them become passages; hostile files do no harm."""

import os
import re
import struct
import subprocess
import sys
from fractions import Fraction

import pytest

from tests.refusals import require_named
from tests.toy import write_clip
from untrimmed.passages.source import Media, ReadingReport, create_source
from untrimmed.passages.subtitles import language_in, videos_of

CUES = [(500, 1500, "Hello there, you"), (2250, 3000, "Second\nline")]
TEXTS = [(0.5, 1.5, "Hello there, you"), (2.25, 3.0, "Second line")]
ASS_HEADER = (
    b"[Script Info]\nScriptType: v4.00+\n\n[V4+ Styles]\nFormat: Name, Fontname\nStyle: Default,Arial\n\n[Events]\n"
    b"Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text\n"
)


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    return write_clip(tmp_path_factory.mktemp("clip") / "clip.mp4", ["red", "blue"])


def mux(clip, out, tracks, *, offset_s=0):
    """Write the clip with subtitle streams: codec, language, and cues in milliseconds from the first frame."""
    import av

    def packet(stream, codec, start_ms, end_ms, text):
        data = text.encode() if isinstance(text, str) else text
        if codec == "mov_text":
            data = struct.pack(">H", len(data)) + data
        if codec == "ass":
            data = b"0,0,Default,,0,0,0,," + data.replace(b"\n", rb"\N")
        packet = av.Packet(data)
        packet.stream, packet.time_base = stream, Fraction(1, 1000)
        packet.pts = packet.dts = start_ms + 1000 * offset_s
        packet.duration = end_ms - start_ms
        return packet

    with av.open(str(clip)) as source, av.open(str(out), "w") as target:
        pictures = source.streams.video[0]
        video = target.add_stream_from_template(pictures)
        packets = []
        for picture in source.demux(pictures):
            if picture.size:
                picture.stream = video
                picture.pts += round(offset_s / picture.time_base)
                picture.dts += round(offset_s / picture.time_base)
                packets.append(picture)
        for codec, language, cues in tracks:
            stream = target.add_stream("ass") if codec == "ass" else target.add_mux_stream(codec)
            if codec == "ass":
                stream.codec_context.extradata = ASS_HEADER
            if language:
                stream.metadata["language"] = language
            packets += [packet(stream, codec, *cue) for cue in cues]
        for each in sorted(packets, key=lambda packet: float(packet.dts * packet.time_base)):
            target.mux(each)
    return out


def read(path, duration_s=4.0):
    report = ReadingReport()
    with create_source("subtitle") as source:
        return list(source.read(Media(path, duration_s), report)), report.warnings


def spans(passages):
    return [(passage.start_s, passage.end_s, passage.text) for passage in passages]


@pytest.mark.parametrize(
    ("name", "codec"), [("a.mkv", "subrip"), ("a.mp4", "mov_text"), ("b.mkv", "webvtt"), ("c.mkv", "ass")]
)
def test_text_streams_are_read(clip, tmp_path, name, codec):
    passages, warnings = read(mux(clip, tmp_path / name, [(codec, "eng", CUES)]))
    assert spans(passages) == TEXTS
    assert {(passage.source, passage.language) for passage in passages} == {("subtitle", "en")}
    assert warnings == []


def test_times_are_seconds_from_the_first_frame(clip, tmp_path):
    passages, _ = read(mux(clip, tmp_path / "late.mkv", [("subrip", "", CUES)], offset_s=3))
    assert spans(passages) == TEXTS


def test_cues_without_an_end_are_counted_in_a_warning(clip, tmp_path):
    cues = [(500, 500, "Hello"), (1000, 1000, "there, " * 5), (1250, 3000, "you")]
    film = mux(clip, tmp_path / "film.mkv", [("ass", "eng", cues)])
    times = [(0.5, 1.0), (1.0, 1.25), (1.25, 3.0)]
    passages, (warning,) = read(film)
    assert [(passage.start_s, passage.end_s) for passage in passages] == times
    assert warning.startswith("2 cues")
    film.write_bytes(clip.read_bytes())
    text = "1\n00:00:00,500 --> 00:00:00,000\nHello\n\n2\n00:00:01,000 --> 00:00:02,000\nthere\n"
    (tmp_path / "film.srt").write_text(text)
    passages, (warning,) = read(film)
    assert [(passage.start_s, passage.end_s) for passage in passages] == [(0.5, 1.0), (1.0, 2.0)]
    assert warning.startswith(f"{tmp_path / 'film.srt'}: 1 cue ")


def test_several_streams_are_separate_tracks_and_bitmaps_are_named(clip, tmp_path):
    tracks = [("subrip", "eng", CUES), ("subrip", "ger", [(400, 900, "Hallo")])]
    tracks.append(("dvd_subtitle", "fre", [(0, 9, b"x" * 9)]))
    passages, warnings = read(mux(clip, tmp_path / "many.mkv", tracks))
    assert [(p.language, p.text) for p in passages] == [("en", TEXTS[0][2]), ("en", TEXTS[1][2]), ("de", "Hallo")]
    assert len({passage.track for passage in passages}) == 2
    assert len(warnings) == 1
    assert "fre" in warnings[0]


def test_text_streams_beyond_the_limit_have_another_reason_than_bitmaps(clip, tmp_path):
    tracks = [*[("subrip", "eng", CUES)] * 33, ("dvd_subtitle", "fre", [(0, 9, b"x" * 9)])]
    passages, (excess, bitmap) = read(mux(clip, tmp_path / "many.mkv", tracks))
    assert len({passage.track for passage in passages}) == 32
    assert "stream 33 (eng)" in excess
    assert "only 32" in excess
    assert "(fre)" in bitmap
    assert "not text" in bitmap


def test_files_beside_the_video_are_found_by_name(clip, tmp_path):
    for name in ("film.mp4", "film.2.mp4", "filmed.mp4"):
        (tmp_path / name).write_bytes(clip.read_bytes())
    srt = "1\n00:00:01,000 --> 00:00:02,000\n{}\n"
    files = ["film.srt", "film.en.srt", "film.pt-BR.forced.vtt", "film.German.ass", "film.2.srt", "other.srt"]
    files += ["film.mp4.srt", "film.txt", "filmed.SRT"]
    for name in files:
        (tmp_path / name).write_text(srt.format(f"text of {name}"))
    passages, _ = read(tmp_path / "film.mp4")
    assert {(passage.track, passage.language) for passage in passages} == {
        ("film.srt", ""), ("film.en.srt", "en"), ("film.pt-BR.forced.vtt", "pt-BR"), ("film.mp4.srt", "")
    }  # fmt: skip
    assert {passage.track for passage in read(tmp_path / "film.2.mp4")[0]} == {"film.2.srt"}
    assert {passage.track for passage in read(tmp_path / "filmed.mp4")[0]} == {"filmed.SRT"}


def test_files_in_a_folder_of_subtitles_and_with_another_case_are_found(clip, tmp_path):
    for name in ("Film.mp4", "talk.mov"):
        (tmp_path / name).write_bytes(clip.read_bytes())
    (tmp_path / "Subs").mkdir()
    files = {"film.EN.Srt": "Film.mp4", "Subs/Film.de.srt": "Film.mp4", "talk.mov.srt": "talk.mov"}
    for number, name in enumerate(files):
        (tmp_path / name).write_text(f"1\n00:00:01,000 --> 00:00:02,000\nfile {number}\n")
    (tmp_path / "Film.ttml").write_text("<tt/>")
    passages, warnings = read(tmp_path / "Film.mp4")
    assert {(p.text, p.track, p.language) for p in passages} == {
        ("file 0", "film.EN.Srt", "en"), ("file 1", "Subs/Film.de.srt", "de")
    }  # fmt: skip
    (warning,) = warnings
    require_named(warning, "Film.ttml", ".srt")
    assert [(p.text, p.language) for p in read(tmp_path / "talk.mov")[0]] == [("file 2", "")]


def test_other_names_of_subtitle_files_are_found_and_no_other_videos_files_are_taken(clip, tmp_path):
    composed = ("caf\u00e9.mp4", "cafe\u0301.en.srt"), ("nai\u0308f.mp4", "Subs/na\u00eff.srt")
    for name in ("film.mp4", "film-fr.mp4", "film.3.mp4", *(video for video, _ in composed)):
        (tmp_path / name).write_bytes(clip.read_bytes())
    (tmp_path / "Subs" / "film").mkdir(parents=True)
    languages = {"film_en.srt": "en", "film-pt-BR.sdh.vtt": "pt-BR", "film.2.de.srt": "de", "film.hi.srt": "hi"}
    languages |= {"film.en.hi.srt": "en", "Subs/film/2_English.srt": "en", "Subs/film/film.es.srt": "es"}
    others = ["film-fr.srt", "film.3.en.srt", "film2.srt", "film-part.srt", "film.2.srt", "Subs/film/readme.txt"]
    for name in (*languages, *others, *(file for _, file in composed)):
        (tmp_path / name).write_text(f"1\n00:00:01,000 --> 00:00:02,000\n{name}\n")
    passages, _ = read(tmp_path / "film.mp4")
    assert {passage.track: passage.language for passage in passages} == languages
    for video, file in (("film-fr.mp4", "film-fr.srt"), ("film.3.mp4", "film.3.en.srt"), *composed):
        assert {passage.track for passage in read(tmp_path / video)[0]} == {file}
    assert videos_of(tmp_path / name for name in (*languages, "Subs/film")) == {tmp_path / "film.mp4"}
    assert len(videos_of([tmp_path / "Subs"])) == 5


def test_native_names_of_languages_are_known_and_unclear_names_are_reported(clip, tmp_path):
    (tmp_path / "film.mp4").write_bytes(clip.read_bytes())
    languages = {
        "film - Deutsch.srt": "de",
        "film_Franc\u0327ais.srt": "fr",
        "film.日本語.srt": "ja",
        "film.jp.vtt": "ja",
    }
    languages |= {"film [de].srt": "de", "film(es).srt": "es", "film.Deutsch (SDH).srt": "de", "film.draft.srt": ""}
    unclear = ["film.2.srt", "film (1).srt", "film-part.srt"]
    for name in (*languages, *unclear, "film2.srt"):
        content = "1\n00:00:01,000 --> 00:00:02,000\nHello\n"
        (tmp_path / name).write_text(f"WEBVTT\n\n{content.replace(',', '.')}" if name.endswith("vtt") else content)
    passages, warnings = read(tmp_path / "film.mp4")
    assert {passage.track: passage.language for passage in passages} == languages
    assert len(warnings) == len(unclear)
    for name in unclear:
        assert any(name in warning for warning in warnings)


def test_a_folder_of_subtitles_may_belong_to_a_single_video(clip, tmp_path):
    video = tmp_path / "Film 2 (1998).mp4"
    video.write_bytes(clip.read_bytes())
    (tmp_path / "Subs").mkdir()
    languages = {"Subs/English.srt": "en", "Subs/3_German.srt": "de", "Film 2 (1998) - French.srt": "fr"}
    for name in (*languages, "Subs/other.srt"):
        (tmp_path / name).write_text(f"1\n00:00:01,000 --> 00:00:02,000\n{name}\n")
    assert {passage.track: passage.language for passage in read(video)[0]} == languages
    assert videos_of([tmp_path / "Subs/English.srt"]) == {video}
    (tmp_path / "Film.mp4").write_bytes(clip.read_bytes())
    passages, warnings = read(video)
    assert {passage.track for passage in passages} == {"Film 2 (1998) - French.srt"}
    unclear = [str(tmp_path / "Subs/3_German.srt"), str(tmp_path / "Subs/English.srt")]
    assert [warning.partition(": not read")[0] for warning in warnings] == unclear
    report = ReadingReport()
    with create_source("subtitle") as source:
        assert list(source.read(Media(tmp_path / "Film.mp4", 4.0), report)) == []
        assert len(report.warnings) == len(unclear)
        assert len(list(source.read(Media(video, 4.0), report))) == 1
    assert len(report.warnings) == len(unclear), "both videos have equal warnings"


def test_the_fingerprint_changes_with_the_files(clip, tmp_path):
    film = tmp_path / "film.mp4"
    film.write_bytes(clip.read_bytes())
    (tmp_path / "film.srt").write_text("1\n00:00:01,000 --> 00:00:02,000\na\n")
    fingerprints = []
    changes = (
        lambda: None,
        lambda: (tmp_path / "film.en.srt").write_text("x"),
        (tmp_path / "film.srt").unlink,
        lambda: (tmp_path / "film.2.srt").write_text("not read"),
    )
    for change in changes:
        change()
        fingerprints.append(create_source("subtitle").fingerprint(Media(film, 4.0)))
    assert len(set(fingerprints)) == len(changes)


@pytest.mark.parametrize(
    "content",
    [b"", b"\0" * 5000, b"no cue at all\n" * 50, b"1\n00:00:01,000 --> xx\ntext\n", b"<" * 100_000, b"WEBVTT\n\n" * 9],
)
def test_a_file_without_cues_is_one_warning(clip, tmp_path, content):
    film = tmp_path / "film.mp4"
    film.write_bytes(clip.read_bytes())
    (tmp_path / "film.en.vtt").write_bytes(content)
    (tmp_path / "film.srt").write_text("1\n00:00:01,000 --> 00:00:02,000\nother\n")
    passages, warnings = read(film)
    assert [passage.text for passage in passages] == ["other"]
    assert len(warnings) == 1
    assert "film.en.vtt" in warnings[0]
    assert not re.search("copy|record", warnings[0]), "this advice is for videos"


def test_links_pipes_and_folders_with_names_of_subtitles_do_not_block(clip, tmp_path):
    film = tmp_path / "film.mp4"
    film.write_bytes(clip.read_bytes())
    os.mkfifo(tmp_path / "film.en.srt")
    (tmp_path / "film.fr.srt").mkdir()
    (tmp_path / "film.de.srt").symlink_to(tmp_path / "missing")
    passages, warnings = read(film)
    assert (passages, len(warnings)) == ([], 2), "a link to a missing file is not read"


def test_languages_in_names():
    names = ["", ".en", ".eng.sdh", ".forced", ".German", ".zh-Hans.default", ".mov", ".MP4.fra"]
    assert [language_in(name) for name in names] == ["", "en", "en", "", "de", "zh-Hans", "", "fr"]


@pytest.mark.slow
def test_a_million_cues_need_little_memory_and_most_are_left_out(clip, tmp_path):
    (tmp_path / "films").mkdir()
    (tmp_path / "films" / "film.mp4").write_bytes(clip.read_bytes())
    with open(tmp_path / "films" / "film.srt", "w") as file:
        for i in range(1_000_000):
            start = f"00:00:{i // 300_000:02d},{i // 300 % 1000:03d}"
            file.write(f"{i}\n{start} --> 00:00:03,999\nLine <i>number</i> {i}\n\n")
    code = f"""
import resource
import untrimmed
from tests.toy import ToyEncoder
from untrimmed.encoders.registry import LoadedEncoder
from untrimmed.search import library

library.load_encoder = lambda *_, **__: LoadedEncoder(ToyEncoder(), None)
report = untrimmed.open({str(tmp_path / "library")!r}).index({str(tmp_path / "films")!r})
own = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))  # ru_maxrss includes the parent's
peaks = [int(own.split()[1]), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss]
print(report.passages["subtitle"], max(peaks) * 1024)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    count, peak = map(int, done.stdout.split())
    assert count == 1000 + 20 * 4
    assert peak < 1e9
