"""The interface of sources of passages, and the registry of sources by name.

A source reads the passages of one video at a time:

    @register_source("lyrics")
    @dataclass(frozen=True)
    class Lyrics(PassageSource):
        mode = "said"
        language: str = ""                     # a setting

        @property
        def identity(self) -> str:
            return f"lyrics-1 {self.language}"

        def read(self, media, report):
            yield Passage("la la la", 1.0, 2.5, source=self.name)

`untrimmed index` calls `read` for a video that has not been read yet by this source. It calls `read` again if the
video, the `identity` or the `fingerprint` has changed since. The passages of one call are committed together, so an
interrupted call is repeated.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from untrimmed.errors import ConfigError, UnknownNameError
from untrimmed.passages.passage import Passage, TextMode
from untrimmed.plugins import load_installed

if TYPE_CHECKING:
    from typing import Self

    from untrimmed.video.reader import VideoReader

# Sources of this package: name -> module that registers it. A module is imported when its source is created.
_BUILT_IN: dict[str, str] = {
    "screen": "untrimmed.passages.screen",
    "speech": "untrimmed.passages.speech",
    "subtitle": "untrimmed.passages.subtitles",
}


def _no_shots() -> Sequence[float]:
    return (0.0,)


@dataclass(frozen=True)
class Media:
    """A video whose passages are read."""

    path: Path
    duration_s: float
    # Returns the start of each shot in seconds, computed from stored frames. The first start is 0.
    shot_starts_s: Callable[[], Sequence[float]] = _no_shots
    # A decoder that the caller has already started. A source may use its child process during `read`.
    decoder: VideoReader | None = None


@dataclass
class ReadingReport:
    """Receives the progress and the warnings of one call of `PassageSource.read`."""

    on_progress: Callable[[float], None] = lambda done_s: None
    done_s: float = 0.0  # the latest time that was reported
    warnings: list[str] = field(default_factory=list)
    unread: dict[str, str] = field(default_factory=dict)  # warnings about unreadable files, by `Passage.track`

    def progress(self, done_s: float) -> None:
        """Report the time in the video, in seconds, up to which it has been read.

        The reported time never decreases, even if a source reads one track after another.
        """
        self.done_s = max(self.done_s, done_s)
        self.on_progress(self.done_s)

    def warn(self, line: str) -> None:
        """Add a warning of one line, which describes a problem and its fix. Equal warnings are listed once.

        The line does not contain the video's path, because the path is printed before the line.
        """
        if line not in self.warnings:
            self.warnings.append(line)

    def warn_unread(self, track: str, line: str) -> None:
        """Add a warning about a file that exists but cannot be read. It is repeated in each run until the file changes.

        If an earlier call read passages of this file, i.e. with this `track`, these passages are kept.
        """
        self.unread[track] = line
        self.warn(line)


class PassageSource(ABC):
    """Reads the passages of videos. As a context manager, it stops child processes and releases models at the end.

    A subclass is a dataclass whose fields are its settings. All settings have defaults, and are JSON values, because a
    library stores them. Creating a source is fast and loads no model. `check` is called once, before the first video is
    read.
    """

    name: ClassVar[str]  # set by `register_source`; each `Passage.source` must be this name
    mode: ClassVar[TextMode]  # "said" or "written"

    @property
    @abstractmethod
    def identity(self) -> str:
        """A text with everything that affects the passages of any video: the version of the code, model and settings.

        If this text changes, all videos are read again.
        """

    def check(self) -> None:
        """Check that packages and models are installed.

        Raises:
            ConfigError: A setting is invalid.
            EncoderError: A package or a model is missing. The message describes how to get it.
        """
        return

    def fingerprint(self, media: Media) -> str:
        """Return a text that changes whenever the other files of the video change, such as its subtitle files.

        If the text changes, the video is read again. This method is called for each video in each run, so it must be
        fast.
        """
        return ""

    @abstractmethod
    def read(self, media: Media, report: ReadingReport) -> Iterator[Passage]:
        """Yield the passages of a video, in any order. Implementations must not need much memory for long videos.

        Raises:
            FeatureError: The video cannot be read. Its passages are not stored, and the next run tries again.
        """

    def close(self) -> None:
        """Stop child processes and release models."""
        return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


S = TypeVar("S", bound=type[PassageSource])
_SOURCES: dict[str, type[PassageSource]] = {}


def register_source(name: str) -> Callable[[S], S]:
    """Return a decorator that makes a source available under a name.

    The decorator raises ConfigError if another source has this name, or if the name is not an identifier.
    """

    def add(cls: S) -> S:
        if not name.isidentifier():
            raise ConfigError(f"{cls.__qualname__}: the name {name!r} is not an identifier; choose another name")
        if (first := _SOURCES.get(name)) is not None and first.__module__ != cls.__module__:
            raise ConfigError(f"two sources are named {name!r}: {first.__module__} and {cls.__module__}; rename one")
        cls.name = name
        _SOURCES[name] = cls
        return cls

    return add


def list_sources() -> list[str]:
    """Return the names of all sources, including those of installed plug-ins."""
    load_installed()
    return sorted({*_BUILT_IN, *_SOURCES})


def create_source(name: str, settings: Mapping[str, Any] | None = None) -> PassageSource:
    """Return a source by its name, with these settings.

    Raises:
        UnknownNameError: No source has this name.
        ConfigError: The source has no such setting.
    """
    import importlib

    if name not in _SOURCES and name in _BUILT_IN:
        importlib.import_module(_BUILT_IN[name])
    if name not in _SOURCES:
        load_installed()
    if name not in _SOURCES:
        raise UnknownNameError.among("source of passages", name, list_sources())
    try:
        return _SOURCES[name](**(settings or {}))
    except TypeError as error:
        raise ConfigError(f"source {name!r}: {error}; remove the setting") from None
