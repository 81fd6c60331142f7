"""The files of an indexing run: found, recognised by their content, decoded and encoded."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event
from typing import Protocol, runtime_checkable

import numpy as np

from untrimmed.encoders.encoder import Encoder
from untrimmed.encoders.registry import LoadedEncoder
from untrimmed.errors import FeatureError, IndexMismatchError, UntrimmedError, shown
from untrimmed.search.store.records import VideoRecord, absolute
from untrimmed.types import FrameFeatures
from untrimmed.video.reader import FrameBatch, Sampling, VideoReader, VideoStream, is_video_path

FRAMES_TOGETHER = 8  # small, so that encoding starts early and overlaps with decoding


@dataclass(frozen=True)
class FoundVideos:
    """The files that an indexing run looks at, and the linked folders that it did not enter, absolute."""

    files: tuple[Path, ...]
    linked: tuple[Path, ...]


def find_videos(paths: Iterable[Path]) -> FoundVideos:
    """The video files named or found below the folders named, sorted; hidden folders are left out.

    A file that is named is taken whatever its suffix; below a folder the suffix decides. A folder that cannot be read
    stands among the files itself, so that it is reported as what could not be indexed. A link to a folder is entered
    where it is named; one that is met below a folder is not, and listed if it leads out of all folders named.

    Raises:
        UntrimmedError: A path does not exist, or cannot be looked at.
    """
    files: dict[Path, None] = {}
    links: dict[Path, None] = {}
    roots: list[str] = []
    for path in map(absolute, paths):
        try:
            path.lstat()
        except FileNotFoundError:
            raise UntrimmedError(f"{shown(path)}: no such file or folder; check the path") from None
        except OSError as error:
            raise UntrimmedError(f"{shown(path)}: cannot be read ({error.strerror}); check the path") from None
        if path.is_dir():
            roots.append(os.path.realpath(path))
            files.update(dict.fromkeys(_walk(path, links)))
        else:
            files[path] = None
    outside = [link for link in links if not any(Path(os.path.realpath(link)).is_relative_to(root) for root in roots)]
    return FoundVideos(tuple(files), tuple(outside))


def _walk(folder: Path, links: dict[Path, None]) -> Iterator[Path]:
    unreadable: list[Path] = []
    for parent, folders, files in os.walk(folder, onerror=lambda error: unreadable.append(Path(error.filename))):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        links.update((Path(parent, name), None) for name in folders if os.path.islink(os.path.join(parent, name)))
        for name in sorted(files):
            if not name.startswith(".") and is_video_path(Path(parent, name)):
                yield Path(parent, name)
    yield from unreadable


@dataclass(frozen=True)
class Failure:
    """A file that could not be indexed, and the reason in one line."""

    path: Path
    reason: str


@dataclass(frozen=True)
class KnownFile:
    """A file, and what the library knows of the video at its path."""

    path: Path
    record: VideoRecord | None


@dataclass(frozen=True)
class FoundFile:
    """A file as it was when its turn came."""

    path: Path
    size: int
    mtime_ns: int
    digest: str = ""  # of its content; empty for what is no regular file

    def require_unchanged(self) -> None:
        """Raise a FeatureError if it is not the one that was hashed: its frames would stand for other content."""
        stat = self.path.stat()
        if (stat.st_size, stat.st_mtime_ns) != (self.size, self.mtime_ns):
            raise FeatureError(f"{shown(self.path)}: changed while it was read; index it again when it is complete")


@dataclass(frozen=True)
class EncodedFile:
    """A file with all that a library keeps of it, and how long that took, in seconds."""

    file: FoundFile
    features: FrameFeatures
    width: int
    height: int
    warnings: tuple[str, ...] = ()
    decode_s: float = 0.0
    encode_s: float = 0.0


@dataclass
class StartedFile:
    """A file whose frames are being decoded, with the vectors of those that are encoded."""

    file: FoundFile
    stream: VideoStream
    vectors: list[np.ndarray] = field(default_factory=list)
    times_s: list[np.ndarray] = field(default_factory=list)
    decode_s: float = 0.0
    encode_s: float = 0.0

    def encode(self, batch: FrameBatch, encoder: Encoder) -> None:
        """Add some frames."""
        started = time.perf_counter()
        self.vectors.append(encoder.encode_frames(batch.frames).astype(np.float16))
        self.times_s.append(batch.times_s)
        self.encode_s += time.perf_counter() - started

    def finish(self) -> EncodedFile:
        """Return the file once all of its frames are encoded."""
        stream = self.stream
        features = FrameFeatures(np.concatenate(self.vectors), np.concatenate(self.times_s), stream.duration_s)
        size = stream.info.width, stream.info.height
        return EncodedFile(self.file, features, *size, stream.warnings, self.decode_s, self.encode_s)


@dataclass(frozen=True)
class DecodedFile:
    """All frames of the file that started last are decoded."""

    file: FoundFile


Decoded = FoundFile | StartedFile | FrameBatch | DecodedFile | Failure


def recognise(path: Path, known: VideoRecord | None, sampling: str, stop: Event) -> FoundFile:
    """The file with its content's hash, unread if it lies as the library knows it and was sampled like this.

    Raises:
        FeatureError: Its name is no text.
        OSError: It cannot be read.
    """
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise FeatureError(f"{shown(path)}: its name is not valid UTF-8, which the index needs; rename it") from None
    stat = path.stat()
    file = FoundFile(path, stat.st_size, stat.st_mtime_ns)
    if known is not None and known.sampling == sampling and (known.size, known.mtime_ns) == (file.size, file.mtime_ns):
        return replace(file, digest=known.content_hash)
    if path.is_dir():
        os.scandir(path).close()  # says why a folder cannot be read
    # The reader refuses anything but regular files, unread.
    return replace(file, digest=content_hash(path, stop) if path.is_file() else "")


def _why_unusable(path: Path, error: FeatureError | OSError) -> str:
    """The reason for a report, in one line."""
    if isinstance(error, FeatureError):
        return str(error)
    return f"{shown(path)}: cannot be read ({error.strerror}); check that it is there and readable"


def content_hash(path: Path, stop: Event) -> str:
    """A hash of all bytes of a file (BLAKE2b, 20 bytes); of those read so far once `stop` is set."""
    digest = hashlib.blake2b(digest_size=20)
    with open(path, "rb") as file:
        while not stop.is_set() and (block := file.read(1 << 20)):
            digest.update(block)
    return digest.hexdigest()


def decode(
    file: KnownFile,
    sampling: str,
    read: Callable[[Path], VideoStream],
    is_known: Callable[[FoundFile], bool],
    stop: Event,
) -> Iterator[Decoded]:
    """Yield the start of a file, its frames, and its end.

    Yield the file alone if its content is known, and a failure where it cannot be used. `stop` ends hashing.
    """
    began = time.perf_counter()
    try:
        found = recognise(file.path, file.record, sampling, stop)
        if is_known(found):
            yield found
            return
        started = StartedFile(found, read(file.path))
        yield started
        batches = iter(started.stream)
        while True:
            batch = next(batches, None)
            started.decode_s += time.perf_counter() - began
            if batch is None:
                break
            yield batch
            began = time.perf_counter()
        found.require_unchanged()
        yield DecodedFile(found)
    except (FeatureError, OSError) as error:
        yield Failure(file.path, _why_unusable(file.path, error))


@runtime_checkable
class Workers(Protocol):
    """Who encodes files, wherever they run."""

    def encode(
        self, files: Iterable[KnownFile], digests: frozenset[str]
    ) -> Iterator[FoundFile | EncodedFile | Failure]:
        """What became of each file, in any order; those whose content is among `digests` are only recognised."""
        ...


@dataclass(frozen=True)
class FileEncoder:
    """Encodes files by an encoder that is loaded once a process; it can be sent to other processes.

    `identity` is that of the encoder, `sampling` as records name it, `looks` as the reader takes it.
    """

    load: Callable[[], LoadedEncoder]
    identity: str
    sampling: str
    looks: Sampling

    def __call__(self, file: KnownFile, digests: frozenset[str]) -> FoundFile | EncodedFile | Failure:
        """The vectors of a file; the file alone if its content is known; or why it cannot be used.

        Raises:
            IndexMismatchError: The encoder here is another one than that of the library.
        """
        for step in decode(file, self.sampling, self._read, lambda found: found.digest in digests, Event()):
            match step:
                case StartedFile():
                    started = step
                case FrameBatch():
                    started.encode(step, self._tools()[0])
                case DecodedFile():
                    return started.finish()
                case _:
                    return step
        raise AssertionError("decoding ends with a result")

    def _read(self, path: Path) -> VideoStream:
        return self._tools()[1].read(path)

    def _tools(self) -> tuple[Encoder, VideoReader]:
        key = self.identity, self.looks
        if key not in _loaded:
            encoder = self.load().encoder
            if encoder.identity != self.identity:
                raise IndexMismatchError(
                    f"a worker has encoder {encoder.identity}, the library is of {self.identity}; install the same "
                    "weights on all machines, or name the encoder"
                )
            _loaded[key] = (
                encoder,
                VideoReader(sampling=self.looks, short_side=encoder.short_side, batch_size=FRAMES_TOGETHER),
            )
        return _loaded[key]


_loaded: dict[tuple[str, Sampling], tuple[Encoder, VideoReader]] = {}  # of this process
