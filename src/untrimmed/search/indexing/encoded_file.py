"""One file from its bytes to its vectors, in one call: what a worker elsewhere does for the process that commits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Protocol, runtime_checkable

import numpy as np

from untrimmed.encoders.encoder import Encoder
from untrimmed.encoders.registry import LoadedEncoder
from untrimmed.errors import FeatureError, IndexMismatchError
from untrimmed.search.indexing.report import Failure
from untrimmed.search.indexing.video_files import FoundFile, recognise, why_unusable
from untrimmed.search.store.records import VideoRecord
from untrimmed.types import FrameFeatures
from untrimmed.video.reader import Sampling, VideoReader

FRAMES_TOGETHER = 8  # small, so that encoding starts early and overlaps with decoding


@dataclass(frozen=True)
class KnownFile:
    """A file, and what the library knows of the video at its path."""

    path: Path
    record: VideoRecord | None


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

    def __call__(self, path: KnownFile, digests: frozenset[str]) -> FoundFile | EncodedFile | Failure:
        """The vectors of a file; the file alone if its content is known; or why it cannot be used.

        Raises:
            IndexMismatchError: The encoder here is another one than that of the library.
        """
        try:
            file = recognise(path.path, path.record, self.sampling, Event())
            return file if file.digest in digests else self._encode(file)
        except (FeatureError, OSError) as error:
            return Failure(path.path, why_unusable(path.path, error))

    def _encode(self, file: FoundFile) -> EncodedFile:
        encoder, reader = self._tools()
        vectors, times_s, encode_s = [], [], 0.0
        started = time.perf_counter()
        stream = reader.read(file.path)
        for batch in stream:
            begun = time.perf_counter()
            vectors.append(encoder.encode_frames(batch.frames).astype(np.float16))
            times_s.append(batch.times_s)
            encode_s += time.perf_counter() - begun
        file.require_unchanged()
        decode_s = time.perf_counter() - started - encode_s
        features = FrameFeatures(np.concatenate(vectors), np.concatenate(times_s), stream.duration_s)
        size = stream.info.width, stream.info.height
        return EncodedFile(file, features, *size, stream.warnings, decode_s, encode_s)

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
