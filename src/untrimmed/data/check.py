"""Find everything that is missing or wrong in a data set, each with what to do about it."""

import itertools
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from untrimmed.data.annotations import Annotation, videos_of
from untrimmed.data.benchmarks.benchmark import SPLITS
from untrimmed.data.emptiness import is_alike, is_still
from untrimmed.data.layout import Layout
from untrimmed.data.layouts import open_frames, open_teacher, open_words, read_split
from untrimmed.data.packed import read_finite
from untrimmed.data.resampling import normalise
from untrimmed.data.sources import VectorSource
from untrimmed.errors import FeatureError, UntrimmedError

MOST_LINES = 10
"""Problems of one kind that are named one by one before the rest is counted."""

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
    """One line a problem (file, id, what was found, what to do), none if the data set can be used.

    Reads every feature unless `values` is off; then widths are checked but neither finiteness nor damage inside files.
    A video all of whose frames are alike is logged as a warning, since it may be one in which nothing changes.
    `progress` is called with entries done and entries in all.
    """
    layout = Layout.at(root, name)
    if not layout.folder.is_dir():
        return [f"{layout.folder}: no such folder, wanted that of data set {name!r}; correct NAME or --root"]
    problems: list[str] = []
    captions: dict[str, list[Annotation]] = {}
    for split in splits:
        try:
            captions[split] = read_split(name, root, split)
        except UntrimmedError as error:
            problems.append(str(error))
    problems = list(dict.fromkeys(problems))  # one damaged plain file is the same problem in every split
    for split, own in captions.items():
        problems += _check_captions(own, f"{layout.folder}, split {split}")
    problems += _check_leaks(captions, layout.folder)
    everything = [annotation for own in captions.values() for annotation in own]
    videos = videos_of(everything)
    caption_ids = list(dict.fromkeys(annotation.caption_id for annotation in everything))
    counter = itertools.count(1)
    total = len(videos) + len(caption_ids)

    def done() -> None:
        if progress is not None:
            progress(next(counter), total)

    try:
        problems += _check_source(open_frames(layout, video_features), videos, "video", values, done)
    except UntrimmedError as error:
        problems.append(str(error))
    try:
        problems += _check_source(open_words(layout), caption_ids, "caption", values, done)
    except UntrimmedError as error:
        problems.append(str(error))
    return problems + _check_teacher(layout, captions.get("train", []), values)


def _check_captions(annotations: list[Annotation], place: str) -> list[str]:
    counts = Counter(annotation.caption_id for annotation in annotations)
    repeated = [caption_id for caption_id, count in counts.items() if count > 1]
    empty = [annotation.caption_id for annotation in annotations if not annotation.text]
    problems = []
    if repeated:
        problems.append(f"{place}: {_some(repeated)} occur more than once as caption id; rename all but one of each")
    if empty:
        problems.append(f"{place}: {_some(empty)} have an empty caption; write a sentence or remove the lines")
    return problems


def _check_leaks(captions: dict[str, list[Annotation]], folder: Path) -> list[str]:
    """Videos trained on and searched; val and test may be the same, as they are for most benchmarks."""
    trained = set(videos_of(captions.get("train", [])))
    problems = []
    for split in ("val", "test"):
        shared = [video for video in videos_of(captions.get(split, [])) if video in trained]
        if shared:
            what = f"{_some(shared)} are in train and in {split}"
            problems.append(f"{folder}: {what}; take each video out of one of them, or recall means nothing")
    return problems


def _check_source(
    source: VectorSource, names: Sequence[str], what: str, values: bool, done: Callable[[], object] = lambda: None
) -> list[str]:
    missing: list[str] = []
    empty: list[str] = []
    unusable: list[str] = []
    content = _Content(what, source)
    _ = source.dim  # a BigFile folder opens its files here: damage to them is one problem, not one per video
    for name in names:
        done()
        if name not in source:
            missing.append(name)
            continue
        try:
            if source.count(name) == 0:
                empty.append(name)
            elif values:
                content.add(name, read_finite(source, name))
        except FeatureError as error:
            unusable.append(str(error))
    problems = []
    if missing:
        rest = "" if len(missing) < len(names) else f", that is, every {what}: are these features of this data set?"
        fix = f"extract their features, or remove their captions{rest}"
        problems.append(f"{source.place}: no features of {what} {_some(missing)}; {fix}")
    if empty:
        unit = "frame" if what == "video" else "word"
        problems.append(f"{source.place}: {what} {_some(empty)} without a single {unit}; extract again or remove")
    problems += content.problems()
    problems += unusable[:MOST_LINES]
    if len(unusable) > MOST_LINES:
        problems.append(f"{source.place}: {len(unusable) - MOST_LINES} more of the kind above; see to those first")
    return problems


def _check_teacher(layout: Layout, annotations: list[Annotation], values: bool) -> list[str]:
    """The files of DL-DKD's teacher, where at least one of the two is there."""
    if not (layout.teacher_frames.is_file() or layout.teacher_sentences.is_file()):
        return []
    try:
        frames, sentences = open_teacher(layout)
    except UntrimmedError as error:
        return [str(error)]
    ids = [annotation.caption_id for annotation in annotations]
    known = [caption_id if caption_id in sentences else caption_id.replace("#enc#", "#") for caption_id in ids]
    problems = _check_source(frames, videos_of(annotations), "video", values)
    return problems + _check_source(sentences, known, "caption", values)


def _some(names: Iterable[str]) -> str:
    """Up to three names and how many more there are.

    >>> _some(["a", "b", "c", "d"])
    "'a', 'b', 'c' and 1 more"
    """
    listed = list(names)
    text = ", ".join(repr(name) for name in listed[:3])
    return f"{text} and {len(listed) - 3} more" if len(listed) > 3 else text


class _Content:
    """Notes entries that say nothing: all zeros, the same in all entries, or (a warning) the same in all their rows."""

    def __init__(self, what: str, source: VectorSource):
        self._what = what
        self._place = source.place
        self._zeros: list[str] = []
        self._still: list[str] = []
        self._first: np.ndarray | None = None
        self._num_entries = 0
        self._same_row = True
        self._same_table = True

    def add(self, name: str, rows: np.ndarray) -> None:
        self._num_entries += 1
        if self._same_row or self._same_table:  # as models read them: of unit length
            read = normalise(rows)
            self._first = read if self._first is None else self._first
            self._same_row = self._same_row and is_alike(read, self._first[:1])
            self._same_table = self._same_table and is_alike(read, self._first)
        if not rows.any():
            self._zeros.append(name)
        elif is_still(rows):
            self._still.append(name)

    def problems(self) -> list[str]:
        if (self._same_row or self._same_table) and self._num_entries > 1:
            return [f"{self._place}: every {self._what} has the same features; extract them again"]
        problems = []
        if self._zeros:
            what = f"the features of {self._what} {_some(self._zeros)} are all zeros"
            problems.append(f"{self._place}: {what}; extract them again, or remove their captions")
        if self._still:  # the truth where nothing changes: no reason to call the data set unusable
            unit = "frames" if self._what == "video" else "words"
            what = f"all {unit} of {self._what} {_some(self._still)} have the same features"
            logger.warning("%s: %s; extract them again, unless nothing changes there", self._place, what)
        return problems
