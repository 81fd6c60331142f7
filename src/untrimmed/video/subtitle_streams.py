"""Read the cues of subtitle files and of subtitle streams. This runs only in the decoding child process."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import av

from untrimmed.errors import counted
from untrimmed.video.decode import MediaProblemError, OpenVideo, open_regular_file, read_packets
from untrimmed.video.subtitle_text import (
    MAX_CUE,
    MAX_FILE_BYTES,
    WITHOUT_END,
    Cue,
    EncodingUnknownError,
    Faults,
    plain_ass_text,
    read_cues,
    with_end,
)

# Codecs whose cues FFmpeg converts to ASS. Other subtitle streams are pictures, or there is no decoder for them.
_TEXT_CODECS = """
    subrip srt ass ssa mov_text webvtt text microdvd mpl2 jacosub sami realtext stl subviewer subviewer1 vplayer
"""
TEXT_CODECS = frozenset(_TEXT_CODECS.split())
_MAX_STREAMS = 32
_CUES_AT_A_TIME = 500
_CHARACTERS_AT_A_TIME = 50_000  # a message has at most a million bytes, and a character needs up to 12 of them


def subtitle_streams(video: OpenVideo) -> tuple[list[Any], list[str]]:
    """Return the subtitle streams with text, and a warning for each stream that is not read."""
    streams: list[Any] = []
    unread = []
    for stream in video.container.streams.subtitles:
        codec = stream.codec_context.name if stream.codec_context is not None else ""
        if codec in TEXT_CODECS and len(streams) < _MAX_STREAMS:
            streams.append(stream)
        else:
            language = language_of(stream)
            description = f"stream {stream.index}{f' ({language})' if language else ''}: {codec or 'unknown codec'}"
            reason = f"only {_MAX_STREAMS} streams are read" if codec in TEXT_CODECS else "they are not text"
            unread.append(f"subtitles are not read ({description}); {reason}")
    return streams, unread


def language_of(stream: Any) -> str:
    """Return the language code of a stream, or an empty text if the file does not contain it."""
    language = str(stream.metadata.get("language", ""))[:20].strip()
    return "" if language.lower() in ("und", "unk", "zxx") else language


def stream_cues(
    video: OpenVideo, streams: list[Any], origin_s: float, on_progress: Callable[[float], None], warnings: list[str]
) -> Iterator[tuple[int, Cue]]:
    """Yield the cues of text streams, each with the index of its stream. A stream's cues have the order of the file.

    `origin_s` is the timestamp of the video's first frame in the container, in seconds.
    """
    faults = Faults()
    last: dict[int, Cue] = {}  # of each stream
    for packet in read_packets(video, streams, warnings):
        if packet.pts is None:
            continue
        time_base = packet.time_base or packet.stream.time_base
        start_s = float(packet.pts * time_base) - origin_s
        end_s = start_s + float((packet.duration or 0) * time_base)
        on_progress(max(0.0, start_s))
        try:
            decoded = packet.decode()
        except av.error.FFmpegError:
            continue
        texts = [text for subtitle in decoded or () if (text := _text_of(subtitle))]
        text = " ".join(texts)
        warning = f"subtitles with more than {MAX_CUE} characters were shortened"
        if len(text) > MAX_CUE and warning not in warnings:
            warnings.append(warning)
        text = text[:MAX_CUE]
        if text and end_s > 0:
            index = packet.stream.index
            cue = Cue(max(0, round(1000 * start_s)), round(1000 * end_s), text)
            if index in last:
                yield index, with_end(last[index], cue.start_ms, faults)
            last[index] = cue
    for index, cue in last.items():
        yield index, with_end(cue, None, faults)
    if faults.without_end:
        warnings.append(f"{counted(faults.without_end, 'cue')} {WITHOUT_END}")


def _text_of(subtitle: Any) -> str:
    line = getattr(subtitle, "ass", b"") or b""
    # ReadOrder, Layer, Style, Name, MarginL, MarginR, MarginV, Effect, Text
    return plain_ass_text(line.decode("utf-8", errors="replace").split(",", 8)[-1])


def file_cues(path: str, language: str, on_progress: Callable[[float], None]) -> tuple[list[Cue], Faults]:
    """Return the cues of a subtitle file in order of time, without duplicates.

    Raises:
        MediaProblemError: The file is too large, is not text, or has no cue.
    """
    if os.path.isfile(path) and not os.path.getsize(path):
        raise MediaProblemError("is empty (0 bytes)", "save the subtitles again, or remove the file")
    descriptor = open_regular_file(path)
    with os.fdopen(descriptor, "rb") as file:
        size = os.fstat(descriptor).st_size
        if size > MAX_FILE_BYTES:
            raise MediaProblemError(
                f"has {size >> 20} MB, expected subtitles of at most {MAX_FILE_BYTES >> 20} MB", "remove it"
            )
        faults = Faults()
        cues: list[Cue] = []
        try:
            for cue in read_cues(file, Path(path).suffix.lower(), language, faults):
                cues.append(cue)
                if not len(cues) % 4096:
                    on_progress(cue.start_ms / 1000)
        except EncodingUnknownError:
            raise MediaProblemError(
                "is not a text file", "replace it with subtitles as text (.srt, .vtt, .ass)"
            ) from None
    if not cues:
        broken = f" ({faults.broken} are broken)" if faults.broken else ""
        raise MediaProblemError(f"has no subtitle that can be read{broken}", "replace it, or remove it")
    cues.sort(key=lambda cue: cue[:2])
    return [cue for cue, _ in itertools.groupby(cues)], faults


def in_batches(cues: Iterable[Any], text_of: Callable[[Any], str]) -> Iterator[list[Any]]:
    """Yield lists of cues, each of which fits into one message."""
    batch: list[Any] = []
    length = 0
    for cue in cues:
        batch.append(cue)
        length += len(text_of(cue))
        if len(batch) == _CUES_AT_A_TIME or length >= _CHARACTERS_AT_A_TIME:
            yield batch
            batch = []
            length = 0
    if batch:
        yield batch
