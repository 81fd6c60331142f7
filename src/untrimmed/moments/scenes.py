"""Divide a video into a tree of scenes, which begin and end where the content changes. No query is needed.

Neighbouring runs of frames are merged in the order of their Ward cost (J. Am. Stat. Assoc. 1963). The cost of a merge
is the increase of the sum of squared distances of all frames from the mean of their run. When all costs reach a
penalty, the runs are the shortest scenes. Further merging, up to the whole video, gives scenes that contain other
scenes.

The merging takes linear time. It nearly minimises the objective of penalised change-point detection with a linear
kernel (Harchaoui and Cappé, SSP 2007).
"""

import numpy as np
from jaxtyping import Bool, Float, Int

# each round considers at least the cheapest quarter of the boundaries, so that few rounds are needed
_CHEAP_SHARE = 4
# rows per product, which fit the processor's cache; the vectors of a long video are never copied as a whole
_ROWS = 1024


def scene_tree(vectors: Float[np.ndarray, "T D"], penalty: float) -> Int[np.ndarray, "N 2"]:
    """Return all scenes as frame indices, end exclusive: first the shortest scenes in temporal order, then larger ones.

    Two scenes are disjoint or nested. The last scene is the whole video. `penalty` is the smallest Ward cost of a
    change between the shortest scenes.

    Raises:
        ValueError: A vector is not finite.

    >>> scene_tree(np.array([[0.0], [0.0], [3.0], [5.0], [5.0]]), penalty=1.0).tolist()
    [[0, 2], [2, 3], [3, 5], [2, 5], [0, 5]]
    """
    sums = vectors.astype(np.float32)
    counts = np.ones(len(vectors))
    # the first frame of each run; row i of `sums` is the sum of the run that begins at frame i
    first = np.arange(len(vectors))
    squares = np.einsum("td,td->t", sums, sums).astype(np.float64)
    if not np.isfinite(squares).all():
        raise ValueError("scenes need finite vectors, but some are NaN or infinite; index the video again")
    products = np.einsum("td,td->t", sums[:-1], sums[1:]).astype(np.float64)  # products of neighbouring runs
    scenes: list[Int[np.ndarray, "_ 2"]] = []
    while len(first) > 1:
        left_count = counts[:-1]
        right_count = counts[1:]
        spread = squares[:-1] / left_count**2 + squares[1:] / right_count**2 - 2 * products / (left_count * right_count)
        costs = spread * left_count * right_count / (left_count + right_count)
        if not scenes and (costs >= penalty).all():
            scenes.append(_spans(first, len(vectors)))
        merged = _cheapest(costs, np.inf if scenes else penalty)
        sums[first[:-1][merged]] += sums[first[1:][merged]]
        squares[:-1] += np.where(merged, squares[1:] + 2 * products, 0)
        counts[:-1] += np.where(merged, counts[1:], 0)
        is_start = np.append(True, ~merged)
        is_new = np.append(merged, False)
        first = first[is_start]
        squares = squares[is_start]
        counts = counts[is_start]
        is_new = is_new[is_start]
        products = products[~merged]
        changed = is_new[1:] | is_new[:-1]
        products[changed] = _products(sums, first[:-1][changed], first[1:][changed])
        if scenes:
            scenes.append(_spans(first, len(vectors))[is_new])
    return np.concatenate(scenes) if scenes else _spans(first, len(vectors))


def _products(
    rows: Float[np.ndarray, "T D"], first: Int[np.ndarray, " N"], second: Int[np.ndarray, " N"]
) -> Float[np.ndarray, " N"]:
    result = np.empty(len(first))
    for start in range(0, len(first), _ROWS):
        part = slice(start, start + _ROWS)
        result[part] = np.einsum("nd,nd->n", rows[first[part]], rows[second[part]])
    return result


def _spans(first: Int[np.ndarray, " S"], num_frames: int) -> Int[np.ndarray, "S 2"]:
    return np.stack([first, np.append(first[1:], num_frames)], axis=1)


def _cheapest(costs: Float[np.ndarray, " C"], limit: float) -> Bool[np.ndarray, " C"]:
    """Return a mask of boundaries to remove: local minima of the cost, and boundaries in the cheapest quarter.

    Neighbouring boundaries are never both removed, so that each run is merged with at most one neighbour.
    """
    padded = np.concatenate([[np.inf], costs, [np.inf]])
    cheap = np.partition(costs, len(costs) // _CHEAP_SHARE)[len(costs) // _CHEAP_SHARE]
    chosen = (((costs <= padded[:-2]) & (costs <= padded[2:])) | (costs <= cheap)) & (costs < limit)
    position = np.arange(len(costs))
    # index after the last boundary that is not chosen
    run_start = np.maximum.accumulate(np.where(chosen, 0, position + 1))
    return chosen & ((position - run_start) % 2 == 0)
