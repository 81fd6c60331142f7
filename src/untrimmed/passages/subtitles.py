"""Subtitles: text streams inside a video, and subtitle files beside it (film.srt, film.en.vtt, film.pt-BR.ass).

A file belongs to a video of the same name. A language and words such as `forced` may follow the name. The file may be
in a folder such as `Subs` beside the video. Files are parsed in the decoding child process, because they may be
hostile.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import ClassVar

from untrimmed.errors import VideoError, shown
from untrimmed.passages.languages import language_code
from untrimmed.passages.passage import Passage, TextMode
from untrimmed.passages.source import Media, PassageSource, ReadingReport, register_source
from untrimmed.video.reader import SubtitleCue, SubtitleReader, is_video_path

_VERSION = 2
SUFFIXES = (".srt", ".vtt", ".ass", ".ssa")
_UNREAD_SUFFIXES = (".dfxp", ".idx", ".sbv", ".scc", ".smi", ".stl", ".sub", ".sup", ".ttml")
_FOLDERS = {"sub", "subs", "subtitles"}  # names of folders of subtitles, in lower case
_CODE = re.compile(r"[a-zA-Z]{2,3}(?:[-_][a-zA-Z0-9]{2,8})*")
_FLAGS = {"forced", "sdh", "cc", "hi", "default", "full", "signs", "dub", "commentary"}
_MAX_FILES = 64


@register_source("subtitle")
@dataclass(frozen=True)
class Subtitles(PassageSource):
    """Reads all subtitles of a video. Bitmap subtitles (DVD, Blu-ray, DVB) are not read; a warning lists them."""

    mode: ClassVar[TextMode] = "said"
    _reader: SubtitleReader = field(default_factory=SubtitleReader, init=False, repr=False, compare=False)
    # for each folder of videos: subtitle files by the stem of their video; each folder is listed once per run
    _folders: dict[Path, dict[str, list[Path]]] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def identity(self) -> str:
        """The version of the parser. This source has no settings."""
        return f"subtitle-{_VERSION}"

    def fingerprint(self, media: Media) -> str:
        """Return the name, size, time of the last change and access of each subtitle file of the video."""
        states = []
        for path in self.files(media.path):
            try:
                status = path.stat()
            except OSError:
                continue
            access = "" if os.access(path, os.R_OK) else " unreadable"
            states.append(f"{path.relative_to(media.path.parent)} {status.st_size} {status.st_mtime_ns}{access}")
        return "\n".join(states)

    def read(self, media: Media, report: ReadingReport) -> Iterator[Passage]:
        """Yield the passages of all tracks, one track after another: first the streams, then the files.

        A subtitle file that cannot be read, or has an unsupported format, causes a warning. If it was read earlier, its
        passages are kept.
        """
        reader = self._reader if media.decoder is None else SubtitleReader(media.decoder)
        if media.path.is_file():
            yield from self._read_streams(reader, media, report)
        for path in self.files(media.path):
            if path.suffix.lower() in _UNREAD_SUFFIXES:
                report.warn(f"{shown(path)}: subtitles in this format are not read; convert the file to .srt")
                continue
            language = language_in(path.stem[len(media.path.stem) :])
            track = path.relative_to(media.path.parent).as_posix()  # two folders can contain files of one name
            try:
                for cue in reader.read_file(path, language, report.progress):
                    yield self._passage(cue, language, track)
            except VideoError as error:
                report.warn_unread(track, str(error))
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
                yield self._passage(cue, language_code(reader.languages.get(stream, "")), f"stream {stream}")

    def _passage(self, cue: SubtitleCue, language: str, track: str) -> Passage:
        return Passage(cue.text, cue.start_s, cue.end_s, self.name, language, track=track)

    def close(self) -> None:
        """Stop the child process."""
        self._reader.close()

    def files(self, video: Path) -> list[Path]:
        """Return the subtitle files of a video, sorted by name. They may have formats that are not read."""
        if video.parent not in self._folders:
            self._folders[video.parent] = _subtitle_files(video.parent)
        return self._folders[video.parent].get(video.stem, [])[:_MAX_FILES]


def _names(folder: Path) -> list[str]:
    """Return the sorted names in a folder, without hidden files. The list is empty if the folder cannot be read."""
    try:
        return sorted(entry.name for entry in os.scandir(folder) if not entry.name.startswith("."))
    except OSError:
        return []


def _subtitle_files(folder: Path) -> dict[str, list[Path]]:
    """Return the subtitle files of the videos in a folder, by the stem of the video.

    If no video has exactly the name of a file, the case of letters is ignored.
    """
    names = _names(folder)
    stems = _video_stems(folder, names)
    paths = [folder / name for name in names]
    paths += [Path(folder, sub, name) for sub in names if sub.lower() in _FOLDERS for name in _names(folder / sub)]
    files: dict[str, list[Path]] = {}
    for path in paths:
        if path.suffix.lower() in (*SUFFIXES, *_UNREAD_SUFFIXES):
            for stem in _stems_of_videos(path.stem, stems):
                files.setdefault(stem, []).append(path)
    return files


def _video_stems(folder: Path, names: Collection[str]) -> dict[str, set[str]]:
    """Return the stems of the videos with these names, by the stem without the case of letters."""
    stems: dict[str, set[str]] = {}
    for name in names:
        if is_video_path(name) or Path(folder, name).is_dir():
            stems.setdefault(Path(name).stem.casefold(), set()).add(Path(name).stem)
    return stems


def videos_of(paths: Iterable[Path]) -> set[Path]:
    """Return the video files to which subtitle files belong. For a folder of subtitles, these are all videos beside it.

    The subtitle files need not exist any more. Other paths are ignored.
    """
    names = cache(_names)
    stems = cache(lambda folder: _video_stems(folder, names(folder)))
    videos: set[Path] = set()
    for path in paths:
        if path.name.lower() in _FOLDERS:
            videos.update(path.parent / name for name in names(path.parent) if is_video_path(name))
        if path.suffix.lower() in (*SUFFIXES, *_UNREAD_SUFFIXES):
            for folder in [path.parent, *([path.parent.parent] if path.parent.name.lower() in _FOLDERS else [])]:
                found = _stems_of_videos(path.stem, stems(folder))
                videos.update(
                    folder / name for name in names(folder) if is_video_path(name) and Path(name).stem in found
                )
    return videos


def _stems_of_videos(stem: str, stems: Mapping[str, Collection[str]]) -> Collection[str]:
    """Return the stems of the videos to which a subtitle file with this stem belongs."""
    while stem:
        if videos := stems.get(stem.casefold()):
            return [stem] if stem in videos else videos
        shorter, dot, last = stem.rpartition(".")
        if not dot or not (is_video_path(stem) or _CODE.fullmatch(last) or last.lower() in _FLAGS or last.isalpha()):
            break
        stem = shorter
    return []


def language_in(name: str) -> str:
    """Return the language code in a part of a file name (between the video's name and the suffix), or an empty text.

    >>> language_in(".pt-BR.forced"), language_in(".mov.English"), language_in("")
    ('pt-BR', 'en', '')
    """
    parts = [part for part in name.split(".") if part.lower() not in _FLAGS and not is_video_path(f"film.{part}")]
    codes = (part for part in parts if _CODE.fullmatch(part))
    return language_code(next(codes, next((part.lower() for part in parts if part.isalpha()), "")))
