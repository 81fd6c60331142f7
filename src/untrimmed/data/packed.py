"""Features that are resampled once and stored in memory-mapped arrays, so that reading a batch is fast.

A cache is a folder `<key>/` that contains

- `clips.npy` [V, L, D], `frames.npy` [sum of T, D] and `words.npy` [sum of W, E],
- the offsets of each video's frames and each caption's words,
- the vectors of passages, if they are read, and the teacher's vectors for DL-DKD.

The key is a hash of the settings, the ids, and the names, sizes and modification times of the feature files. Changed
features therefore get a new cache.
"""

import hashlib
import json
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from untrimmed.config import Checked
from untrimmed.data.resampling import at_most, normalise, segment_means
from untrimmed.data.sources import VectorSource
from untrimmed.errors import ConfigError, FeatureError
from untrimmed.files import whole_folder

FORMAT = 1
"""The format of the cache.

Increase this number when packed values change for the same input, so that old caches are not read.
"""

TeacherRule = Literal["conference", "later"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class PackSettings(metaclass=Checked):
    """How features are resampled.

    - `fixed_frames` gives every video exactly `max_frames` rows by repeating frames of short videos (JSG's default).
    - `precision` is the number format in which means and norms are computed. The releases use float64 for BigFile
      folders and float32 for JSG's HDF5 files.
    - `teacher` selects how DL-DKD's student and teacher get the same number of frames; None means no teacher.
      `conference` drops the teacher's last frames. `later` does the same, but if the teacher has fewer frames than the
      student, it first averages the student's frames to the number of teacher frames.
    - `max_passages` limits the number of subtitle vectors per video. If a video has more vectors, they are averaged
      like frames. With 0, subtitles are not read.
    """

    num_clips: int = 32
    max_frames: int = 128
    max_words: int = 30
    fixed_frames: bool = False
    precision: Literal["float32", "float64"] = "float64"
    dtype: Literal["float16", "float32"] = "float32"
    teacher: TeacherRule | None = None
    max_passages: int = 0

    def __post_init__(self) -> None:
        for name in ("num_clips", "max_frames", "max_words"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}, expected at least 1")
        if self.max_passages < 0:
            raise ConfigError(f"max_passages is {self.max_passages}, expected at least 0")


class VideoArrays(NamedTuple):
    """Features of a batch of videos: clips, zero-padded frames, and a mask in which real frames are True."""

    clips: Float[np.ndarray, "V L D"]
    frames: Float[np.ndarray, "V T D"]
    frame_mask: Bool[np.ndarray, "V T"]


class PaddedRows(NamedTuple):
    """Tables that are zero-padded to the length of the longest table, and a mask in which real rows are True."""

    rows: Float[np.ndarray, "N R D"]
    mask: Bool[np.ndarray, "N R"]


@dataclass(frozen=True)
class RaggedRows:
    """Tables of one width and different lengths in one array; table i is `rows[offsets[i]:offsets[i + 1]]`."""

    rows: Float[np.ndarray, "R D"]
    offsets: Int[np.ndarray, " N"]

    @property
    def lengths(self) -> Int[np.ndarray, " N"]:
        """Number of rows of each table."""
        return np.diff(self.offsets)

    @property
    def dim(self) -> int:
        """Width of a row."""
        return self.rows.shape[1]

    def table(self, index: int) -> Float[np.ndarray, "T D"]:
        """Return one table as stored."""
        return self.rows[self.offsets[index] : self.offsets[index + 1]]

    def padded(self, index: Int[np.ndarray, " B"]) -> PaddedRows:
        """Return a batch of tables as float32, zero-padded to the longest table of the batch."""
        starts = self.offsets[index]
        lengths = self.lengths[index]
        mask = np.arange(lengths.max(initial=0)) < lengths[:, None]
        rows = np.zeros((*mask.shape, self.dim), dtype=np.float32)
        for place, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
            # indexing with an array would copy the rows twice
            rows[place, :length] = self.rows[start : start + length]
        return PaddedRows(rows, mask)


@dataclass(frozen=True)
class TeacherFeatures:
    """CLIP vectors for DL-DKD, not normalised.

    The frames of each video are aligned with the student's frames. Each caption has one sentence vector.
    """

    frames: RaggedRows
    sentences: Float[np.ndarray, "Q S"]


@dataclass(frozen=True)
class PackedFeatures:
    """Resampled features of one split. Videos and captions are indexed by their position in the split."""

    clips: Float[np.ndarray, "V L D"]
    frames: RaggedRows
    words_packed: RaggedRows
    teacher: TeacherFeatures | None
    settings: PackSettings
    folder: Path | None  # folder of the cache; None for features in memory
    # vectors of each video's subtitles; a video without subtitles has one row of zeros
    passages: RaggedRows | None = None

    def videos(self, index: Int[np.ndarray, " B"]) -> VideoArrays:
        """Return the clips, padded frames and frame mask of the given videos, in the given order, as float32."""
        frames, mask = self.frames.padded(index)
        return VideoArrays(np.asarray(self.clips[index], dtype=np.float32), frames, mask)

    def words(self, index: Int[np.ndarray, " B"]) -> PaddedRows:
        """Return the padded words and word mask of the given captions, in the given order, as float32."""
        return self.words_packed.padded(index)


@dataclass(frozen=True)
class PackSources:
    """Where to read raw features, and the ids of the videos and captions to read."""

    frames: VectorSource
    words: VectorSource
    video_ids: Sequence[str]
    caption_ids: Sequence[str]
    teacher: tuple[VectorSource, VectorSource] | None = None
    subtitles: VectorSource | None = None

    def key(self, settings: PackSettings) -> str:
        """Return a hash that changes with the settings, the ids and the feature files."""
        videos = list(self.video_ids)
        captions = list(self.caption_ids)
        files = self.frames.files(videos) + self.words.files(captions)
        if self.teacher is not None:
            files += self.teacher[0].files(videos) + self.teacher[1].files(captions)
        chosen = asdict(settings)
        if self.subtitles is not None:
            files += self.subtitles.files(videos)
        else:
            del chosen["max_passages"]  # so that caches from versions without subtitles keep their keys
        stamps = [_stamp(path) for path in files]
        content = json.dumps([FORMAT, chosen, videos, captions, stamps])
        return hashlib.blake2b(content.encode(), digest_size=12).hexdigest()


def _stamp(path: Path) -> tuple[str, int, int]:
    try:
        status = path.stat()
    except OSError as error:
        raise FeatureError(f"{path}: cannot be read ({error.strerror}); choose a complete data folder") from error
    return str(path.resolve()), status.st_size, status.st_mtime_ns


def open_packed(
    sources: PackSources,
    cache_dir: Path,
    settings: PackSettings,
    progress: Callable[[int, int], None] | None = None,
) -> PackedFeatures:
    """Return the packed features from the cache, and pack them first if necessary.

    `progress` is called with the number of packed videos and the total. After an error, the cache is unchanged.

    Raises: FeatureError with file and id for an entry that is missing, empty, not finite or of a different width.
    """
    folder = cache_dir / sources.key(settings)
    if not folder.is_dir():
        logger.info("packing %d videos and %d captions to %s", len(sources.video_ids), len(sources.caption_ids), folder)
        try:
            with whole_folder(folder) as temporary:
                pack(sources, settings, temporary, progress)
        except OSError as error:
            raise FeatureError(f"{cache_dir}: cannot be written ({error}); free space or set cache_dir") from error
    return _open(folder, settings)


def _open(folder: Path, settings: PackSettings) -> PackedFeatures:
    def ragged(name: str) -> RaggedRows:
        return RaggedRows(_load(folder, name), _load(folder, f"{name}_offsets", mapped=False))

    teacher = None
    if settings.teacher is not None:
        teacher = TeacherFeatures(ragged("teacher_frames"), _load(folder, "teacher_sentences"))
    passages = ragged("passages") if settings.max_passages else None
    return PackedFeatures(
        _load(folder, "clips"), ragged("frames"), ragged("words"), teacher, settings, folder, passages
    )


def _load(folder: Path, name: str, mapped: bool = True) -> np.ndarray:
    path = folder / f"{name}.npy"
    try:
        return np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise FeatureError(f"{path}: cannot be read ({error}); remove {folder} to pack the features again") from error


def pack(
    sources: PackSources,
    settings: PackSettings,
    folder: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> PackedFeatures:
    """Return the resampled features, stored in files of `folder`, or in memory if `folder` is None.

    Raises: FeatureError as in `open_packed`.
    """
    videos = sources.video_ids
    teacher = sources.teacher
    teacher_frames = teacher[0] if teacher is not None else None
    lengths = [_frame_count(sources.frames, teacher_frames, video, settings) for video in videos]
    dim = sources.frames.dim
    clips = _create(folder, "clips", (len(videos), settings.num_clips, dim), settings.dtype)
    frames = _create_ragged(folder, "frames", lengths, dim, settings.dtype)
    taught_frames = None
    if teacher_frames is not None:
        for video, length in zip(videos, lengths, strict=True):
            _require_teacher_frames(teacher_frames, video, length, settings)
        taught_frames = _create_ragged(folder, "teacher_frames", lengths, teacher_frames.dim, settings.dtype)
    for index, video in enumerate(videos):
        raw = read_finite(sources.frames, video).astype(settings.precision)
        clips[index] = normalise(segment_means(raw, settings.num_clips, np.float32))
        if taught_frames is not None and teacher_frames is not None:
            rows = at_most(read_finite(teacher_frames, video), settings.max_frames)
            taught_frames.table(index)[:] = rows[: lengths[index]]
            if settings.teacher == "later":
                raw = at_most(raw, teacher_frames.count(video))
        if settings.fixed_frames:
            sampled = segment_means(raw, settings.max_frames, np.float32)
        else:
            sampled = at_most(raw, settings.max_frames)
        frames.table(index)[:] = normalise(sampled)
        if progress is not None:
            progress(index + 1, len(videos))
    words = _pack_words(sources, folder, settings)
    teacher_features = None
    if teacher is not None and taught_frames is not None:
        sentences = _pack_sentences(teacher[1], sources.caption_ids, folder, settings)
        teacher_features = TeacherFeatures(taught_frames, sentences)
    passages = None if sources.subtitles is None else _pack_passages(sources.subtitles, videos, folder, settings)
    return PackedFeatures(clips, frames, words, teacher_features, settings, folder, passages)


def _pack_words(sources: PackSources, folder: Path | None, settings: PackSettings) -> RaggedRows:
    captions = sources.caption_ids
    lengths = [min(_count(sources.words, caption, "word"), settings.max_words) for caption in captions]
    words = _create_ragged(folder, "words", lengths, sources.words.dim, settings.dtype)
    for index, caption in enumerate(captions):
        words.table(index)[:] = normalise(read_finite(sources.words, caption))[: settings.max_words]
    return words


def _pack_passages(
    source: VectorSource, videos: Sequence[str], folder: Path | None, settings: PackSettings
) -> RaggedRows:
    counts = [source.count(video) if video in source else 0 for video in videos]
    if not any(counts):
        found = f"no vectors of subtitles of the {len(videos):,} videos, such as {videos[0]!r}; found"
        raise FeatureError(f"{source.place}: {found} {source.first_name!r}; use the file of this data set")
    lengths = [max(1, min(count, settings.max_passages)) for count in counts]
    passages = _create_ragged(folder, "passages", lengths, source.dim, settings.dtype)
    for index, (video, count) in enumerate(zip(videos, counts, strict=True)):
        if count:
            passages.table(index)[:] = normalise(at_most(read_finite(source, video), settings.max_passages))
    return passages


def _pack_sentences(
    source: VectorSource, captions: Sequence[str], folder: Path | None, settings: PackSettings
) -> Float[np.ndarray, "Q S"]:
    sentences = _create(folder, "teacher_sentences", (len(captions), source.dim), settings.dtype)
    for index, caption in enumerate(captions):
        rows = read_finite(source, teacher_caption(source, caption))
        if len(rows) != 1:
            raise FeatureError(f"{source.place}: caption {caption!r} has {len(rows)} sentence vectors, expected one")
        sentences[index] = rows[0]
    return sentences


def teacher_caption(source: VectorSource, caption: str) -> str:
    """Return the name of a caption's teacher vector. The files of DL-DKD++ have caption ids without `enc`."""
    short = caption.replace("#enc#", "#")
    return caption if caption in source or short not in source else short


def _frame_count(source: VectorSource, teacher: VectorSource | None, video: str, settings: PackSettings) -> int:
    count = _count(source, video, "frame")
    if settings.fixed_frames:
        return settings.max_frames
    if settings.teacher == "later" and teacher is not None:
        count = min(count, _count(teacher, video, "frame"))
    return min(count, settings.max_frames)


def _require_teacher_frames(source: VectorSource, video: str, student: int, settings: PackSettings) -> None:
    count = min(_count(source, video, "frame"), settings.max_frames)
    if count < student:
        what = f"video {video!r} has {count} teacher frames, expected {student} as for the student"
        raise FeatureError(f"{source.place}: {what}; extract more frames or set features.teacher=later")


def _count(source: VectorSource, name: str, what: str) -> int:
    count = source.count(name)
    if count == 0:
        raise FeatureError(f"{source.place}: {name!r} has no {what} vectors, expected some; extract or remove it")
    return count


def read_finite(source: VectorSource, name: str) -> np.ndarray:
    """Return the rows of an entry; raises FeatureError if a number is not finite."""
    rows = source.read(name)
    bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if len(bad):
        what = f"{name!r} is not finite in {len(bad)} of {len(rows)} rows, first in row {bad[0]}"
        raise FeatureError(f"{source.place}: {what}; extract it again")
    return rows


def _create(folder: Path | None, name: str, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    if folder is None:
        return np.zeros(shape, dtype)
    path = folder / f"{name}.npy"
    array = np.lib.format.open_memmap(path, mode="w+", dtype=np.dtype(dtype), shape=shape)
    # reserve the disk space now: on a full disk, a later write to the mapped file would kill the process
    if hasattr(os, "posix_fallocate"):
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return array


def _create_ragged(folder: Path | None, name: str, lengths: Sequence[int], dim: int, dtype: str) -> RaggedRows:
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    if folder is not None:
        np.save(folder / f"{name}_offsets.npy", offsets)
    return RaggedRows(_create(folder, name, (int(offsets[-1]), dim), dtype), offsets)
