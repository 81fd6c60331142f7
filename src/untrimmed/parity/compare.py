"""Ours against theirs, array by array, each with the tolerance of its kind."""

import re
from collections.abc import Sequence
from dataclasses import astuple, dataclass

import numpy as np

from untrimmed.parity.case import Arrays


@dataclass(frozen=True)
class Comparison:
    """The largest difference in one array and how large it may be; a failure says why when there is no number."""

    name: str
    difference: float
    tolerance: float
    failure: str = ""

    @property
    def passed(self) -> bool:
        """Whether the difference is within the tolerance; NaN is not."""
        return not self.failure and self.difference <= self.tolerance

    def __str__(self) -> str:
        verdict = "ok" if self.passed else f"FAIL {self.failure}".rstrip()
        return f"{self.name:<58} max |difference| {self.difference:9.3g}  tolerance {self.tolerance:9.3g}  {verdict}"


@dataclass(frozen=True)
class Tolerance:
    """Allowed: `absolute` + `relative` * the largest recorded magnitude of the array.

    No less than the rounding of that magnitude in the format that was recorded: multipliers that one case holds in
    float64 stand in float32 in another.
    """

    absolute: float
    relative: float = 0.0

    def of(self, expected: np.ndarray) -> float:
        """The limit for one array."""
        scale = float(np.nanmax(np.abs(expected), initial=0.0))
        return max(self.absolute + self.relative * scale, float(np.finfo(expected.dtype).eps) * scale)


Rules = Sequence[tuple[str, Tolerance]]

RAW_SCORES = r"expected/.*_scores_raw"

# The first pattern that matches `file/array` decides. Scores and losses have the limits that the project promises;
# encodings are held to the limit of raw scores relative to their size. Windows were recorded in float32, whose
# rounding of the narrowest ones (width 0.1) alone is 5e-6; ours are computed in float64.
RULES: Rules = (
    (r"expected/(clip|frame|fused|train_frame)_scores", Tolerance(1e-6)),
    (RAW_SCORES, Tolerance(2e-5)),
    (r"expected/(nce|triplet|query_diverse|optimal_matching|total|loss)", Tolerance(1e-7, 1e-5)),
    (r"expected/lr_multiplier", Tolerance(1e-12)),
    (r"expected/(.*metrics.*)", Tolerance(0.0, 1e-6)),
    (r"expected/window_", Tolerance(1e-5)),
    (
        r"expected/(clip_average|sampled_frames|l2_output|train_(clip|frame)_video|train_text|text_batch|video_batch)",
        Tolerance(1e-6),
    ),
    (r"expected/", Tolerance(1e-6, 1e-5)),
    (r"grads/", Tolerance(1e-6, 1e-5)),
    (r"weights_final/", Tolerance(1e-5)),
)


def stretched(rules: Rules, factor: float) -> Rules:
    """The rules with all limits so many times as wide, but for learning rates, which no weight enters."""
    return [
        (pattern, limit if "lr_multiplier" in pattern else Tolerance(*(factor * part for part in astuple(limit))))
        for pattern, limit in rules
    ]


def tolerance_of(name: str, rules: Rules) -> Tolerance:
    """The first rule whose pattern matches the whole array name or its beginning."""
    exact = [limit for pattern, limit in rules if re.fullmatch(pattern, name)]
    return exact[0] if exact else next(limit for pattern, limit in rules if re.match(pattern, name))


def compare(name: str, ours: np.ndarray | None, theirs: np.ndarray, tolerance: Tolerance) -> Comparison:
    """One array; whole numbers and texts must be equal, and the difference counts the entries that are not."""
    if ours is None:
        return Comparison(name, np.nan, 0.0, "not produced here")
    if ours.shape != theirs.shape:
        return Comparison(name, np.nan, 0.0, f"shape {ours.shape}, wanted {theirs.shape}")
    if theirs.dtype.kind not in "fc":
        return Comparison(name, float(np.count_nonzero(ours != theirs)), 0.0)
    limit = tolerance.of(theirs)
    both_nan = np.isnan(ours) & np.isnan(theirs)
    difference = np.abs(ours.astype(np.float64) - theirs.astype(np.float64))[~both_nan]
    return Comparison(name, float(difference.max(initial=0.0)), limit)


def compare_all(file: str, ours: Arrays, theirs: Arrays, rules: Rules) -> list[Comparison]:
    """Every recorded array of one file."""
    names = [f"{file}/{name}" for name in theirs]
    return [
        compare(name, ours.get(name), array, tolerance_of(name, rules))
        for name, array in zip(names, theirs.values(), strict=True)
    ]
