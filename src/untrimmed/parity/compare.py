"""Compare our arrays with the recorded arrays. The tolerance of an array depends on its name."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from untrimmed.parity.case import Arrays


@dataclass(frozen=True)
class ArrayComparison:
    """The largest difference between our array and the recorded array, and the tolerance.

    - `failure` is the reason why no difference was computed, for example different shapes.
    - `rounding` is the rounding error of our array in float32, or 0 if this error did not raise the tolerance.
    """

    name: str
    difference: float
    tolerance: float
    failure: str = ""
    rounding: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether the difference is within the tolerance. A difference of NaN is a failure."""
        return not self.failure and self.difference <= self.tolerance

    def __str__(self) -> str:
        verdict = "ok" if self.passed else f"FAIL {self.failure}".rstrip()
        if self.rounding:
            verdict += f" (widened: rounding alone is {self.rounding:.2g})"
        return f"{self.name:<58} max |difference| {self.difference:9.3g}  tolerance {self.tolerance:9.3g}  {verdict}"


@dataclass(frozen=True)
class Tolerance:
    """The largest difference allowed for an array: `absolute` + `relative` * the largest recorded absolute value.

    The tolerance is at least `roundings` times the rounding error of the largest value in the recorded number format.
    This matters for learning-rate factors, which some cases recorded in float64 and others in float32.
    """

    absolute: float
    relative: float = 0.0
    roundings: float = 1.0

    def of(self, expected: np.ndarray) -> float:
        """Return the tolerance for one recorded array."""
        finite = np.abs(expected[np.isfinite(expected)])
        scale = float(finite.max(initial=0.0))
        return max(self.absolute + self.relative * scale, self.roundings * float(np.finfo(expected.dtype).eps) * scale)


Rules = Sequence[tuple[str, Tolerance]]

RAW_SCORES = r"expected/.*_scores_raw"

# The rounding error of our array is its difference from the same array in double precision. A tolerance may grow to
# this multiple of the rounding error, because the released program adds numbers in another order, with a similar error.
ROUNDINGS = 3.0

# The first pattern that matches `file/array` selects the tolerance.
# - Scores and losses have the tolerances that the project promises.
# - Raw scores are dot products of unnormalised vectors. In the golden data they reach 20, where 2e-5 is eight rounding
#   errors. Larger scores may also differ by eight rounding errors.
# - The tolerance of encodings is relative to their size.
# - Attention windows were recorded in float32, but we compute them in float64. In the narrowest windows (width 0.1),
#   the recorded values have a rounding error of 5e-6.
RULES: Rules = (
    (r"expected/((clip|frame|fused|train_frame)_scores|word_confidence)", Tolerance(1e-6)),
    (RAW_SCORES, Tolerance(2e-5, roundings=8)),
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


def tolerance_of(name: str, rules: Rules) -> Tolerance:
    """Return the tolerance of an array. `rules` are pairs of a regular expression and a tolerance.

    The first pattern that matches the whole name applies. If no pattern does, the first pattern that matches the
    beginning of the name applies.
    """
    exact = [limit for pattern, limit in rules if re.fullmatch(pattern, name)]
    return exact[0] if exact else next(limit for pattern, limit in rules if re.match(pattern, name))


def compare(
    name: str,
    ours: np.ndarray | None,
    theirs: np.ndarray,
    tolerance: Tolerance,
    *,
    rounding: float = 0.0,
    widest: float = 1.0,
) -> ArrayComparison:
    """Compare our array with the recorded array.

    Integers and texts must be equal; their difference is the number of unequal entries. The tolerance of other arrays
    grows with `rounding`, the measured rounding error of our array, up to `widest` times the normal tolerance.
    """
    if ours is None:
        return ArrayComparison(name, np.nan, 0.0, "not produced here")
    if ours.shape != theirs.shape:
        return ArrayComparison(name, np.nan, 0.0, f"shape {ours.shape}, expected {theirs.shape}")
    if theirs.dtype.kind not in "fc":
        return ArrayComparison(name, float(np.count_nonzero(ours != theirs)), 0.0)
    if ours.dtype.kind not in "fciub":
        return ArrayComparison(name, np.nan, 0.0, f"contains {ours.dtype}, expected numbers")
    stated = tolerance.of(theirs)
    limit = max(stated, min(ROUNDINGS * rounding, widest * stated))
    # treat equal infinities as equal, because their difference would be NaN
    is_equal = (np.isnan(ours) & np.isnan(theirs)) | (ours == theirs)
    difference = np.abs(ours[~is_equal].astype(np.float64) - theirs[~is_equal].astype(np.float64))
    largest = float(difference.max(initial=0.0))
    return ArrayComparison(name, largest, limit, rounding=rounding if limit > stated else 0.0)


def compare_all(
    file: str,
    ours: Arrays,
    theirs: Arrays,
    rules: Rules,
    *,
    rounding: dict[str, float] | None = None,
    widest: float = 1.0,
) -> list[ArrayComparison]:
    """Compare every recorded array of one file.

    `rounding` contains the measured rounding error of each of our arrays, by `file/array`.
    """
    measured = rounding or {}
    return [
        compare(
            name,
            ours.get(name),
            array,
            tolerance_of(name, rules),
            rounding=measured.get(name, 0.0),
            widest=widest,
        )
        for name, array in ((f"{file}/{array}", theirs[array]) for array in theirs)
    ]
