"""Subtitles: text streams inside a video, and subtitle files beside it (film.srt, film.en.vtt, film.pt-BR.ass).

A file belongs to a video if its name is that of the video, with or without a language and words such as `forced`
between the name and the suffix. Files are parsed in the decoding child process, because they may be hostile.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from untrimmed.errors import VideoError, shown
from untrimmed.passages.passage import Passage, TextMode
from untrimmed.passages.source import Media, PassageSource, ReadingReport, register_source
from untrimmed.video.reader import SubtitleCue, SubtitleReader, is_video_path

_VERSION = 1
SUFFIXES = (".srt", ".vtt", ".ass", ".ssa")
_CODE = re.compile(r"[a-zA-Z]{2,3}(?:[-_][a-zA-Z0-9]{2,8})*")
_FLAGS = {"forced", "sdh", "cc", "hi", "default", "full", "signs", "dub", "commentary"}
_MAX_FILES = 64


@register_source("subtitle")
@dataclass(frozen=True)
class Subtitles(PassageSource):
    """Reads all subtitles of a video. Bitmap subtitles (DVD, Blu-ray, DVB) are named in a warning."""

    mode: ClassVar[TextMode] = "said"
    _reader: SubtitleReader = field(default_factory=SubtitleReader, init=False, repr=False, compare=False)
    # names of subtitle files in each folder by the name of their video in lower case, listed once per run
    _folders: dict[Path, dict[str, list[str]]] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def identity(self) -> str:
        """The version of the parser. This source does not have settings."""
        return f"subtitle-{_VERSION}"

    def fingerprint(self, media: Media) -> str:
        """Return name, size and time of last change of each subtitle file of the video."""
        states = []
        for path in self.files(media.path):
            try:
                status = path.stat()
            except OSError:
                continue
            states.append(f"{path.name} {status.st_size} {status.st_mtime_ns}")
        return "\n".join(states)

    def read(self, media: Media, report: ReadingReport) -> Iterator[Passage]:
        """Yield the passages of all tracks, one track after another: first the streams, then the files.

        A subtitle file that cannot be read is named in a warning.
        """
        reader = self._reader if media.decoder is None else SubtitleReader(media.decoder)
        if media.path.is_file():
            yield from self._read_streams(reader, media, report)
        for path in self.files(media.path):
            language = language_in(path.stem[len(media.path.stem) :])
            try:
                for cue in reader.read_file(path, language, report.progress):
                    yield self._passage(cue, language, path.name)
            except VideoError as error:
                report.warn(str(error))
            else:
                for fault in reader.faults:
                    report.warn(f"{shown(path)}: {fault}")

    def _read_streams(self, reader: SubtitleReader, media: Media, report: ReadingReport) -> Iterator[Passage]:
        # Streams are interleaved in the file, and the language of a stream is only known at its end. So the cues of all
        # streams are held in memory. They need much less memory than a picture.
        by_stream: dict[int, list[SubtitleCue]] = {}
        for cue in reader.read_streams(media.path, report.progress):
            by_stream.setdefault(cue.stream, []).append(cue)
        for fault in reader.faults:
            report.warn(fault)
        for stream, cues in sorted(by_stream.items()):
            for cue in sorted(cues, key=lambda cue: (cue.start_s, cue.end_s)):
                yield self._passage(cue, reader.languages.get(stream, ""), f"stream {stream}")

    def _passage(self, cue: SubtitleCue, language: str, track: str) -> Passage:
        return Passage(cue.text, cue.start_s, cue.end_s, self.name, language, track=track)

    def close(self) -> None:
        """Stop the child process."""
        self._reader.close()

    def files(self, video: Path) -> list[Path]:
        """Return the subtitle files of a video, sorted by name."""
        if video.parent not in self._folders:
            self._folders[video.parent] = _subtitle_files(video.parent)
        return [video.parent / name for name in self._folders[video.parent].get(video.stem, [])][:_MAX_FILES]


def _subtitle_files(folder: Path) -> dict[str, list[str]]:
    """Return the names of the subtitle files of a folder, by the stem of the videos to which they belong."""
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if not entry.name.startswith("."))
    except OSError:
        return {}
    stems = {Path(name).stem for name in names if is_video_path(name) or Path(folder, name).is_dir()}
    files: dict[str, list[str]] = {}
    for name in names:
        path = Path(name)
        if path.suffix.lower() not in SUFFIXES:
            continue
        stem = path.stem
        while stem and stem not in stems and is_video_path(stem):  # film.mp4.srt
            stem = Path(stem).stem
        while stem and stem not in stems:
            shorter, dot, last = stem.rpartition(".")
            if not dot or not (_CODE.fullmatch(last) or last.lower() in _FLAGS or last.isalpha()):
                break
            stem = shorter
        if stem in stems:
            files.setdefault(stem, []).append(name)
    return files


def language_in(name: str) -> str:
    """Return the language code in the part of a file name between video name and suffix, or an empty text.

    >>> language_in(".pt-BR.forced"), language_in("")
    ('pt-BR', '')
    """
    parts = [part for part in name.split(".") if part]
    codes = (part for part in parts if _CODE.fullmatch(part) and part.lower() not in _FLAGS)
    return next(codes, next((part.lower() for part in parts if part.isalpha() and part.lower() not in _FLAGS), ""))
