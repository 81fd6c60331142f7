"""Find the problems of a data set, and suggest a fix for each."""

import itertools
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from untrimmed.data.annotations import Annotation, videos_of
from untrimmed.data.benchmarks.benchmark import SPLITS
from untrimmed.data.emptiness import has_equal_rows, is_close
from untrimmed.data.layout import Layout
from untrimmed.data.layouts import open_frames, open_subtitles, open_teacher, open_words, read_split
from untrimmed.data.packed import read_finite, teacher_caption
from untrimmed.data.resampling import normalise
from untrimmed.data.sources import VectorSource
from untrimmed.data.subtitles import read_subtitles, width_error
from untrimmed.errors import FeatureError, UntrimmedError

MAX_LISTED = 10
"""Largest number of unusable entries that are listed. Further entries are only counted."""

Progress = Callable[[int, int], None]

logger = logging.getLogger(__name__)


def check_dataset(
    name: str,
    root: Path,
    *,
    splits: Sequence[str] = SPLITS,
    values: bool = True,
    video_features: str | None = None,
    progress: Progress | None = None,
) -> list[str]:
    """Return one line per problem (file, id, value found, fix), or an empty list if the data set can be used.

    Every feature is read. With `values=False`, only widths are checked, not values or damage inside files. `progress`
    is called with the number of entries done and the total.

    If all frames of a video are equal, only a warning is logged, because the video may show a still picture.
    """
    layout = Layout.at(root, name)
    if not layout.folder.is_dir():
        return [f"{layout.folder}: no such data set; {layout.next_step}"]
    problems: list[str] = []
    captions: dict[str, list[Annotation]] = {}
    for split in splits:
        try:
            captions[split] = read_split(name, root, split)
        except UntrimmedError as error:
            problems.append(str(error))
    # if one damaged file contains all splits, report it only once
    problems = list(dict.fromkeys(problems))
    for split, annotations in captions.items():
        problems += _check_captions(annotations, f"{layout.folder}, split {split}")
    problems += _check_leaks(captions, layout.folder)
    all_annotations = [annotation for annotations in captions.values() for annotation in annotations]
    videos = videos_of(all_annotations)
    caption_ids = list(dict.fromkeys(annotation.caption_id for annotation in all_annotations))
    counter = itertools.count(1)
    total = len(videos) + len(caption_ids)

    def advance() -> None:
        if progress is not None:
            progress(next(counter), total)

    try:
        frames = open_frames(layout, video_features)
        problems += _check_source(frames, videos, "video", values, advance, _fix_of_missing_videos(layout))
    except UntrimmedError as error:
        problems.append(str(error))
    try:
        problems += _check_source(open_words(layout), caption_ids, "caption", values, advance)
    except UntrimmedError as error:
        problems.append(str(error))
    problems += _check_subtitles(layout, videos, values)
    return problems + _check_teacher(layout, captions.get("train", []), values)


def _fix_of_missing_videos(layout: Layout) -> str:
    if layout.benchmark is None:
        return "extract their features or remove their captions"
    name = layout.benchmark.name
    option = "" if name == layout.name else f" --name {layout.name}"
    command = f"untrimmed data prepare {name}{option} --annotations DIR --out {layout.folder.parent}"
    return f"extract their features, or leave out their captions: {command} --only-with-features"


def _check_captions(annotations: list[Annotation], place: str) -> list[str]:
    counts = Counter(annotation.caption_id for annotation in annotations)
    repeated = [caption_id for caption_id, count in counts.items() if count > 1]
    empty = [annotation.caption_id for annotation in annotations if not annotation.text]
    problems = []
    if repeated:
        problems.append(f"{place}: caption ids {_first_names(repeated)} are repeated; rename all but one of each")
    if empty:
        problems.append(f"{place}: captions {_first_names(empty)} are empty; write a sentence or remove the lines")
    return problems


def _check_leaks(captions: dict[str, list[Annotation]], folder: Path) -> list[str]:
    """Report videos that are in train and in another split.

    Val and test may share videos, because in most benchmarks they are the same split.
    """
    trained = set(videos_of(captions.get("train", [])))
    problems = []
    for split in ("val", "test"):
        shared = [video for video in videos_of(captions.get(split, [])) if video in trained]
        if shared:
            what = f"videos {_first_names(shared)} are in train and in {split}, so recall has no meaning"
            problems.append(f"{folder}: {what}; remove each video from one of them")
    return problems


def _check_source(
    source: VectorSource,
    names: Sequence[str],
    what: str,
    values: bool,
    advance: Callable[[], object] = lambda: None,
    fix: str = "extract their features or remove their captions",
) -> list[str]:
    missing: list[str] = []
    empty: list[str] = []
    unusable: list[str] = []
    emptiness = _EmptinessCheck(what, source)
    _ = source.dim  # open the files of a BigFile folder, so that damage is reported once and not per video
    for name in names:
        advance()
        if name not in source:
            missing.append(name)
            continue
        try:
            if source.count(name) == 0:
                empty.append(name)
            elif values:
                emptiness.add(name, read_finite(source, name))
        except FeatureError as error:
            unusable.append(str(error))
    problems = []
    if missing:
        problems.append(_missing(source, what, missing, len(names), fix))
    if empty:
        unit = "frame" if what == "video" else "word"
        problems.append(f"{source.place}: no {unit} vectors of {what} {_first_names(empty)}; extract or remove them")
    problems += emptiness.problems()
    problems += unusable[:MAX_LISTED]
    if len(unusable) > MAX_LISTED:
        problems.append(f"{source.place}: {len(unusable) - MAX_LISTED} more unusable entries; fix those above first")
    return problems


def _missing(source: VectorSource, what: str, missing: Sequence[str], count: int, fix: str) -> str:
    """Return the message about missing entries. If all entries are missing, the message shows an id from the source."""
    problem = f"{source.place}: no features of {len(missing):,} of {count:,} {what}s: {_first_names(missing)}"
    if len(missing) < count:
        return f"{problem}; {fix}"
    names = "ids" if what == "caption" else "names"
    return f"{problem}; its {names} look like {source.first_name!r}: use the features of this data set, or rename them"


def _check_subtitles(layout: Layout, videos: Sequence[str], values: bool) -> list[str]:
    """Check the subtitle files, if they exist. Videos without subtitles are not reported."""
    try:
        if layout.subtitles.is_file():
            read_subtitles(layout.subtitles, videos)
        if not layout.subtitle_vectors.is_file():
            return []
        source = open_subtitles(layout)
        present = [video for video in videos if video in source and source.count(video)]
        width = open_words(layout).dim
    except UntrimmedError as error:
        return [str(error)]
    problems = _check_source(source, present or videos, "video", values)
    if source.dim != width:
        problems.append(str(width_error(str(source.place), source.dim, width)))
    return problems


def _check_teacher(layout: Layout, annotations: list[Annotation], values: bool) -> list[str]:
    """Check the two files of DL-DKD's teacher, if at least one exists."""
    if not (layout.teacher_frames.is_file() or layout.teacher_sentences.is_file()):
        return []
    try:
        frames, sentences = open_teacher(layout)
    except UntrimmedError as error:
        return [str(error)]
    caption_ids = [teacher_caption(sentences, annotation.caption_id) for annotation in annotations]
    problems = _check_source(frames, videos_of(annotations), "video", values)
    return problems + _check_source(sentences, caption_ids, "caption", values)


def _first_names(names: Iterable[str]) -> str:
    """Format up to three names, and say how many more there are.

    >>> _first_names(["a", "b", "c", "d"])
    "'a', 'b', 'c' and 1 more"
    """
    listed = list(names)
    text = ", ".join(repr(name) for name in listed[:3])
    return f"{text} and {len(listed) - 3} more" if len(listed) > 3 else text


class _EmptinessCheck:
    """Finds entries without information: all zeros, or equal to all other entries. Warns of entries with equal rows."""

    def __init__(self, what: str, source: VectorSource):
        self._what = what
        self._place = source.place
        self._zeros: list[str] = []
        self._constant: list[str] = []
        self._first: np.ndarray | None = None
        self._num_entries = 0
        self._same_row = True
        self._same_table = True

    def add(self, name: str, rows: np.ndarray) -> None:
        self._num_entries += 1
        if self._same_row or self._same_table:
            table = normalise(rows)  # compare normalised rows, which are the input of models
            self._first = table if self._first is None else self._first
            self._same_row = self._same_row and is_close(table, self._first[:1])
            self._same_table = self._same_table and is_close(table, self._first)
        if not rows.any():
            self._zeros.append(name)
        elif has_equal_rows(rows):
            self._constant.append(name)

    def problems(self) -> list[str]:
        if (self._same_row or self._same_table) and self._num_entries > 1:
            return [f"{self._place}: every {self._what} has the same features; extract them again"]
        problems = []
        if self._zeros:
            what = f"the features of {self._what} {_first_names(self._zeros)} are all zeros"
            problems.append(f"{self._place}: {what}; extract them again or remove their captions")
        if self._constant:  # only a warning: the video may show a still picture
            unit = "frames" if self._what == "video" else "words"
            what = f"all {unit} of {self._what} {_first_names(self._constant)} have the same features"
            logger.warning("%s: %s; extract them again if the video does change", self._place, what)
        return problems
