"""Find peaks of a relevance curve and the spans around them, and widen short spans."""

import numpy as np
from jaxtyping import Bool, Float, Float64

Curve = Float[np.ndarray, " T"]


def best_index(start_s: float, end_s: float, times_s: Curve, values: Curve) -> int:
    """Return the index of the largest value in a span, or of the time nearest to its middle if no time is in the span.

    >>> best_index(1.0, 3.0, np.array([0.0, 1.0, 2.0, 4.0]), np.array([0.9, 0.2, 0.4, 0.8]))
    2
    """
    inside = np.flatnonzero((times_s >= start_s) & (times_s <= end_s))
    if len(inside):
        return int(inside[values[inside].argmax()])
    return int(np.abs(times_s - (start_s + end_s) / 2).argmin())


def span_around(values: Curve, index: int, free: Bool[np.ndarray, " T"], mean: float) -> tuple[int, int]:
    """Return the range of indices around a peak, end exclusive.

    The range extends to both sides of `index` for as long as times are `free` and their values are not below a
    threshold: the midpoint between `mean` and the value at the peak.

    >>> span_around(np.array([0.0, 0.5, 1.0, 0.6, 0.1]), 2, np.ones(5, dtype=bool), 0.2)
    (2, 4)
    """
    low = (values < (values[index] + mean) / 2) | ~free
    low[index] = False
    before = np.flatnonzero(low[:index])
    after = np.flatnonzero(low[index:])
    return (int(before[-1]) + 1 if len(before) else 0), (index + int(after[0]) if len(after) else len(values))


def widened(start_s: float, end_s: float, min_s: float, *, after_s: float, before_s: float) -> tuple[float, float]:
    """Return a span, widened on both sides to a length of `min_s`, but not beyond `after_s` and `before_s` (seconds).

    >>> widened(4.0, 4.5, 1.0, after_s=0.0, before_s=9.0), widened(0.0, 0.5, 1.0, after_s=0.0, before_s=9.0)
    ((3.75, 4.75), (0.0, 1.0))
    """
    missing_s = min_s - (end_s - start_s)
    if missing_s <= 0:
        return start_s, end_s
    new_start_s = max(after_s, min(start_s - missing_s / 2, before_s - min_s))
    return new_start_s, min(before_s, new_start_s + min_s)


def spacing_s(times_s: Float[np.ndarray, " T"]) -> float:
    """Return the median time between two frames in seconds, or 1 if all frames have the same time."""
    gaps_s = np.diff(times_s)
    gaps_s = gaps_s[gaps_s > 0]
    return float(np.median(gaps_s)) if len(gaps_s) else 1.0


def smoothed(curve: Float[np.ndarray, " T"], deviation: float) -> Float64[np.ndarray, " T"]:
    """Return a curve, smoothed with a Gaussian whose standard deviation is `deviation` steps.

    Near the ends, the weights of the steps that lie within the curve are rescaled to sum to 1.

    >>> smoothed(np.array([0.0, 0.0, 1.0, 0.0]), 1.0).round(2).tolist()
    [0.08, 0.26, 0.43, 0.35]
    """
    reach = max(1, int(np.ceil(3 * deviation)))
    weights = np.exp(-0.5 * (np.arange(-reach, reach + 1) / deviation) ** 2)
    inside = slice(reach, reach + len(curve))
    return np.convolve(curve, weights)[inside] / np.convolve(np.ones(len(curve)), weights)[inside]
