"""One split of a data set, ready for training and evaluation."""

import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, SupportsIndex, overload

import numpy as np
from jaxtyping import Float, Int

from untrimmed.config import checked, converted
from untrimmed.data.annotations import Annotation, Span, videos_of
from untrimmed.data.labelled import cut_to_video
from untrimmed.data.layout import Layout
from untrimmed.data.layouts import (
    JSGLayout,
    layout_of,
    open_frames,
    open_subtitles,
    open_teacher,
    open_words,
    read_split,
)
from untrimmed.data.packed import (
    PackedFeatures,
    PackSettings,
    PackSources,
    TeacherRule,
    open_packed,
    pack,
    teacher_caption,
)
from untrimmed.data.sources import ArrayVectors, VectorSource
from untrimmed.errors import FeatureError

_NO_LIMIT = 2**31 - 1  # larger than any number of frames or words


class TrainingRows(NamedTuple):
    """Row numbers of the videos and captions of a training batch, in the order of the released programs.

    `video_index` is the position of each caption's video in `videos`.
    """

    videos: Int[np.ndarray, " V"]
    captions: Int[np.ndarray, " Q"]
    video_index: Int[np.ndarray, " Q"]


class CaptionItem(NamedTuple):
    """One caption of a data set, its word features, and the features of its video, as float32."""

    annotation: Annotation
    words: Float[np.ndarray, "W E"]
    clips: Float[np.ndarray, "L C"]
    frames: Float[np.ndarray, "T C"]


@dataclass(frozen=True, repr=False)
class RetrievalDataset:
    """Videos, captions and features of one split. Each caption is a query, and each distinct video a candidate.

    `len(data)` is the number of captions, and `data[row]` is a `CaptionItem`. Reading a batch with
    `data.features.videos` is faster than reading its items. Captions are in file order, videos in order of first
    appearance.

    - Moments are in seconds, and empty if the files contain no times.
    - `several_annotators` means that each caption has one moment per annotator, all for the same event (DiDeMo).
    - `source` describes the features in words; it is empty for features in memory.
    - `dense_labels` is the path of the file that lists all correct videos of each caption, or None.
    """

    name: str
    split: str
    annotations: tuple[Annotation, ...]
    features: PackedFeatures
    several_annotators: bool = False
    source: str = ""
    dense_labels: Path | None = None

    def __post_init__(self) -> None:
        for what, count, num_features in (
            ("captions", len(self.annotations), len(self.features.words_packed.lengths)),
            ("videos", len(self.video_ids), len(self.features.clips)),
        ):
            if num_features != count or not count:
                place = f"{self.name}, split {self.split}"
                advice = "create another data set with load_dataset or dataset_of_arrays"
                raise FeatureError(f"{place}: {count:,} {what}, expected {num_features:,} as in the features; {advice}")

    def __repr__(self) -> str:
        sizes = f"{len(self.video_ids):,} videos, {len(self):,} captions"
        widths = f"frames {self.video_dim} wide, words {self.query_dim} wide"
        return f"<RetrievalDataset {self.name}, {self.split}: {sizes}, {widths}>"

    def __len__(self) -> int:
        """The number of captions."""
        return len(self.annotations)

    @overload
    def __getitem__(self, row: SupportsIndex) -> CaptionItem: ...

    @overload
    def __getitem__(self, row: slice) -> list[CaptionItem]: ...

    def __getitem__(self, row: SupportsIndex | slice) -> CaptionItem | list[CaptionItem]:
        """Return one caption with its features, or a list for a slice. A negative row counts from the end.

        Raises: IndexError for a row outside the data set, TypeError for anything but a whole number or a slice.
        """
        if isinstance(row, slice):
            return [self[number] for number in range(*row.indices(len(self)))]
        number = operator.index(row)
        if not -len(self) <= number < len(self):
            raise IndexError(f"row {number} of {len(self):,} captions")
        number %= len(self)
        video = int(self.video_index[number])
        tables = (
            self.features.words_packed.table(number),
            self.features.clips[video],
            self.features.frames.table(video),
        )
        return CaptionItem(self.annotations[number], *(np.asarray(table, dtype=np.float32) for table in tables))

    @cached_property
    def video_ids(self) -> tuple[str, ...]:
        """The distinct videos in order of first appearance."""
        return tuple(videos_of(self.annotations))

    @property
    def caption_ids(self) -> tuple[str, ...]:
        """The id of each caption."""
        return tuple(annotation.caption_id for annotation in self.annotations)

    @property
    def texts(self) -> tuple[str, ...]:
        """The text of each caption."""
        return tuple(annotation.text for annotation in self.annotations)

    @property
    def moments(self) -> tuple[tuple[Span, ...], ...]:
        """The annotated spans of each caption in seconds."""
        return tuple(annotation.moments for annotation in self.annotations)

    @cached_property
    def video_index(self) -> Int[np.ndarray, " Q"]:
        """The position of each caption's video in `video_ids`."""
        row_of = {video: row for row, video in enumerate(self.video_ids)}
        return np.array([row_of[annotation.video] for annotation in self.annotations])

    @cached_property
    def main_moments_s(self) -> Float[np.ndarray, "Q 2"]:
        """Start and end of each caption's main moment in seconds, or NaN for a caption without a moment."""
        spans = [annotation.main_moment or (np.nan, np.nan) for annotation in self.annotations]
        return np.array(spans, dtype=np.float64)

    @cached_property
    def durations_s(self) -> Float[np.ndarray, " V"]:
        """The length of each video in seconds, NaN if unknown.

        If the captions of a video give different lengths, the last length is used, as in JSG.
        """
        durations = {a.video: a.duration_s for a in self.annotations if a.duration_s is not None}
        return np.array([durations.get(video, np.nan) for video in self.video_ids], dtype=np.float64)

    @cached_property
    def moment_ratios(self) -> Float[np.ndarray, " Q"]:
        """Length of each caption's main moment divided by the length of its video (M/V), NaN if unknown."""
        ratios = [annotation.moment_ratio for annotation in self.annotations]
        return np.array([np.nan if ratio is None else ratio for ratio in ratios], dtype=np.float64)

    @property
    def video_dim(self) -> int:
        """Width of a frame feature."""
        return self.features.clips.shape[2]

    @property
    def query_dim(self) -> int:
        """Width of a word feature."""
        return self.features.words_packed.dim

    def captions_of(self, video: int) -> Int[np.ndarray, " N"]:
        """Return the row numbers of one video's captions, in file order."""
        order, offsets = self._captions_by_video
        return order[offsets[video] : offsets[video + 1]]

    def training_rows(
        self, videos: Int[np.ndarray, " V"], *, sort_by: Literal["frames", "captions"] = "frames"
    ) -> TrainingRows:
        """Return the row numbers of the videos and all their captions, in the order of a released training batch.

        Videos with more frames come first. With `sort_by="captions"` (DL-DKD), videos with more captions come first.
        Videos with equal numbers stay in the given order.
        """
        order, offsets = self._captions_by_video
        counts = np.diff(offsets)
        size = self.features.frames.lengths if sort_by == "frames" else counts
        videos = videos[np.argsort(-size[videos], kind="stable")]
        captions = np.concatenate([order[offsets[video] : offsets[video + 1]] for video in videos])
        return TrainingRows(videos, captions, np.repeat(np.arange(len(videos)), counts[videos]))

    @cached_property
    def _captions_by_video(self) -> tuple[Int[np.ndarray, " Q"], Int[np.ndarray, " N"]]:
        order = np.argsort(self.video_index, kind="stable")
        counts = np.bincount(self.video_index, minlength=len(self.video_ids))
        return order, np.concatenate([[0], np.cumsum(counts)])


@checked(name="the name of a data set", root="the folder that holds the data set")
def load_dataset(
    name: str,
    root: Path | str,
    split: str,
    *,
    num_clips: int = 32,
    max_frames: int = 128,
    max_words: int = 30,
    cache_dir: Path | str | None = None,
    dtype: Literal["float16", "float32"] = "float32",
    video_features: str | None = None,
    fixed_frames: bool = False,
    teacher: TeacherRule | None = None,
    max_passages: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> RetrievalDataset:
    """Return one split (train, val or test) of the data set ROOT/NAME, which may be in any layout.

    The first call resamples all features into `cache_dir` (default: ROOT/NAME/packed); later calls memory-map them.

    - `video_features` names the frame features to read, if the data set has several.
    - `fixed_frames` gives every video exactly `max_frames` rows (JSG).
    - `teacher` adds DL-DKD's CLIP vectors to the training split. `teacher` is ignored for other splits.
    - `max_passages` limits the number of subtitle vectors per video. With 0, subtitles are not read.
    - `progress` is called with the number of packed videos and the total.

    Raises:
        UnknownNameError: for an unknown split or frame feature.
        ConfigError: for a setting out of range, or several frame features without `video_features`.
        FeatureError: with file and id, for a missing, damaged, repeated, empty or non-finite entry.
    """
    layout, annotations = _captions(name, root, split)
    frames = open_frames(layout, video_features)
    settings = PackSettings(
        num_clips=num_clips,
        max_frames=max_frames,
        max_words=max_words,
        fixed_frames=fixed_frames,
        precision=frames.averages_in,
        dtype=dtype,
        teacher=teacher if split == "train" else None,
        max_passages=max_passages,
    )
    sources = PackSources(
        frames=frames,
        words=open_words(layout),
        video_ids=videos_of(annotations),
        caption_ids=[annotation.caption_id for annotation in annotations],
        teacher=open_teacher(layout) if settings.teacher else None,
        subtitles=open_subtitles(layout) if max_passages else None,
    )
    return _packed(layout, split, annotations, sources, settings, cache_dir, progress, _source(layout, frames))


@checked(name="the name of a data set", root="the folder that holds the data set")
def load_shared_space(
    name: str,
    root: Path | str,
    split: str,
    *,
    cache_dir: Path | str | None = None,
    video_features: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> RetrievalDataset:
    """Return one split whose frames and words are in the same vector space, for methods without training.

    By default, the CLIP vectors of DL-DKD's teacher are used if the data set has them. Each caption then has a single
    sentence vector. If the data set has no such vectors, or if `video_features` is given, the frames and words of the
    data set are used. Frames and words must come from one image-text encoder, but only their widths can be checked. All
    frames and words are kept.

    The other arguments are the same as for `load_dataset`.

    Raises:
        FeatureError: as in `load_dataset`, and for frames and words of different widths.
        UnknownNameError: for an unknown split or frame feature.
        ConfigError: for several frame features without `video_features`.
    """
    layout, annotations = _captions(name, root, split)
    caption_ids = [annotation.caption_id for annotation in annotations]
    has_teacher = layout.teacher_frames.is_file() and layout.teacher_sentences.is_file()
    if has_teacher and video_features is None and isinstance(layout_of(layout.folder), JSGLayout):
        frames, words = open_teacher(layout)
        source = f"the vectors of DL-DKD's teacher ({layout.teacher_frames.name})"
        caption_ids = [teacher_caption(words, caption_id) for caption_id in caption_ids]
    else:
        frames = open_frames(layout, video_features)
        words = open_words(layout)
        source = _source(layout, frames)
    if frames.dim != words.dim:
        raise FeatureError(
            f"{layout.folder}: frames have width {frames.dim}, words {words.dim}, expected vectors of one image-text "
            f"encoder; provide them, for example as {layout.teacher_frames.name} and {layout.teacher_sentences.name}"
        )
    settings = PackSettings(num_clips=1, max_frames=_NO_LIMIT, max_words=_NO_LIMIT)
    sources = PackSources(frames=frames, words=words, video_ids=videos_of(annotations), caption_ids=caption_ids)
    return _packed(layout, split, annotations, sources, settings, cache_dir, progress, source)


def _captions(name: str, root: Path | str, split: str) -> tuple[Layout, list[Annotation]]:
    layout = Layout.at(Path(root), name)
    annotations = read_split(name, Path(root), split)
    require_distinct(annotations, layout.folder, split)
    return layout, annotations


def _source(layout: Layout, frames: VectorSource) -> str:
    if isinstance(layout_of(layout.folder), JSGLayout):
        return f"the frames {frames.place.name} and the words of the data set"
    return "the frames and words of the data set"


def _packed(
    layout: Layout,
    split: str,
    annotations: Sequence[Annotation],
    sources: PackSources,
    settings: PackSettings,
    cache_dir: Path | str | None,
    progress: Callable[[int, int], None] | None,
    source: str,
) -> RetrievalDataset:
    return RetrievalDataset(
        name=layout.name,
        split=split,
        annotations=tuple(annotations),
        features=open_packed(sources, Path(cache_dir or layout.folder / "packed"), settings, progress),
        several_annotators=layout.benchmark is not None and layout.benchmark.several_annotators,
        source=source,
        dense_labels=layout.dense_labels(split),
    )


@checked(frames="a mapping: video id to table", words="a mapping: caption id to table")
def dataset_of_arrays(
    frames: Mapping[str, Any],
    words: Mapping[str, Any],
    annotations: Sequence[Annotation],
    settings: PackSettings | None = None,
    *,
    name: str = "arrays",
    split: str = "test",
) -> RetrievalDataset:
    """Return a split with features in memory: [frames, D] by video id and [words, E] by caption id.

    Features may be arrays, tensors or lists of rows, and are resampled as in `load_dataset`. Annotations may be
    mappings with the fields of `Annotation`. A teacher is not supported.

    Raises:
        FeatureError: as in `load_dataset`, and for a moment that ends before it begins or is outside its video.
        ConfigError: for an annotation with a field of the wrong type.
    """
    if not annotations:
        raise FeatureError(f"{name}: no annotations; pass at least one")
    annotations = [_converted(annotation, f"annotations[{row}]") for row, annotation in enumerate(annotations)]
    require_distinct(annotations, name, split)
    sources = PackSources(
        frames=ArrayVectors(frames, f"{name}, frames"),
        words=ArrayVectors(words, f"{name}, words"),
        video_ids=videos_of(annotations),
        caption_ids=[annotation.caption_id for annotation in annotations],
    )
    return RetrievalDataset(name, split, tuple(annotations), pack(sources, settings or PackSettings()))


def _converted(annotation: Annotation, place: str) -> Annotation:
    """Check an annotation, and return a copy whose moments end no later than the video."""
    annotation = converted(annotation, where=place)
    duration_s = annotation.duration_s
    place_of_id = f"{place} ({annotation.caption_id!r})"
    for start_s, end_s in annotation.moments:
        if not 0 <= start_s < end_s:
            what = f"{place_of_id}: moment from {start_s:g} to {end_s:g} s"
            raise FeatureError(f"{what}, expected 0 <= start_s < end_s; fix it")
    if duration_s is None:
        return annotation
    if not duration_s > 0:
        raise FeatureError(f"{place_of_id}: duration_s is {duration_s:g}, expected more than 0 or None; fix it")
    moments = tuple(cut_to_video(span, duration_s, video=annotation.video, place=place) for span in annotation.moments)
    return replace(annotation, moments=moments)


def require_distinct(annotations: Sequence[Annotation], place: Path | str, split: str) -> None:
    """Raise a FeatureError for a repeated caption id or an empty caption; `place` names the data set in messages."""
    counts = Counter(annotation.caption_id for annotation in annotations)
    caption_id, count = counts.most_common(1)[0]
    if count > 1:
        raise FeatureError(
            f"{place}, split {split}: caption id {caption_id!r} occurs {count} times; rename all but one"
        )
    empty = next((annotation.caption_id for annotation in annotations if not annotation.text), None)
    if empty is not None:
        raise FeatureError(f"{place}, split {split}: caption {empty!r} is empty; write a sentence or remove it")
