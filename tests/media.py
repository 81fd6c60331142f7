"""Makes video files for tests: clips whose frames carry their own number, and a zoo of good and bad media.

The number of a frame is drawn as ten big blocks (white is 1) above the same ten inverted, so it survives lossy coding
and scaling, and a rotated, mirrored or torn frame is detected.
"""

import contextlib
import itertools
import os
import random
import shutil
import socket
import struct
import sys
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from av.audio.frame import AudioFrame
from av.video.frame import VideoFrame
from PIL import Image

NUM_BITS = 10
COLUMNS = 5
ROWS = 4


def clock_frame(number: int, width: int = 160, height: int = 96) -> np.ndarray:
    """An RGB picture of a number below 1024."""
    bits = [(number >> bit) & 1 for bit in range(NUM_BITS)]
    cells = np.array(bits + [1 - bit for bit in bits]).reshape(ROWS, COLUMNS)
    rows = np.arange(height) * ROWS // height
    columns = np.arange(width) * COLUMNS // width
    return np.repeat((40 + 180 * cells[rows][:, columns, None]).astype(np.uint8), 3, axis=2)


def read_clock(frame: np.ndarray) -> int:
    """The number in a picture. AssertionError if the picture is not a complete, upright clock."""
    height, width = frame.shape[:2]
    cells = np.empty((ROWS, COLUMNS), dtype=bool)
    for row in range(ROWS):
        for column in range(COLUMNS):
            top, left = (row + 0.25) * height / ROWS, (column + 0.25) * width / COLUMNS
            bottom, right = (row + 0.75) * height / ROWS, (column + 0.75) * width / COLUMNS
            cells[row, column] = frame[round(top) : round(bottom), round(left) : round(right)].mean() > 130
    flat = cells.ravel()
    assert (flat[:NUM_BITS] != flat[NUM_BITS:]).all(), "the picture is not a whole, upright clock"
    return int(sum(1 << bit for bit in range(NUM_BITS) if flat[bit]))


def write_pictures(
    folder: Path, pictures: Iterable[np.ndarray], numbers: Iterable[int] | None = None, *, name: str = "{:05d}.png"
) -> Path:
    """A new folder of numbered pictures; by default they are numbered from 1, like the frames of TVR."""
    folder.mkdir(parents=True)
    for number, picture in zip(itertools.count(1) if numbers is None else numbers, pictures, strict=False):
        Image.fromarray(picture).save(folder / name.format(number))
    return folder


def constant_stamps(num_frames: int, fps: float = 25.0, start_s: float = 0.0) -> list[float]:
    return [start_s + index / fps for index in range(num_frames)]


def varying_stamps(num_frames: int, start_s: float = 0.0, seed: int = 0) -> list[float]:
    """Times with steps from 10 ms to 1.3 s, in whole milliseconds."""
    steps = random.Random(seed).choices([0.010, 0.040, 0.041, 0.120, 0.333, 1.300], k=num_frames - 1)
    stamps = [start_s]
    for step in steps:
        stamps.append(round(stamps[-1] + step, 3))
    return stamps


def write_clip(
    path: Path,
    stamps: Sequence[float] | None = None,
    *,
    codec: str = "libx264",
    container: str | None = None,
    size: tuple[int, int] = (160, 96),
    pix_fmt: str = "yuv420p",
    options: dict[str, str] | None = None,
    muxer_options: dict[str, str] | None = None,
    rotation: int = 0,
    pixel_aspect: Fraction | None = None,
    has_sound: bool = False,
    sound_s: float | None = None,
    rate: int = 25,
    ticks: int = 1000,
) -> Path:
    """Write a clip whose frame n shows the number n at `stamps[n]` seconds; by default 2 s at 25 fps."""
    stamps = constant_stamps(50) if stamps is None else stamps
    width, height = size
    with av.open(str(path), "w", format=container, options=muxer_options or {}) as out:
        track = out.add_stream(codec, rate=rate, options=options or {})
        track.width, track.height, track.pix_fmt = width, height, pix_fmt
        if codec not in ("gif", "mpeg2video", "mpeg4"):  # these count in frames
            track.codec_context.time_base = Fraction(1, ticks)
        if pixel_aspect is not None:
            track.codec_context.sample_aspect_ratio = pixel_aspect
        sound = out.add_stream("aac", rate=16000, layout="mono") if has_sound else None
        for number, stamp in enumerate(stamps):
            picture = clock_frame(number, width, height)
            if rotation:  # a rotated camera: the display matrix turns the stored picture upright
                picture = np.ascontiguousarray(np.rot90(clock_frame(number, height, width), -rotation // 90))
            frame = VideoFrame.from_ndarray(picture).reformat(format=pix_fmt)
            frame.time_base = track.codec_context.time_base or Fraction(1, rate)
            frame.pts = round(stamp / frame.time_base)
            out.mux(track.encode(frame))
        out.mux(track.encode(None))
        if sound is not None:
            _write_tone(out, sound, stamps[-1] - stamps[0] if sound_s is None else sound_s)
    if codec == "libsvtav1" and sys.platform == "linux":
        # As root, SVT-AV1 gives this thread real-time priority. Later child processes would starve all others.
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    if rotation:
        _set_display_matrix(path, rotation)
    return path


def _set_display_matrix(path: Path, degrees: int) -> None:
    """Set a counter-clockwise rotation in the track header of an MP4 or MOV file."""
    data = bytearray(path.read_bytes())
    start = data.index(b"tkhd") + 4 + 40  # after version, times, track, length, layer and volume
    cos, sin = {90: (0, 1), 180: (-1, 0), 270: (0, -1)}[degrees]
    one = 1 << 16
    data[start : start + 36] = struct.pack(">9i", cos * one, -sin * one, 0, sin * one, cos * one, 0, 0, 0, 1 << 30)
    path.write_bytes(data)


def _write_tone(out, track, duration_s: float) -> None:
    rate = track.rate
    samples = np.sin(2 * np.pi * 440 * np.arange(int(duration_s * rate)) / rate).astype(np.float32)[None] * 0.5
    frame = AudioFrame.from_ndarray(samples, format="fltp", layout="mono")
    frame.sample_rate, frame.time_base, frame.pts = rate, Fraction(1, rate), 0
    out.mux(track.encode(frame))
    out.mux(track.encode(None))


def write_sound(path: Path, codec: str, container: str | None = None, *, has_cover: bool = False) -> Path:
    """Write half a second of a tone, optionally with a cover picture."""
    with av.open(str(path), "w", format=container) as out:
        track = out.add_stream(codec, rate=48000, layout="mono")
        cover = None
        if has_cover:
            cover = out.add_stream("png", rate=1)
            cover.width, cover.height, cover.pix_fmt = 64, 64, "rgb24"
            cover.disposition = 1 << 10  # AV_DISPOSITION_ATTACHED_PIC
        name = track.codec_context.format.name if track.codec_context.format else "s16"
        samples = (np.sin(np.arange(24000) * 0.05) * 9000).astype(np.int16)[None]
        frame = AudioFrame.from_ndarray(samples, format="s16p", layout="mono")
        frame.sample_rate, frame.pts, frame.time_base = 48000, 0, Fraction(1, 48000)
        resampler = av.AudioResampler(format=name, layout="mono", rate=48000)
        if cover is not None:
            picture = VideoFrame.from_ndarray(clock_frame(1, 64, 64))
            out.mux(cover.encode(picture))
            out.mux(cover.encode(None))
        for part in resampler.resample(frame):
            out.mux(track.encode(part))
        out.mux(track.encode(None))
    return path


@dataclass(frozen=True)
class Zoo:
    """Usable and unusable media files of every kind."""

    good: list[Path]
    bad: list[Path]


def make_zoo(folder: Path) -> Zoo:
    """20 files with a video, some unusual, and more than 40 that cannot be used."""
    folder.mkdir(parents=True, exist_ok=True)
    good = _make_good(folder)
    makers = (_make_cut_off, _make_not_media, _make_pointers, _make_not_files, _make_sound_only, _make_damaged)
    bad = [path for make in makers for path in make(folder)]
    return Zoo(good, bad)


def _make_good(folder: Path) -> list[Path]:
    def clip(name: str, *args, **kwargs) -> Path:
        return write_clip(folder / name, *args, **kwargs)

    shut = constant_stamps(30)
    files = [
        clip("plain.mp4", has_sound=True),
        clip("b-frames.mkv", options={"bf": "3", "g": "20"}),
        clip("vp9.webm", shut, codec="libvpx-vp9", options={"deadline": "realtime", "cpu-used": "8"}),
        clip("vp8 turned clock.webm", varying_stamps(30), codec="libvpx", options={"deadline": "realtime"}),
        clip("mpeg4.avi", codec="mpeg4", options={"bf": "2"}),
        clip("mpeg2.ts", codec="mpeg2video", options={"bf": "2"}),
        clip("ten bits.mp4", shut, codec="libx265", pix_fmt="yuv420p10le", options={"x265-params": "log-level=none"}),
        clip("av1.mp4", shut, codec="libsvtav1", options={"preset": "12"}),
        clip("turned.mov", rotation=90),
        clip("variable rate.mp4", varying_stamps(40), options={"bf": "2"}),
        clip("late start.mkv", constant_stamps(40, start_s=95.5)),
        clip("motion jpeg.mov", codec="mjpeg", pix_fmt="yuvj422p"),
        clip("prores ten bits 視頻.mov", shut, codec="prores_ks", pix_fmt="yuv422p10le"),
        clip("grey.mkv", shut, codec="ffv1", pix_fmt="gray"),
        clip("alpha.mov", shut, codec="qtrle", pix_fmt="argb"),
        clip("odd size.mp4", size=(161, 97), pix_fmt="yuv444p"),
        clip("one frame.mp4", [0.0]),
        clip("wide pixels.mp4", pixel_aspect=Fraction(2, 1)),
        clip("line\nend 'and' \"quotes\" ünï$(x);.mp4"),
        clip("really matroska.mp4", container="matroska"),
    ]
    assert len(files) == 20
    return files


def _make_cut_off(folder: Path) -> list[Path]:
    whole = {suffix: (folder / name).read_bytes() for suffix, name in _WHOLE.items()}
    pieces = {
        "empty.mp4": b"",
        "empty.mkv": b"",
        "one byte.mp4": whole["mp4"][:1],
        "half.mp4": whole["mp4"][: len(whole["mp4"]) // 2],
        "first 40 bytes.mp4": whole["mp4"][:40],
        "first 100 bytes.mkv": whole["mkv"][:100],
        "first 100 bytes.avi": whole["avi"][:100],
        "first 60 bytes.webm": whole["webm"][:60],
        "first 200 bytes.ts": whole["ts"][:200],
        "beginning lost.mkv": whole["mkv"][2000:],
    }
    return _write_all(folder, pieces)


_WHOLE = {"mp4": "plain.mp4", "mkv": "b-frames.mkv", "avi": "mpeg4.avi", "webm": "vp9.webm", "ts": "mpeg2.ts"}


def _make_not_media(folder: Path) -> list[Path]:
    noise = random.Random(1).randbytes(20_000)
    png = b"\x89PNG\r\n\x1a\n" + _png_chunk(b"IHDR", struct.pack(">IIBBBBB", 60000, 60000, 8, 2, 0, 0, 0))
    png += _png_chunk(b"IDAT", zlib.compress(bytes(180_000))) + _png_chunk(b"IEND", b"")
    elf = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HH", 2, 62) + bytes(600)
    files = {
        "text.mp4": b"This is not a video.\n" * 40,
        "page.mkv": b"<!doctype html><title>404</title><p>Not found</p>" * 9,
        "data.avi": b'{"error": "quota exceeded", "code": 429}\n' * 9,
        "table.mov": b"a,b,c\n1,2,3\n" * 99,
        "wide text.mp4": ("kein Film\n" * 50).encode("utf-16"),
        "zeros.mp4": bytes(4096),
        "noise.mp4": noise,
        "noise.mkv": noise[::-1],
        "archive.mp4": b"PK\x03\x04" + noise[:4000],
        "packed.webm": b"\x1f\x8b\x08\x00" + noise[:4000],
        "document.mp4": b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj<<>>endobj\n" * 20,
        "program.mp4": elf,
        "database.mp4": b"SQLite format 3\x00" + bytes(1000),
        "picture of 60000 pixels.mp4": png,
        "drawing.mp4": b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"></svg>',
        "subtitles.mp4": b"1\n00:00:00,000 --> 00:00:02,000\nHello\n\n" * 9,
    }
    return _write_all(folder, files)


def _png_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _make_pointers(folder: Path) -> list[Path]:
    """Files that refer to other files or the network. The decoder must not open these."""
    target = str(folder / "plain.mp4")
    hls = f"#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXTINF:2,\n{target}\n#EXT-X-ENDLIST\n"
    far = "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXTINF:2,\nhttp://127.0.0.1:9/a.ts\n#EXT-X-ENDLIST\n"
    dash = (
        '<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static">'
        f"<Period><AdaptationSet><Representation id='1' bandwidth='1'><BaseURL>{target}</BaseURL></Representation>"
        "</AdaptationSet></Period></MPD>"
    )
    sdp = "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nt=0 0\nm=video 5004 RTP/AVP 96\na=rtpmap:96 H264/90000\n"
    files = {
        "playlist.m3u8": hls.encode(),
        "playlist.mp4": hls.encode(),
        "far playlist.mp4": far.encode(),
        "joined.mp4": f"ffconcat version 1.0\nfile '{target}'\n".encode(),
        "manifest.mpd": dash.encode(),
        "session.sdp": sdp.encode(),
        "session.mp4": sdp.encode(),
        "list.mp4": f"[playlist]\nFile1={target}\nNumberOfEntries=1\n".encode(),
        "link.mov": b"rtsptextrtsp://127.0.0.1:9/a\r\n",
    }
    return _write_all(folder, files)


def _make_not_files(folder: Path) -> list[Path]:
    (folder / "folder.mp4").mkdir()
    os.mkfifo(folder / "pipe.mp4")
    (folder / "device.mp4").symlink_to("/dev/zero")
    (folder / "loop.mp4").symlink_to("loop.mp4")
    (folder / "dangling.mp4").symlink_to("nowhere.mp4")
    (folder / "linked pipe.mp4").symlink_to("pipe.mp4")
    files = [
        folder / "folder.mp4",
        folder / "pipe.mp4",
        folder / "linked pipe.mp4",
        folder / "device.mp4",
        folder / "loop.mp4",
        folder / "dangling.mp4",
        folder / "missing.mp4",
        folder / "plain.mp4" / "inside.mp4",
        folder / ("n" * 300 + ".mp4"),
    ]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as server:  # its path may be too long
        server.bind(str(folder / "s.mp4"))
        files.append(folder / "s.mp4")
    if os.geteuid() != 0:
        shutil.copy(folder / "plain.mp4", folder / "locked.mp4")
        (folder / "locked.mp4").chmod(0)
        files.append(folder / "locked.mp4")
    return files


def _make_sound_only(folder: Path) -> list[Path]:
    """Files with sound and no picture."""
    return [
        write_sound(folder / "sound.wav", "pcm_s16le"),
        write_sound(folder / "sound.mp3", "libmp3lame"),
        write_sound(folder / "cover.mp3", "libmp3lame", has_cover=True),
        write_sound(folder / "sound.flac", "flac"),
        write_sound(folder / "sound.m4a", "aac", "ipod"),
        write_sound(folder / "sound only.mp4", "aac"),
        write_sound(folder / "sound only.mkv", "aac"),
        write_sound(folder / "sound.ogg", "libopus"),
    ]


def _make_damaged(folder: Path) -> list[Path]:
    """Files with a valid beginning and damaged content."""
    whole = (folder / "plain.mp4").read_bytes()
    start = whole.index(b"mdat") + 4
    end = whole.index(b"moov") - 4
    hollow = whole[:start] + bytes(end - start) + whole[end:]
    unknown = whole.replace(b"avc1", b"zz!1", 2)
    lossless = (folder / "grey.mkv").read_bytes()
    header = lossless.index(b"\x1fC\xb6u")  # the first cluster of a Matroska file
    files = {
        "hollow.mp4": hollow,
        "index only.mp4": whole[: whole.index(b"mdat") - 4] + whole[end:],
        "unknown codec.mp4": unknown,
        "no clusters.mkv": lossless[:header],
        "giant.avi": _avi_header(16_000, 16_000),
        "giant.y4m": b"YUV4MPEG2 W100000 H100000 F25:1 C420\nFRAME\n" + bytes(4000),
    }
    return _write_all(folder, files)


def _avi_header(width: int, height: int) -> bytes:
    """The start of a Motion JPEG AVI file that declares a picture size and has one broken frame."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return kind + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)

    main = struct.pack("<14I", 40000, 0, 0, 16, 1, 0, 1, 0, width, height, 0, 0, 0, 0)
    stream = b"vidsMJPG" + struct.pack("<IHHIIIIIIIIHHHH", 0, 0, 0, 0, 1, 25, 0, 1, 0, 0, 0, 0, 0, 0, 0)
    picture = struct.pack("<IIIHH4sIIIII", 40, width, height, 1, 24, b"MJPG", 0, 0, 0, 0, 0)
    track = chunk(b"LIST", b"strl" + chunk(b"strh", stream) + chunk(b"strf", picture))
    head = chunk(b"LIST", b"hdrl" + chunk(b"avih", main) + track)
    return chunk(b"RIFF", b"AVI " + head + chunk(b"LIST", b"movi" + chunk(b"00dc", bytes(200))))


def _write_all(folder: Path, files: dict[str, bytes]) -> list[Path]:
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return [folder / name for name in files]
