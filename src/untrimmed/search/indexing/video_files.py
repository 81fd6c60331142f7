"""The files of an indexing run: find them, hash their content, decode and encode them."""

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event

import numpy as np

from untrimmed.encoders.encoder import ClipEncoder, Encoder, VideoEncoding, start_video
from untrimmed.encoders.registry import LoadedEncoder
from untrimmed.errors import FeatureError, IndexMismatchError, UntrimmedError, shown
from untrimmed.passages.subtitles import videos_of
from untrimmed.search.store.records import Settings, VideoRecord, absolute
from untrimmed.types import FrameFeatures
from untrimmed.video.pictures import read_pictures
from untrimmed.video.reader import FrameBatch, Sampling, VideoReader, VideoStream, is_video_path
from untrimmed.video.thumbnails import ThumbnailMaker, Thumbnails
from untrimmed.video.timing import Timing

_SAME_DURATION_S = 1e-6
_BATCH_SIZE = 8  # number of frames that are encoded at a time; a small number lets encoding start early


@dataclass(frozen=True)
class FoundVideos:
    """Absolute paths of the files to index, and of links to folders that were not followed."""

    files: tuple[Path, ...]
    linked: tuple[Path, ...]


def find_videos(paths: Iterable[Path], *, with_pictures: bool = False) -> FoundVideos:
    """Return the files in `paths`, and the video files in the folders in `paths` and their subfolders, sorted.

    A file in `paths` may have any suffix. For a subtitle file, its video is returned. Hidden files and folders are
    ignored. Links to folders are only followed if they are in `paths`; other links that lead out of these folders are
    returned in `linked`. An unreadable folder is returned like a file, so that indexing reports it. If `with_pictures`,
    a folder of numbered pictures (`untrimmed.video.pictures`) counts as a video.

    Raises:
        UntrimmedError: A path does not exist or cannot be read.
    """
    files: dict[Path, None] = {}
    links: dict[Path, None] = {}
    roots: list[str] = []
    for path in map(absolute, paths):
        try:
            path.lstat()
        except OSError as error:
            raise UntrimmedError(f"{shown(path)}: cannot be read ({error.strerror}); check the path") from None
        if path.is_dir():
            roots.append(os.path.realpath(path))
            files.update(dict.fromkeys(_walk(path, links, with_pictures=with_pictures)))
        else:
            files.update(dict.fromkeys(videos_of([path]) or [path]))
    outside = [link for link in links if not any(Path(os.path.realpath(link)).is_relative_to(root) for root in roots)]
    return FoundVideos(tuple(files), tuple(outside))


def _walk(folder: Path, links: dict[Path, None], *, with_pictures: bool) -> Iterator[Path]:
    unreadable: list[Path] = []
    for parent, folders, files in os.walk(folder, onerror=lambda error: unreadable.append(Path(error.filename))):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        links.update((Path(parent, name), None) for name in folders if os.path.islink(os.path.join(parent, name)))
        if with_pictures and len(files) > 1 and read_pictures(parent, 1.0) is not None:
            yield Path(parent)
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
class FileToIndex:
    """A file to index, and the library's record of the video at its path, if there is one.

    `pictures_fps` is the frame rate of folders of pictures; None if such folders do not count as videos.
    """

    path: Path
    record: VideoRecord | None
    pictures_fps: float | None = None


@dataclass(frozen=True)
class HashedFile:
    """The state of a file, or of a folder of pictures, before it is decoded, with a hash of its content."""

    path: Path
    size: int
    mtime_ns: int
    digest: str = ""  # empty if the path is neither a regular file nor a folder of pictures

    def require_unchanged(self) -> None:
        """Raise a FeatureError if the file has changed since it was hashed. Then frames may not match the hash."""
        if _state(self.path) != (self.size, self.mtime_ns):
            raise FeatureError(f"{shown(self.path)}: changed while it was read; index it again when it is complete")


@dataclass(frozen=True)
class EncodedFile:
    """A file with its features, and the time that decoding and encoding took."""

    file: HashedFile
    features: FrameFeatures
    width: int
    height: int
    timing: Timing
    thumbnails: Thumbnails | None = None
    warnings: tuple[str, ...] = ()
    decode_s: float = 0.0
    encode_s: float = 0.0


@dataclass
class StartedFile:
    """A file that is being decoded, and the vectors of the frames that are already encoded."""

    file: HashedFile
    stream: VideoStream
    thumbnails: ThumbnailMaker | None = None
    vectors: list[np.ndarray] = field(default_factory=list)
    times_s: list[np.ndarray] = field(default_factory=list)
    decode_s: float = 0.0
    encode_s: float = 0.0
    _encoding: VideoEncoding | None = None

    def encode(self, batch: FrameBatch, encoder: Encoder, fps: float) -> None:
        """Encode a batch of frames. `fps` is the number of vectors per second of video."""
        started = time.perf_counter()
        if self._encoding is None:
            self._encoding = start_video(encoder, fps)
        self._add(*self._encoding.add(batch.times_s, batch.frames))
        self.encode_s += time.perf_counter() - started

    def _add(self, vectors: np.ndarray, times_s: np.ndarray) -> None:
        self.vectors.append(vectors.astype(np.float16))
        self.times_s.append(times_s)

    def finish(self) -> EncodedFile:
        """Encode the frames that the encoder has not encoded yet, and return the complete file."""
        stream = self.stream
        started = time.perf_counter()
        if self._encoding is not None:
            self._add(*self._encoding.finish())
        self.encode_s += time.perf_counter() - started
        features = FrameFeatures(np.concatenate(self.vectors), np.concatenate(self.times_s), stream.duration_s)
        info = stream.info
        thumbnails = self.thumbnails.finish() if self.thumbnails is not None else None
        times_s = self.decode_s, self.encode_s
        return EncodedFile(
            self.file, features, info.width, info.height, info.timing, thumbnails, stream.warnings, *times_s
        )


@dataclass(frozen=True)
class EndOfFrames:
    """The step that follows the last frame of a file."""

    file: HashedFile


DecodingStep = HashedFile | StartedFile | FrameBatch | EndOfFrames | Failure
FileResult = HashedFile | EncodedFile | Failure
# A function that encodes files, and yields results in any order. Files with one of these digests are not encoded.
Workers = Callable[[Iterable[FileToIndex], frozenset[str]], Iterator[FileResult]]


def decode(
    file: FileToIndex,
    sampling: str,
    read: Callable[[Path, float | None], VideoStream],
    is_known: Callable[[HashedFile], bool],
    stop: Event,
    *,
    with_thumbnails: bool,
) -> Iterator[DecodingStep]:
    """Yield the steps of decoding a file: its start, its frames in batches, and their end.

    If the content of the file is known, yield only its hash. If the file cannot be used, yield a failure. Thumbnails
    are made here, because this thread mostly waits for the decoder.

    Args:
        read: Opens a file. Its second argument is the frame rate of folders of pictures.
        is_known: Whether the library has the content of a file.
        stop: If it is set, hashing ends early.
    """
    start_s = time.perf_counter()
    try:
        hashed = _hash(file, sampling, stop)
        if is_known(hashed):
            yield hashed
            return
        stream = read(file.path, file.pictures_fps)
        started = StartedFile(hashed, stream, ThumbnailMaker() if with_thumbnails else None)
        yield started
        batches = iter(started.stream)
        while True:
            batch = next(batches, None)
            started.decode_s += time.perf_counter() - start_s
            if batch is None:
                break
            if started.thumbnails is not None:
                started.thumbnails.add(batch.times_s, batch.frames)
            yield batch
            start_s = time.perf_counter()
        hashed.require_unchanged()
        yield EndOfFrames(hashed)
    except FeatureError as error:
        yield Failure(file.path, str(error))
    except OSError as error:
        reason = f"{shown(file.path)}: cannot be read ({error.strerror}); check that it exists and is readable"
        yield Failure(file.path, reason)


def _hash(file: FileToIndex, sampling: str, stop: Event) -> HashedFile:
    """Return the hash of a file.

    If the file's time and size match its record, and the sampling is unchanged, the hash is taken from the record and
    the file is not read.
    """
    path = file.path
    record = file.record
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise FeatureError(f"{shown(path)}: its name is not valid UTF-8, which the index needs; rename it") from None
    hashed = HashedFile(path, *_state(path))
    pictures = read_pictures(path, file.pictures_fps) if file.pictures_fps is not None and path.is_dir() else None
    state = hashed.size, hashed.mtime_ns, sampling
    if record is not None and (record.size, record.mtime_ns, record.sampling) == state:
        has_same_rate = pictures is None or abs(record.duration_s - pictures.duration_s) < _SAME_DURATION_S
        if has_same_rate:
            return replace(hashed, digest=record.content_hash)
    if pictures is not None:
        files = [path / name for name in pictures.names]
        start = f"pictures {pictures.fps!r} {pictures.numbers!r}".encode()
        return replace(hashed, digest=_hash_of_files(files, stop, start))
    if path.is_dir():
        os.scandir(path).close()  # raises an OSError with the reason if the folder cannot be read
    # other paths need no hash, because the reader refuses them
    return replace(hashed, digest=content_hash(path, stop) if path.is_file() else "")


def _state(path: Path) -> tuple[int, int]:
    """Return the size in bytes and the time of the last change in ns, of a file or of the pictures of a folder."""
    if path.is_dir() and (pictures := read_pictures(path, 1.0)) is not None:
        return pictures.state()
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns


def content_hash(path: Path, stop: Event) -> str:
    """Return a hash of all bytes of a file (BLAKE2b, 20 bytes).

    If `stop` is set, hashing ends and the hash is wrong.
    """
    return _hash_of_files([path], stop)


def _hash_of_files(paths: Iterable[Path], stop: Event, start: bytes = b"") -> str:
    digest = hashlib.blake2b(start, digest_size=20)
    for path in paths:
        with open(path, "rb") as file:
            while not stop.is_set() and (block := file.read(1 << 20)):
                digest.update(block)
    return digest.hexdigest()


def open_reader(settings: Settings, encoder: Encoder) -> VideoReader:
    """Return a reader that decodes with the library's sampling, at the rate and size that the encoder needs."""
    needs_rate = isinstance(encoder, ClipEncoder)  # clips have a fixed number of frames
    fps = encoder.rate(settings.fps) if isinstance(encoder, ClipEncoder) else settings.fps
    return VideoReader(
        sampling=Sampling(fps, settings.keyframes_only),
        short_side=encoder.short_side,
        batch_size=_BATCH_SIZE,
        repeats_frames=needs_rate,
    )


@dataclass(frozen=True)
class FileEncoder:
    """Encodes files for a library. It can be sent to other processes.

    Each process calls `load` once, with the name of the library's encoder.
    """

    load: Callable[[str], LoadedEncoder]
    settings: Settings

    def __call__(self, file: FileToIndex, digests: frozenset[str]) -> FileResult:
        """Encode a file. If its digest is in `digests`, return only its hash; if it cannot be used, return a failure.

        Raises:
            IndexMismatchError: The encoder that this process loads is not the library's encoder.
        """
        steps = decode(
            file,
            self.settings.sampling,
            self._read,
            lambda hashed: hashed.digest in digests,
            Event(),
            with_thumbnails=self.settings.thumbnails,
        )
        for step in steps:
            match step:
                case StartedFile():
                    started = step
                case FrameBatch():
                    started.encode(step, self._encoder_and_reader()[0], self.settings.fps)
                case EndOfFrames():
                    return started.finish()
                case _:
                    return step
        raise AssertionError("decoding ends with a result")

    def _read(self, path: Path, pictures_fps: float | None) -> VideoStream:
        return self._encoder_and_reader()[1].read(path, pictures_fps)

    def _encoder_and_reader(self) -> tuple[Encoder, VideoReader]:
        settings = self.settings
        key = settings.encoder_identity, settings.fps, settings.keyframes_only
        if key not in _loaded_in_process:
            encoder = self.load(settings.encoder).encoder
            if encoder.identity != settings.encoder_identity:
                raise IndexMismatchError(
                    f"a worker has encoder {encoder.identity}, the library has {settings.encoder_identity}; "
                    "install the same weights on all machines, or name the encoder"
                )
            _loaded_in_process[key] = encoder, open_reader(settings, encoder)
        return _loaded_in_process[key]


# encoders and readers of this process, by encoder and sampling
_loaded_in_process: dict[tuple[str, float, bool], tuple[Encoder, VideoReader]] = {}
