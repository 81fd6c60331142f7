"""Makes damaged and unusual video files, whose frames show their own numbers, for tests of cuts."""

import itertools
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import av

from tests.media import constant_stamps, varying_stamps, write_clip

_FRAMES = 200
_STAMPS = constant_stamps(_FRAMES)
_B_FRAMES = {"bf": "3", "g": "48"}
_REALTIME = {"deadline": "realtime", "cpu-used": "8", "g": "60"}
_OPEN_GROUPS = {"x264-params": "open-gop=1:bframes=3:keyint=40:min-keyint=40:scenecut=0", "bf": "3", "g": "40"}
_X265_OPEN = {"x265-params": "log-level=none:keyint=40:open-gop=1:bframes=4"}
_X265_CLOSED = {"x265-params": "log-level=none:keyint=40:open-gop=0:bframes=4"}
_FRAGMENTS = {"movflags": "frag_keyframe+empty_moov"}
_H265 = {"codec": "libx265"}
_MPEG4 = {"codec": "mpeg4"}
_MPEG2 = {"codec": "mpeg2video"}

# Name of a file to the arguments of `write_clip`.
CLIPS: dict[str, dict] = {
    "one group.mp4": {"options": {"bf": "0", "g": "999", "keyint_min": "999"}},
    "b-frames.mp4": {"options": _B_FRAMES},
    "b-frames.mov": {"options": _B_FRAMES},
    "b-frames.mkv": {"options": _B_FRAMES},
    "b-frames.flv": {"options": _B_FRAMES},
    "b-frames.ts": {"options": _B_FRAMES},
    "b-frames.nut": {"options": _B_FRAMES},
    "b-frames.m2ts": {"options": _B_FRAMES, "container": "mpegts", "muxer_options": {"mpegts_m2ts_mode": "1"}},
    "no container.h264": {"options": {"bf": "0", "g": "48"}},
    "key frames only.mp4": {"options": {"g": "1"}},
    "h264.avi": {"options": {"bf": "0", "g": "48"}},
    "open groups.mp4": {"options": _OPEN_GROUPS},
    "open groups.mkv": {"options": _OPEN_GROUPS},
    "open groups.ts": {"options": _OPEN_GROUPS},
    "refreshed.mp4": {"options": {"x264-params": "intra-refresh=1:keyint=40:bframes=0:scenecut=0"}},
    "refreshed.mkv": {"options": {"x264-params": "intra-refresh=1:keyint=40:bframes=0:scenecut=0"}},
    "interlaced.mp4": {"options": {"x264-params": "tff=1:keyint=40:bframes=2"}},
    "interlaced.ts": {"options": {"x264-params": "tff=1:keyint=40:bframes=2"}},
    "hevc.mp4": {**_H265, "options": _X265_CLOSED},
    "hevc open groups.mp4": {**_H265, "options": _X265_OPEN},
    "hevc open groups.mkv": {**_H265, "options": _X265_OPEN},
    "hevc open groups.ts": {**_H265, "options": _X265_OPEN},
    "hevc ten bits.mp4": {**_H265, "options": _X265_CLOSED, "pix_fmt": "yuv420p10le"},
    "h264 ten bits.mkv": {"options": _B_FRAMES, "pix_fmt": "yuv420p10le"},
    "h264 4-2-2 ten bits.mov": {"options": _B_FRAMES, "pix_fmt": "yuv422p10le"},
    "h264 4-4-4.mp4": {"options": _B_FRAMES, "pix_fmt": "yuv444p"},
    "vp8.webm": {"codec": "libvpx", "options": {**_REALTIME, "auto-alt-ref": "1", "lag-in-frames": "16"}},
    "vp9.webm": {"codec": "libvpx-vp9", "options": {**_REALTIME, "auto-alt-ref": "1", "lag-in-frames": "16"}},
    "vp9.mp4": {"codec": "libvpx-vp9", "options": _REALTIME},
    "av1.mp4": {"codec": "libsvtav1", "options": {"preset": "12", "g": "48"}},
    "av1.mkv": {"codec": "libsvtav1", "options": {"preset": "12", "g": "48"}},
    "mpeg4.avi": {**_MPEG4, "options": {"bf": "2", "g": "30"}},
    "mpeg4.mp4": {**_MPEG4, "options": {"bf": "2", "g": "30"}},
    "mpeg4.ts": {**_MPEG4, "options": {"bf": "2", "g": "30"}},
    "mpeg2.ts": {**_MPEG2, "options": {"bf": "2", "g": "30"}},
    "mpeg2.mpg": {**_MPEG2, "options": {"bf": "2", "g": "30"}},
    "mpeg2.mxf": {**_MPEG2, "options": {"bf": "2", "g": "30"}},
    "mpeg2 interlaced.mkv": {**_MPEG2, "options": {"bf": "2", "g": "30", "flags": "+ildct+ilme"}},
    "wmv.asf": {"codec": "wmv2", "options": {"g": "30"}},
    "motion jpeg.avi": {"codec": "mjpeg", "pix_fmt": "yuvj420p"},
    "prores.mov": {"codec": "prores_ks", "pix_fmt": "yuv422p10le"},
    "lossless.mkv": {"codec": "ffv1", "pix_fmt": "yuv420p"},
    "gif.gif": {"codec": "gif", "pix_fmt": "rgb8"},
    "varying rate.mp4": {"stamps": varying_stamps(60), "options": _B_FRAMES},
    "varying rate.mkv": {"stamps": varying_stamps(60), "options": _B_FRAMES},
    "ntsc.mkv": {"stamps": constant_stamps(480, fps=60000 / 1001), "options": _B_FRAMES, "ticks": 60000, "rate": 60},
    "slides.mp4": {"stamps": constant_stamps(8, fps=0.5), "options": {"bf": "0"}},
    "late.mkv": {"stamps": constant_stamps(_FRAMES, start_s=95.5), "options": _B_FRAMES},
    "late.ts": {"stamps": constant_stamps(_FRAMES, start_s=9.0), "options": _B_FRAMES},
    "late mpeg4.ts": {**_MPEG4, "stamps": constant_stamps(_FRAMES, start_s=9.0), "options": {"bf": "2", "g": "30"}},
    "edit list.mp4": {"stamps": constant_stamps(_FRAMES + 32, start_s=-1.28), "options": {"bf": "0", "g": "24"}},
    "edit list b-frames.mov": {"stamps": constant_stamps(_FRAMES + 32, start_s=-1.28), "options": _B_FRAMES},
    "turned 90.mp4": {"options": _B_FRAMES, "rotation": 90},
    "turned 180.mov": {"options": _B_FRAMES, "rotation": 180},
    "turned 270.mov": {"options": _B_FRAMES, "rotation": 270},
    "wide pixels.mp4": {"options": _B_FRAMES, "pixel_aspect": Fraction(2, 1)},
    "odd size.mp4": {"options": _B_FRAMES, "size": (161, 97), "pix_fmt": "yuv444p"},
    "fragments.mp4": {"options": _B_FRAMES, "muxer_options": _FRAGMENTS},
    "no index.mkv": {"options": _B_FRAMES, "muxer_options": {"live": "1"}},
    "sound.mp4": {"options": _B_FRAMES, "has_sound": True},
    "longer sound.mp4": {"options": _B_FRAMES, "has_sound": True, "sound_s": 14.0},
    "shorter sound.mkv": {"options": _B_FRAMES, "has_sound": True, "sound_s": 3.0},
}


def _plain(path: Path, **options: str) -> bytes:
    return write_clip(path, _STAMPS, options={**_B_FRAMES, **options}).read_bytes()


def _truncated(share: float, **how) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        data = write_clip(path, _STAMPS, **how).read_bytes()
        path.write_bytes(data[: int(len(data) * share)])

    return make


def _appended(**how) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        write_clip(path, _STAMPS, **how)
        with path.open("ab") as file:
            file.write(bytes(range(256)) * 40)

    return make


def _zeroed(path: Path) -> None:
    """An MP4 file in which 500 bytes of pictures are zeros: after half of them, the rest of a group is damaged."""
    data = bytearray(_plain(path))
    middle = (data.index(b"mdat") + data.index(b"moov")) // 2
    data[middle : middle + 500] = bytes(500)
    path.write_bytes(data)


def _without_first_packets(codec: str, num_packets: int, options: dict[str, str]) -> Callable[[Path], None]:
    """A file whose first packets, with the first key frame, are missing."""

    def make(path: Path) -> None:
        whole = write_clip(path.with_name(f"whole {path.name}"), _STAMPS, codec=codec, options=options)
        with av.open(str(whole)) as source, av.open(str(path), "w") as out:
            track = out.add_stream_from_template(source.streams.video[0])
            for packet in itertools.islice(source.demux(video=0), num_packets, None):
                if packet.dts is not None:
                    packet.stream = track
                    out.mux(packet)

    return make


def _without_header(path: Path) -> None:
    """MPEG-4 part 2 without the header that has the size of the pictures; MPEG-TS does not store it either."""
    whole = write_clip(path.with_name(f"whole {path.name}"), _STAMPS, codec="mpeg4", options={"bf": "2", "g": "30"})
    with av.open(str(whole)) as source, av.open(str(path), "w") as out:
        track = out.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            data = bytes(packet)
            bare = av.Packet(data[max(0, data.find(b"\0\0\1\xb6")) :])  # from the first picture on
            bare.pts, bare.dts, bare.time_base, bare.stream = packet.pts, packet.dts, packet.time_base, track
            if packet.dts is not None:
                out.mux(bare)


def _lossy(path: Path) -> None:
    """A transport stream in which every 40th packet of 188 bytes was lost."""
    data = _plain(path)
    packets = [data[start : start + 188] for start in range(0, len(data), 188)]
    path.write_bytes(b"".join(packet for number, packet in enumerate(packets) if number < 20 or number % 40))


def _joined(size: tuple[int, int]) -> Callable[[Path], None]:
    """Two recordings, one after the other. The clock starts again, and the second may have another size."""

    def make(path: Path) -> None:
        first = write_clip(path.with_name(f"first {path.name}"), _STAMPS[:100], options=_B_FRAMES)
        second = write_clip(path.with_name(f"second {path.name}"), _STAMPS[:100], options=_B_FRAMES, size=size)
        path.write_bytes(first.read_bytes() + second.read_bytes())

    return make


def _clock_breaks(path: Path) -> None:
    """A file with an index whose clock jumps by two hours in the middle."""
    whole = write_clip(path.with_name(f"whole {path.name}"), _STAMPS, options={"bf": "0", "g": "25"})
    with av.open(str(whole)) as source, av.open(str(path), "w") as out:
        track = out.add_stream_from_template(source.streams.video[0])
        for number, packet in enumerate(source.demux(video=0)):
            if packet.dts is not None:
                if number >= 100:
                    packet.dts += int(7200 / packet.time_base)
                    packet.pts += int(7200 / packet.time_base)
                packet.stream = track
                out.mux(packet)


MAKERS: dict[str, Callable[[Path], None]] = {
    "truncated.mkv": _truncated(0.7, options=_B_FRAMES),
    "truncated.ts": _truncated(0.7, options=_B_FRAMES),
    "truncated.flv": _truncated(0.7, options=_B_FRAMES),
    "truncated.avi": _truncated(0.7, codec="mpeg4", options={"bf": "2", "g": "30"}),
    "truncated fragments.mp4": _truncated(0.7, options=_B_FRAMES, muxer_options=_FRAGMENTS),
    "truncated index first.mp4": _truncated(0.7, options=_B_FRAMES, muxer_options={"movflags": "faststart"}),
    "truncated.mp4": _truncated(0.7, options=_B_FRAMES),
    "appended.mp4": _appended(options=_B_FRAMES),
    "appended.mkv": _appended(options=_B_FRAMES),
    "appended.ts": _appended(options=_B_FRAMES),
    "appended.avi": _appended(codec="mpeg4", options={"bf": "2", "g": "30"}),
    "zeroed.mp4": _zeroed,
    "without first key frame.mp4": _without_first_packets("libx264", 5, _B_FRAMES),
    "without first key frame.mkv": _without_first_packets("libx264", 5, _B_FRAMES),
    "without first key frame.ts": _without_first_packets("libx264", 5, _B_FRAMES),
    "begins in an open group.mp4": _without_first_packets("libx265", 40, _X265_OPEN),
    "begins in an open group.mkv": _without_first_packets("libx264", 40, _OPEN_GROUPS),
    "mpeg4 without header.ts": _without_header,
    "lossy.ts": _lossy,
    "joined.ts": _joined((160, 96)),
    "joined sizes.ts": _joined((240, 144)),
    "clock breaks.mkv": _clock_breaks,
    "clock breaks.mp4": _clock_breaks,
}


def make_unusual(folder: Path, name: str) -> Path:
    """Write the file of this name, a key of `CLIPS` or `MAKERS`, to a folder."""
    path = folder / name
    if name in MAKERS:
        MAKERS[name](path)
    else:
        write_clip(path, **{"stamps": _STAMPS, **CLIPS[name]})
    return path
