"""Statistics of the captions and moments of a split."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from untrimmed.data.ambiguity import count_ambiguous
from untrimmed.data.annotations import Annotation, videos_of
from untrimmed.data.layouts import read_split

RATIO_EDGES = tuple(i / 10 for i in range(11))
"""Edges of the moment-ratio histogram. A bin includes its upper edge."""


@dataclass(frozen=True)
class Description:
    """Statistics of a split. A mean is None if no value is known.

    - Words are separated by white space.
    - `equal_elsewhere` counts captions with an equal caption in another video. `nearly_equal_elsewhere` counts captions
      with an equal or nearly equal caption in another video (`data/ambiguity.py`).
    - `moment_ratios` is a histogram of main moment length / video length. The histogram has ten bins of equal width.
      The last bin includes ratios above 1.
    """

    split: str
    videos: int
    captions: int
    captions_per_video: float
    words_per_query: float
    longest_query: int
    equal_elsewhere: int
    nearly_equal_elsewhere: int
    moments_per_video: float
    captions_with_moment: int
    video_length_s: float | None
    moment_length_s: float | None
    moment_ratio: float | None
    moment_ratios: tuple[int, ...]


def describe_split(name: str, root: Path, split: str) -> Description:
    """Return the statistics of one split from its captions alone; raises the errors of `read_split`."""
    return describe(read_split(name, root, split), split)


def describe(annotations: list[Annotation], split: str) -> Description:
    """Return the statistics of at least one caption."""
    videos = len(videos_of(annotations))
    words = [len(annotation.text.split()) for annotation in annotations]
    durations = {a.video: a.duration_s for a in annotations if a.duration_s is not None}
    lengths = [moment[1] - moment[0] for a in annotations if (moment := a.main_moment) is not None]
    ratios = [ratio for a in annotations if (ratio := a.moment_ratio) is not None]
    equal, nearly_equal = count_ambiguous(annotations)
    bins = np.clip(np.searchsorted(RATIO_EDGES, ratios, side="left") - 1, 0, len(RATIO_EDGES) - 2)
    return Description(
        split=split,
        videos=videos,
        captions=len(annotations),
        captions_per_video=len(annotations) / videos,
        words_per_query=float(np.mean(words)),
        longest_query=max(words),
        equal_elsewhere=equal,
        nearly_equal_elsewhere=nearly_equal,
        moments_per_video=sum(len(annotation.moments) for annotation in annotations) / videos,
        captions_with_moment=len(lengths),
        video_length_s=_mean(list(durations.values())),
        moment_length_s=_mean(lengths),
        moment_ratio=_mean(ratios),
        moment_ratios=tuple(np.bincount(bins, minlength=len(RATIO_EDGES) - 1).tolist()),
    )


def _mean(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None
