"""One reader reads all kinds of files. Good ones give frames, and bad ones are refused by name."""

import os
import socket
import time

import pytest

from tests.media import make_zoo, read_clock, write_clip
from tests.refusals import refused
from tests.unusual_media import make_unusual
from untrimmed.errors import VideoError
from untrimmed.video.reader import Sampling, SoundReader, VideoReader, cut, frame_at, is_video_path


@pytest.fixture(scope="module")
def zoo(tmp_path_factory):
    return make_zoo(tmp_path_factory.mktemp("zoo"))


def numbers(stream):
    return [read_clock(frame) for batch in stream for frame in batch.frames]


def test_the_zoo_of_odd_files_is_complete(zoo):
    assert len(zoo.good) == 20
    assert len(zoo.bad) >= 40


def check_refused(read, path):
    """Require that a file is refused in one line that names it."""
    with pytest.raises(VideoError) as caught:
        read(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert message.isprintable(), "one line"
    assert len(message) - len(str(path)) < 300


def test_one_reader_reads_every_good_file_among_the_bad_ones(zoo):
    bad = iter(zoo.bad)
    start = time.monotonic()
    with VideoReader() as reader:
        for path in zoo.good:
            stream = reader.read(path)
            seen = numbers(stream)
            assert seen[0] == 0, path.name
            assert seen == sorted(seen), path.name
            assert stream.warnings == (), path.name
            for bad_path in (next(bad), next(bad)):
                check_refused(lambda path: list(reader.read(path)), bad_path)
        child = reader.child_pid
        for bad_path in bad:
            check_refused(lambda path: list(reader.read(path)), bad_path)
        assert reader.child_pid == child, "no file of the zoo needs a new child"
    assert time.monotonic() - start < 30


def test_a_name_with_line_ends_stays_on_one_line(tmp_path):
    path = tmp_path / "a\nb.mp4"
    path.write_bytes(b"")
    with VideoReader() as reader, pytest.raises(VideoError) as caught:
        reader.read(path)
    assert str(caught.value).isprintable()
    assert "a\\nb.mp4" in str(caught.value)


def test_a_file_name_that_is_not_utf8_is_read(tmp_path):
    path = tmp_path / b"caf\xe9.mp4".decode("utf-8", "surrogateescape")
    path.write_bytes(write_clip(tmp_path / "plain.mp4").read_bytes())
    with VideoReader() as reader:
        assert numbers(reader.read(path)) == [0, 12, 25, 37]


def test_frame_at_and_cut_refuse_bad_files(zoo, tmp_path):
    for path in zoo.bad[::6]:
        check_refused(lambda path: frame_at(path, 0.0), path)
        check_refused(lambda path: cut(path, 0.0, 1.0, tmp_path / "out.mp4"), path)
        assert list(tmp_path.iterdir()) == [], "nothing is left behind"


def test_the_sound_of_every_file_is_read_or_refused(zoo):
    with SoundReader() as reader:
        for path in zoo.good:
            assert all(len(piece.samples) for piece in reader.pieces(path)), path.name
        for path in zoo.bad:
            if os.path.isdir(path):  # pictures have no sound
                assert list(reader.pieces(path)) == []
            else:
                check_refused(lambda path: list(reader.pieces(path)), path)


@pytest.mark.parametrize(("name", "cut_to"), [("mpeg2.ts", 0.6), ("b-frames.mkv", 0.6), ("mpeg4.avi", 0.6)])
def test_a_truncated_file_gives_its_frames_and_a_warning(zoo, tmp_path, name, cut_to):
    whole = next(path for path in zoo.good if path.name == name).read_bytes()
    path = tmp_path / name
    path.write_bytes(whole[: int(len(whole) * cut_to)])
    with VideoReader() as reader:
        stream = reader.read(path)
        seen = numbers(stream)
        assert 0 < len(seen) <= 3
        assert 0.2 < stream.duration_s < 1.8


def test_a_truncated_film_has_a_warning(tmp_path):
    """A half-downloaded MP4 with its index at the start plays to the end of the data."""
    whole = write_clip(
        tmp_path / "whole.mp4", [n / 5 for n in range(100)], muxer_options={"movflags": "faststart"}
    ).read_bytes()
    path = tmp_path / "half.mp4"
    path.write_bytes(whole[: len(whole) // 2])
    with VideoReader() as reader:
        stream = reader.read(path)
        seen = numbers(stream)
        assert 5 < len(seen) < 20
        assert stream.duration_s < 10
        assert any("19.8 s" in warning for warning in stream.warnings)


def test_a_missing_header_is_not_reported_as_too_little_memory(tmp_path):
    path = make_unusual(tmp_path, "mpeg4 without header.ts")
    with VideoReader() as reader, refused(VideoError, "header") as caught:
        list(reader.read(path))
    assert "memory" not in str(caught.value)


def test_only_video_suffixes_count_as_videos():
    assert is_video_path("a/b/FILM.MP4")
    assert is_video_path("clip.webm")
    assert not is_video_path("list.m3u8")
    assert not is_video_path("sound.mp3")
    assert not is_video_path("mp4")


@pytest.mark.parametrize("name", ["playlist.m3u8", "playlist.mp4"])
def test_a_playlist_is_not_followed_to_the_network(tmp_path, name):
    with socket.create_server(("127.0.0.1", 0)) as server, VideoReader() as reader:
        address = f"http://127.0.0.1:{server.getsockname()[1]}/a.ts"
        lines = ["#EXTM3U", "#EXT-X-TARGETDURATION:2", "#EXTINF:2,", address, "#EXT-X-ENDLIST"]
        (tmp_path / name).write_text("\n".join(lines))
        check_refused(lambda path: list(reader.read(path)), tmp_path / name)
        server.settimeout(0.1)
        with pytest.raises(TimeoutError):
            server.accept()


def test_frames_after_a_recovery_point_that_is_listed_as_a_key_frame_are_complete(tmp_path):
    """A stream with intra refresh has one key frame. Skipping the packets before another one gave torn frames."""
    path = make_unusual(tmp_path, "refreshed.mp4")
    with VideoReader(sampling=Sampling(fps=0.6)) as reader:
        assert numbers(reader.read(path)) == [0, 41, 83, 125, 166]
    assert read_clock(frame_at(path, 6.6)) == 165
