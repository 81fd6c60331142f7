"""Find the exact time of a shot change near the edge of a moment.

A library's frames are usually sampled every half second, so edges of moments are only approximate.
"""

from pathlib import Path

import numpy as np
from jaxtyping import Float

from untrimmed.errors import VideoError
from untrimmed.video.reader import FrameBatch, FrameReader

WINDOW_S = 0.5  # a shot change may be this far before or after an edge
_SHORT_SIDE = 32  # length of the shorter side of the compared pictures, in pixels
_MIN_DIFFERENCE = 12.0  # smallest difference between the two frames of a shot change, in grey levels
_MIN_RATIO = 3.0  # smallest ratio of this difference to the median difference in the window


def shot_change_s(batch: FrameBatch) -> float | None:
    """Return the time of the first frame after the clearest shot change, in seconds, or None if there is none.

    Neighbouring frames are compared by the mean absolute difference of their pixels. The shot change is where the
    difference is largest. It must be several times the median, so that a moving camera does not count as a shot change.
    """
    if len(batch.times_s) < 2:
        return None
    pictures = batch.frames.astype(np.float32)
    differences: Float[np.ndarray, " N"] = np.abs(np.diff(pictures, axis=0)).mean(axis=(1, 2, 3))
    change = int(differences.argmax())
    usual = float(np.median(differences))
    is_change = differences[change] >= max(_MIN_DIFFERENCE, _MIN_RATIO * usual)
    return float(batch.times_s[change + 1]) if is_change else None


def exact_edge_s(reader: FrameReader, path: Path, edge_s: float, identity: list[int] | None = None) -> float:
    """Return the time of the shot change within half a second of an edge.

    If there is none, or if the file cannot be read, the edge is returned unchanged. All times are in seconds.
    """
    try:
        batch = reader.frames_between(
            path, max(0.0, edge_s - WINDOW_S), edge_s + WINDOW_S, short_side=_SHORT_SIDE, identity=identity
        )
    except VideoError:
        return edge_s
    change_s = shot_change_s(batch)
    return edge_s if change_s is None or abs(change_s - edge_s) > WINDOW_S else change_s
