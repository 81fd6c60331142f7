"""Subtitles: text streams inside a video, and subtitle files beside it (film.srt, film.en.vtt, film_pt-BR.ass).

A file belongs to a video of the same name. A language and words such as `forced` may follow the name. The file may be
in a folder `Subs` beside the video, or there in a folder with the name of the video (`Subs/film/2_English.srt`). If
`Subs` is beside a single video, a language is enough (`Subs/English.srt`). Files are parsed in the decoding child
process, because they may be hostile.
"""

from __future__ import annotations

import itertools
import os
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import ClassVar

from untrimmed.errors import VideoError, shown
from untrimmed.passages.languages import is_known_language, language_code
from untrimmed.passages.passage import Passage, TextMode
from untrimmed.passages.source import Media, PassageSource, ReadingReport, register_source
from untrimmed.video.reader import SubtitleCue, SubtitleReader, is_video_path

_VERSION = 5
SUFFIXES = (".srt", ".vtt", ".ass", ".ssa")
_UNREAD_SUFFIXES = (".dfxp", ".idx", ".sbv", ".scc", ".smi", ".stl", ".sub", ".sup", ".ttml")
_FOLDERS = {"sub", "subs", "subtitles"}  # names of folders of subtitles, in lower case
_CODE = re.compile(r"[a-zA-Z]{2,3}(?:[-_][a-zA-Z0-9]{2,8})*")
_NUMBER = re.compile("[0-9]{1,2}")  # number of a track; a year may belong to the name of another video
_REGION = re.compile("[a-zA-Z]{2}|Han[st]|Latn|Cyrl|[0-9]{3}")
_FLAGS = {"forced", "sdh", "cc", "hi", "default", "full", "signs", "dub", "commentary"}
_MAX_FILES = 64


@register_source("subtitle")
@dataclass(frozen=True)
class Subtitles(PassageSource):
    """Reads all subtitles of a video. Bitmap subtitles (DVD, Blu-ray, DVB) are not read; a warning lists them."""

    mode: ClassVar[TextMode] = "said"
    _reader: SubtitleReader = field(default_factory=SubtitleReader, init=False, repr=False, compare=False)
    # for each folder of videos, what `_subtitle_files` returns; each folder is listed once
    _folders: dict[Path, dict[str, dict[Path, str | None]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def identity(self) -> str:
        """The version of the parser. This source has no settings."""
        return f"subtitle-{_VERSION}"

    def fingerprint(self, media: Media) -> str:
        """Return the name, size, time of the last change and access of each subtitle file of the video.

        For files that may belong to another video, only the name is included, because they are not read.
        """
        states = [f"{path.relative_to(media.path.parent)} unclear" for path in self._unclear_files(media.path)]
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
        for path in self._unclear_files(media.path):
            advice = "if it does not, name it like its video, e.g. film.en.srt for film.mp4"
            report.warn(f"{shown(path)}: not read, because it may belong to another video; {advice}")
        for path, language in self.files(media.path).items():
            if path.suffix.lower() in _UNREAD_SUFFIXES:
                report.warn(f"{shown(path)}: subtitles in this format are not read; convert the file to .srt")
                continue
            track = path.relative_to(media.path.parent).as_posix()  # two folders can contain files of one name
            try:
                for cue in reader.read_file(path, language, report.progress):
                    yield self._passage(cue, language, track)
            except VideoError as error:
                report.warn_unread(track, f"{error} (text that was read from it earlier is kept)")
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

    def files(self, video: Path) -> dict[Path, str]:
        """Return the subtitle files of a video, sorted by name, with their languages ("" if unknown).

        They may have formats that are not read.
        """
        named = ((path, language) for path, language in self._all_files(video).items() if language is not None)
        return dict(itertools.islice(named, _MAX_FILES))

    def _unclear_files(self, video: Path) -> list[Path]:
        return [path for path, language in self._all_files(video).items() if language is None]

    def _all_files(self, video: Path) -> dict[Path, str | None]:
        if video.parent not in self._folders:
            self._folders[video.parent] = _subtitle_files(video.parent)
        return self._folders[video.parent].get(video.stem, {})


def _names(folder: Path) -> list[str]:
    """Return the sorted names in a folder, without hidden files. The list is empty if the folder cannot be read."""
    try:
        return sorted(entry.name for entry in os.scandir(folder) if not entry.name.startswith("."))
    except OSError:
        return []


def _subtitle_files(folder: Path) -> dict[str, dict[Path, str | None]]:
    """Return the subtitle files of the videos in a folder, and their languages, by the stem of the video.

    The language is None if a name begins like that of a video, but the rest is unclear, or if a file may belong to any
    of several videos.
    """
    names = _names(folder)
    stems = _VideoStems.of(folder, names)
    files: dict[str, dict[Path, str | None]] = {}

    def add(path: Path, videos: Collection[str], rest: str | None) -> None:
        if path.suffix.lower() not in (*SUFFIXES, *_UNREAD_SUFFIXES):
            return
        if not videos:
            videos, rest = stems.beginning(path.stem), None
        for stem in videos:
            files.setdefault(stem, {})[path] = None if rest is None else language_in(rest)

    for name in names:
        add(folder / name, *stems.match(Path(name).stem))
    videos_here = [Path(name).stem for name in names if is_video_path(name)]
    for sub in (folder / name for name in names if name.lower() in _FOLDERS):
        for name in _names(sub):
            stem = Path(name).stem
            rest: str | None
            videos, rest = stems.match(stem)
            if not videos and _is_after_name(f"-{stem}"):  # `Subs/English.srt`
                videos, rest = videos_here, f"-{stem}" if len(videos_here) == 1 else None
            add(sub / name, videos, rest)
            for inner in _names(sub / name) if (videos := stems.named(name)) else ():
                _, rest = stems.match(Path(inner).stem)
                add(sub / name / inner, videos, rest or f".{Path(inner).stem}")
    return files


def videos_of(paths: Iterable[Path]) -> set[Path]:
    """Return the video files to which subtitle files belong. For a folder of subtitles, these are all videos beside it.

    The subtitle files need not exist any more. Other paths are ignored.
    """
    names = cache(_names)
    stems = cache(lambda folder: _VideoStems.of(folder, names(folder)))

    @cache
    def files(folder: Path) -> dict[str, list[Path]]:
        """The video files of a folder, by stem."""
        by_stem: dict[str, list[Path]] = {}
        for name in filter(is_video_path, names(folder)):
            by_stem.setdefault(Path(name).stem, []).append(folder / name)
        return by_stem

    videos: set[Path] = set()
    for path in paths:
        parents = list(path.parents)
        if path.name.lower() in _FOLDERS:
            videos.update(itertools.chain.from_iterable(files(path.parent).values()))
        candidates = []  # folders of videos, and names that begin with the stem of a video
        if path.suffix.lower() in (*SUFFIXES, *_UNREAD_SUFFIXES):
            candidates.append((path.parent, path.stem))
        for level, folder in enumerate(parents[:2]):
            if folder.name.lower() in _FOLDERS:
                if len(beside := files(folder.parent)) == 1:
                    videos.update(*beside.values())
                candidates += [(folder.parent, path.stem), (folder.parent, [path, *parents][level].name)]
        for folder, name in candidates:
            matches, _ = stems(folder).match(name)
            videos.update(*(files(folder).get(stem, ()) for stem in matches))
    return videos


def _composed(name: str) -> str:
    return unicodedata.normalize("NFC", name)  # file systems may return decomposed characters


@dataclass(frozen=True)
class _VideoStems:
    """The stems of the videos of a folder, by their composed stem without the case of letters."""

    stems: Mapping[str, Collection[str]]

    @classmethod
    def of(cls, folder: Path, names: Iterable[str]) -> _VideoStems:
        """Return the stems of the videos among these names. A folder may be a video of numbered pictures."""
        stems: dict[str, set[str]] = {}
        for name in names:
            if is_video_path(name) or Path(folder, name).is_dir():
                stem = Path(name).stem
                stems.setdefault(_composed(stem).casefold(), set()).add(stem)
        return cls(stems)

    def named(self, name: str) -> Collection[str]:
        """Return the stems that equal a name. If none has exactly this name, the case of letters is ignored."""
        stems = self.stems.get(_composed(name).casefold(), ())
        return [stem for stem in stems if _composed(stem) == _composed(name)] or stems

    def beginning(self, name: str) -> Collection[str]:
        """Return the stems that are the longest whole-word prefix of a name."""
        ends = (end for end in range(len(name) - 1, 0, -1) if not name[end].isalnum())
        return next(filter(None, (self.named(name[:end].rstrip()) for end in ends)), ())

    def match(self, stem: str) -> tuple[Collection[str], str]:
        """Return the stems of the videos to which a subtitle file with this stem belongs, and the rest of its stem.

        The longest stem wins, so `film-en.srt` belongs to `film-en.mp4`, or else to `film.mp4`.
        """
        for end in range(len(stem), 0, -1):
            plain = re.sub(r"[\[\](){}]", " ", stem[end:]).rstrip()
            rest = re.sub(r"\s*([._-])\s*|\s+", lambda gap: gap[1] or "-", plain)  # " - English", " [en]"
            if (not rest or rest[0] in "._-") and (videos := self.named(stem[:end])) and _is_after_name(rest):
                return videos, rest
        return (), ""


def _is_after_name(rest: str) -> bool:
    """Whether a part of a file name, from the separator after the video's name, describes the subtitles of the video.

    >>> [_is_after_name(rest) for rest in (".en", ".2.en", "_en", "-pt-BR.forced", ".extended")]
    [True, True, True, True, True]
    >>> [_is_after_name(rest) for rest in (".2", "_2", "-part", ".1999.en")]
    [False, False, False, False]
    """
    words = re.split("[._-]", rest)[1:]
    has_language = any(map(is_known_language, words))

    def is_usual(word: str) -> bool:
        is_number = _NUMBER.fullmatch(word) is not None and has_language
        return is_known_language(word) or word.lower() in _FLAGS or is_number

    def is_usual_part(part: str) -> bool:
        return is_usual(part) or is_video_path(f"film.{part}") or bool(_CODE.fullmatch(part)) or part.isalpha()

    if rest.startswith(".") and all(map(is_usual_part, rest[1:].split("."))):
        return True
    pairs = itertools.pairwise(["", *words])
    return not rest or (
        has_language
        and all(is_usual(word) or (is_known_language(last) and _REGION.fullmatch(word)) for last, word in pairs)
    )


def language_in(rest: str) -> str:
    """Return the language code in a part of a file name, from the separator after the video's name, or an empty text.

    `hi` is Hindi if there is no other language, and otherwise stands for "hearing impaired".

    >>> language_in(".pt-BR.forced"), language_in(".mov.English"), language_in("_2_en"), language_in("")
    ('pt-BR', 'en', 'en', '')
    >>> language_in(".hi"), language_in(".en.hi")
    ('hi', 'en')
    """
    words = re.split("[._-]", rest)
    ignored = _FLAGS if any(is_known_language(word) and word.lower() != "hi" for word in words) else _FLAGS - {"hi"}
    parts = []
    for part in rest.lstrip("._-").split("."):
        names = [word for word in re.split("[_-]", part) if word.lower() not in ignored and not _NUMBER.fullmatch(word)]
        if names and not is_video_path(f"film.{part}"):
            parts.append("-".join(names))
    known = (part for part in parts if is_known_language(part))
    codes = (part for part in parts if _CODE.fullmatch(part))
    return language_code(next(itertools.chain(known, codes), ""))
