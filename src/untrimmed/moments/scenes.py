"""Where the content of a video changes: a tree of scenes, each a run of frames that are alike; needs no query.

Neighbouring runs are merged bottom-up, those first that cost least in Ward's sense (J. Am. Stat. Assoc. 1963): by how
much the squared distances of frames from the mean of their run grow. Merging while that is less than a penalty a run
nearly minimises what penalised change-point detection with a linear kernel does (Harchaoui and Cappé, SSP 2007), in
linear time; merging on, up to the whole video, gives scenes of scenes.
"""

import numpy as np
from jaxtyping import Bool, Float, Int

_SURE_SHARE = 4  # a round may merge at least the cheapest of so many: no video needs a round a frame
_ROWS = 1024  # multiplied at once: they fit the caches, and a day of video needs no second copy of its vectors


def scene_tree(vectors: Float[np.ndarray, "T D"], penalty: float) -> Int[np.ndarray, "N 2"]:
    """Return first frame and one past the last of every scene: those of no change in time order, then scenes of scenes.

    Any two are disjoint or nested; the last is the whole video. `penalty` is the squared distance that a change has to
    explain. Raises: ValueError if a vector is not finite.

    >>> scene_tree(np.array([[0.0], [0.0], [3.0], [5.0], [5.0]]), penalty=1.0).tolist()
    [[0, 2], [2, 3], [3, 5], [2, 5], [0, 5]]
    """
    sums = vectors.astype(np.float32)
    counts = np.ones(len(vectors))
    first = np.arange(len(vectors))  # frame of each run, and the row of its sum
    squares = np.einsum("td,td->t", sums, sums).astype(np.float64)
    if not np.isfinite(squares).all():
        raise ValueError("vectors to find scenes in are not all finite; wanted finite ones: index the video again")
    products = np.einsum("td,td->t", sums[:-1], sums[1:]).astype(np.float64)  # of neighbouring runs
    found: list[Int[np.ndarray, "_ 2"]] = []
    while len(first) > 1:
        before = counts[:-1]
        after = counts[1:]
        spread = squares[:-1] / before**2 + squares[1:] / after**2 - 2 * products / (before * after)
        costs = spread * before * after / (before + after)
        if not found and (costs >= penalty).all():
            found.append(_spans(first, len(vectors)))
        merged = _cheapest(costs, np.inf if found else penalty)
        sums[first[:-1][merged]] += sums[first[1:][merged]]
        squares[:-1] += np.where(merged, squares[1:] + 2 * products, 0)
        counts[:-1] += np.where(merged, counts[1:], 0)
        kept = np.append(True, ~merged)
        is_new = np.append(merged, False)
        first = first[kept]
        squares = squares[kept]
        counts = counts[kept]
        is_new = is_new[kept]
        products = products[~merged]
        changed = is_new[1:] | is_new[:-1]
        products[changed] = _products(sums, first[:-1][changed], first[1:][changed])
        if found:
            found.append(_spans(first, len(vectors))[is_new])
    return np.concatenate(found) if found else _spans(first, len(vectors))


def _products(
    rows: Float[np.ndarray, "T D"], one: Int[np.ndarray, " N"], other: Int[np.ndarray, " N"]
) -> Float[np.ndarray, " N"]:
    """The products of pairs of rows."""
    result = np.empty(len(one))
    for start in range(0, len(one), _ROWS):
        part = slice(start, start + _ROWS)
        result[part] = np.einsum("nd,nd->n", rows[one[part]], rows[other[part]])
    return result


def _spans(first: Int[np.ndarray, " S"], num_frames: int) -> Int[np.ndarray, "S 2"]:
    return np.stack([first, np.append(first[1:], num_frames)], axis=1)


def _cheapest(costs: Float[np.ndarray, " C"], limit: float) -> Bool[np.ndarray, " C"]:
    """Which joints to merge now: no dearer than both neighbours or among the cheapest; of adjacent ones every other."""
    around = np.concatenate([[np.inf], costs, [np.inf]])
    sure = np.partition(costs, len(costs) // _SURE_SHARE)[len(costs) // _SURE_SHARE]
    chosen = (((costs <= around[:-2]) & (costs <= around[2:])) | (costs <= sure)) & (costs < limit)
    position = np.arange(len(costs))
    run_start = np.maximum.accumulate(np.where(chosen, 0, position + 1))  # one past the last joint not chosen
    return chosen & ((position - run_start) % 2 == 0)
