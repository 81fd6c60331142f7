"""Sound is decoded to 16 kHz mono with times from the first frame, and damaged or hostile sound is one error."""

import os
import struct
import subprocess
import sys
from fractions import Fraction

import av
import numpy as np
import pytest

from tests.media import clock_frame, write_clip
from untrimmed.errors import VideoError
from untrimmed.video.messages import SOUND_HZ
from untrimmed.video.reader import Limits, SoundReader


@pytest.fixture(scope="module")
def reader():
    with SoundReader() as reader:
        yield reader


def write_film(path, sounds, *, rate=44100, codec="pcm_s16le", layout="stereo", picture_starts_s=0.0, seconds=4):
    """A film with sound at given times: (start in seconds, samples in [-1, 1])."""
    with av.open(str(path), "w") as out:
        pictures = out.add_stream("mpeg4", rate=10)
        pictures.width, pictures.height, pictures.pix_fmt = 160, 96, "yuv420p"
        track = out.add_stream(codec, rate=rate, layout=layout)
        for number in range(10 * seconds):
            frame = av.VideoFrame.from_ndarray(clock_frame(number), format="rgb24")
            frame.pts, frame.time_base = number + round(10 * picture_starts_s), Fraction(1, 10)
            out.mux(pictures.encode(frame))
        out.mux(pictures.encode(None))
        for start_s, samples in sounds:
            step = track.codec_context.frame_size or 1024
            for first in range(0, len(samples), step):
                values = (np.asarray(samples[first : first + step]) * 32767).astype(np.int16)
                packed = np.repeat(values, track.layout.nb_channels)[None]
                frame = av.AudioFrame.from_ndarray(packed, format="s16", layout=layout)
                frame.sample_rate, frame.time_base = rate, Fraction(1, rate)
                frame.pts = round(start_s * rate) + first
                out.mux(track.encode(frame))
        out.mux(track.encode(None))
    return path


def tone(seconds, rate=44100, hertz=440):
    return 0.5 * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)


def loud_spans_s(pieces):
    """The spans in which the sound is loud, to 20 ms."""
    marks = []
    for piece in pieces:
        for first in range(0, len(piece.samples) - 319, 320):
            if np.abs(piece.samples[first : first + 320]).max() > 0.1:
                marks.append(round(piece.start_s + first / SOUND_HZ, 2))
    spans = []
    for mark in marks:
        if spans and mark - spans[-1][1] < 0.05:
            spans[-1][1] = mark
        else:
            spans.append([mark, mark])
    return [(start_s, end_s + 0.02) for start_s, end_s in spans]


@pytest.mark.parametrize("name", ["film.mkv", "film.mov", "film.avi"])
def test_sound_is_at_its_time(reader, tmp_path, name):
    silence = np.zeros(44100)
    path = write_film(tmp_path / name, [(0, np.concatenate([silence, tone(1), silence, tone(0.5)]))])
    pieces = list(reader.pieces(path))
    assert sum(len(piece.samples) for piece in pieces) == pytest.approx(3.5 * SOUND_HZ, abs=200)
    (first, second) = loud_spans_s(pieces)
    assert first == pytest.approx((1, 2), abs=0.03)
    assert second == pytest.approx((3, 3.5), abs=0.03)
    spectrum = np.abs(np.fft.rfft(np.concatenate([piece.samples for piece in pieces])[SOUND_HZ : 2 * SOUND_HZ]))
    assert spectrum.argmax() == 440


def test_times_count_from_the_first_frame_and_gaps_are_kept(reader, tmp_path):
    path = write_film(tmp_path / "film.mkv", [(0, tone(1)), (3.5, tone(1))], picture_starts_s=0.5)
    pieces = list(reader.pieces(path))
    assert [piece.start_s for piece in pieces] == pytest.approx([-0.02, 3.0], abs=0.03)
    assert [piece.end_s for piece in pieces] == pytest.approx([0.5, 4.0], abs=0.03)


def test_pieces_are_short_and_a_video_without_sound_has_none(reader, tmp_path):
    path = write_film(tmp_path / "long.mkv", [(0, tone(35, 8000))], rate=8000, layout="mono", seconds=1)
    pieces = list(reader.pieces(path))
    assert len(pieces) >= 3
    assert max(len(piece.samples) for piece in pieces) < 11 * SOUND_HZ
    assert pieces[-1].end_s == pytest.approx(35, abs=0.03)
    assert list(reader.pieces(write_clip(tmp_path / "silent.mp4"))) == []


def test_an_unfinished_iteration_does_not_disturb_the_next_file(reader, tmp_path):
    path = write_film(tmp_path / "long.mkv", [(0, tone(35, 8000))], rate=8000, layout="mono", seconds=1)
    assert next(iter(reader.pieces(path))).start_s == 0
    assert list(reader.pieces(write_clip(tmp_path / "silent.mp4"))) == []


def test_damage_is_a_warning_and_what_is_whole_is_read(reader, tmp_path):
    path = write_film(tmp_path / "film.mkv", [(0, tone(4, 48000))], rate=48000, codec="aac")
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 2 // 3])
    pieces = list(reader.pieces(path))
    assert 0 < sum(len(piece.samples) for piece in pieces) < 4 * SOUND_HZ


def test_sound_after_the_limit_is_left_out_with_a_warning(tmp_path):
    path = write_film(tmp_path / "film.mkv", [(0, tone(3))])
    warnings = []
    with SoundReader(limits=Limits(max_duration_s=2)) as reader:
        pieces = list(reader.pieces(path, on_warning=warnings.append))
    assert pieces[-1].end_s == pytest.approx(2, abs=0.1)
    assert len(warnings) == 1


def test_a_clock_that_jumps_by_years_does_not_move_the_sound(reader, tmp_path):
    path = write_film(tmp_path / "film.nut", [(0, tone(1)), (1e8, tone(1))])
    assert list(reader.pieces(path))[-1].end_s == pytest.approx(2, abs=0.1)


@pytest.mark.parametrize("rate", [1, 2_000_000_000])
def test_an_impossible_rate_is_one_error(tmp_path, rate):
    """The rate is changed in the header of a film, where it stands as two numbers in the description of the sound."""
    path = write_film(tmp_path / "film.avi", [(0, tone(1, 8000))], rate=8000, layout="mono")
    data = path.read_bytes()
    header = struct.pack("<HHII", 1, 1, 8000, 16000)
    assert data.count(header) == 1
    path.write_bytes(data.replace(header, struct.pack("<HHII", 1, 1, rate, 2 * rate & 0xFFFFFFFF)))
    with SoundReader() as reader, pytest.raises(VideoError) as caught:
        list(reader.pieces(path))
    assert "\n" not in str(caught.value)


def test_the_sound_of_a_long_film_needs_little_memory(tmp_path):
    """An hour of silence, which is a small file; samples of the whole film would be 230 MB."""
    path = write_film(
        tmp_path / "long.mkv",
        [(0, np.zeros(3600 * 8000, np.float32))],
        rate=8000,
        codec="flac",
        layout="mono",
        seconds=1,
    )
    program = (
        "import sys, resource\nfrom pathlib import Path\nfrom untrimmed.video.reader import SoundReader\n"
        "start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "with SoundReader() as reader:\n"
        "    total = sum(len(piece.samples) for piece in reader.pieces(Path(sys.argv[1])))\n"
        "print(total, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start)\n"
    )
    out = subprocess.run([sys.executable, "-c", program, path], capture_output=True, check=True, env=os.environ).stdout
    total, kilobytes = map(int, out.split())
    assert total == pytest.approx(3600 * SOUND_HZ, rel=1e-3)
    assert kilobytes < 100_000


def test_a_huge_declared_duration_changes_nothing(reader, tmp_path):
    path = write_film(tmp_path / "film.mov", [(0, tone(1))])
    data = bytearray(path.read_bytes())
    for box, offset in ((b"mvhd", 20), (b"mdhd", 20), (b"tkhd", 24)):
        place = data.index(box)
        while place >= 0:
            data[place + offset : place + offset + 4] = b"\x7f\xff\xff\xff"
            place = data.find(box, place + 1)
    path.write_bytes(bytes(data))
    assert list(reader.pieces(path))[-1].end_s == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
@pytest.mark.parametrize(("name", "codec"), [("film.mkv", "flac"), ("film.avi", "mp3"), ("film.mov", "pcm_s16le")])
def test_random_damage_is_sound_or_one_error(reader, tmp_path, name, codec, share):
    path = write_film(tmp_path / name, [(0, tone(2, 48000))], rate=48000, codec=codec, layout="mono", seconds=2)
    data = np.frombuffer(path.read_bytes(), np.uint8).copy()
    rng = np.random.default_rng(round(100 * share))
    places = rng.integers(len(data) // 20, len(data), round(share * 200))
    data[places] = rng.integers(0, 256, len(places))
    path.write_bytes(data.tobytes()[: round(len(data) * (1 - share / 10))])
    message, pieces = "", []
    try:
        pieces = list(reader.pieces(path))
    except VideoError as error:
        message = str(error)
    assert message.isprintable()
    assert sum(len(piece.samples) for piece in pieces) < 60 * SOUND_HZ
