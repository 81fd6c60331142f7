"""Smooth segment vectors over a graph of a video's segments, so that similar segments reinforce each other (TF-PRVR).

Segments have several levels, from fine to coarse. Edges inside a level depend on similarity and distance in time. Edges
between adjacent levels depend on overlap. The result is (1 - beta) (I - beta G)^-1 S for segment vectors S and the
normalised graph G.

Up to `MAX_DENSE` segments, G is a dense matrix and the system is solved directly. For more segments, conjugate
gradients only need products of G with a matrix, which take linear time:

- Similarity inside a level: two products with the matrix of segment vectors. Negative cosines count as 0, so for
  segments with a negative cosine the whole row of G is needed. With most encoders, cosines of frames are not negative.
- Decay with distance in time: one pass over the segments in each direction.
- Overlap of adjacent levels: fewer than two overlaps per segment.

The eigenvalues of I - beta G are between 1 - beta and 1 + beta, which limits the number of steps.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from jaxtyping import Float64, Int

from untrimmed.moments.wavelet_segments import Segments, joint_edges

MAX_DENSE = 2048  # largest number of segments with a dense graph
_ROWS_AT_A_TIME = 1024
_RESIDUAL = 1e-9  # largest relative residual; the relative error is at most this divided by 1 - beta

Matrix = Float64[np.ndarray, "N D"]


def propagate(levels: Sequence[Segments], beta: float, *, max_dense: int = MAX_DENSE) -> Matrix:
    """Return the smoothed vectors of all segments, level by level. They are not normalised."""
    vectors = np.concatenate([level.vectors for level in levels])
    if len(vectors) <= max_dense:
        system = np.eye(len(vectors)) - beta * normalised_graph(levels)
        return np.linalg.solve(system, (1 - beta) * vectors)
    graph = _Graph(levels)
    return _conjugate_gradients(lambda x: x - beta * graph.times(x), (1 - beta) * vectors)


def normalised_graph(levels: Sequence[Segments]) -> Float64[np.ndarray, "N N"]:
    """Return the graph over all segments, divided by the square roots of its row and column sums."""
    starts = np.cumsum([0, *(len(level.vectors) for level in levels)])
    graph = np.zeros((starts[-1], starts[-1]))
    for start, level in zip(starts, levels, strict=False):
        centres = _centres(level)
        block = slice(start, start + len(centres))
        graph[block, block] = np.maximum(level.vectors @ level.vectors.T, 0)
        graph[block, block] += np.exp(-np.abs(centres[:, None] - centres))
    for start, (finer, coarser) in zip(starts, pairwise(levels), strict=False):
        rows, columns, weights = _overlaps(finer, coarser)
        rows = rows + start
        columns = columns + start + len(finer.vectors)
        graph[rows, columns] = graph[columns, rows] = weights
    np.fill_diagonal(graph, 1.0)
    scale = 1 / np.sqrt(graph.sum(axis=1))
    return graph * scale[:, None] * scale


def _centres(level: Segments) -> Float64[np.ndarray, " N"]:
    """Return the middle of each segment, in units of the level's mean segment length."""
    middle = (level.edges[:-1] + level.edges[1:]) / 2
    return middle / np.diff(level.edges).mean()


def _overlaps(
    finer: Segments, coarser: Segments
) -> tuple[Int[np.ndarray, " P"], Int[np.ndarray, " P"], Float64[np.ndarray, " P"]]:
    """Return index pairs of overlapping segments in temporal order, and each pair's IoU times cosine (at least 0)."""
    edges = joint_edges([finer.edges, coarser.edges])
    rows = owners(finer.edges, edges)
    columns = owners(coarser.edges, edges)
    intersection = np.diff(edges)  # two segments overlap in one span, so every pair occurs once
    union = np.diff(finer.edges)[rows] + np.diff(coarser.edges)[columns] - intersection
    cosines = np.einsum("nd,nd->n", finer.vectors[rows], coarser.vectors[columns])
    return rows, columns, intersection / union * np.maximum(cosines, 0)


def owners(edges: Int[np.ndarray, " E"], pieces: Int[np.ndarray, " P"]) -> Int[np.ndarray, " M"]:
    """Return, for each interval between two `pieces`, the index of the interval between two `edges` that contains it.

    >>> owners(np.array([0, 4, 9]), np.array([0, 2, 4, 7, 9])).tolist()
    [0, 0, 1, 1]
    """
    return np.searchsorted(edges, pieces[:-1], side="right") - 1


class _Graph:
    """The normalised graph as a linear operator."""

    def __init__(self, levels: Sequence[Segments]):
        starts = np.cumsum([0, *(len(level.vectors) for level in levels)])
        self._levels = [_Level(level) for level in levels]
        self._rows = [slice(*bounds) for bounds in pairwise(starts)]
        self._overlaps = [_overlaps(*pair) for pair in pairwise(levels)]
        self._scale = np.ones((starts[-1], 1))
        self._scale = 1 / np.sqrt(self.times(self._scale))

    def times(self, x: Matrix) -> Matrix:
        x = self._scale * x
        y = np.concatenate([level.times(x[rows]) for level, rows in zip(self._levels, self._rows, strict=True)])
        for (finer, coarser), (rows, columns, weights) in zip(pairwise(self._rows), self._overlaps, strict=True):
            # Both levels cover the video, so every segment overlaps another, and its pairs are consecutive.
            y[finer] += np.add.reduceat(weights[:, None] * x[coarser][columns], _firsts(rows), axis=0)
            y[coarser] += np.add.reduceat(weights[:, None] * x[finer][rows], _firsts(columns), axis=0)
        return self._scale * y


def _firsts(groups: Int[np.ndarray, " P"]) -> Int[np.ndarray, " N"]:
    return np.flatnonzero(np.diff(groups, prepend=-1))


class _Level:
    """The graph inside one level as a linear operator, with ones on the diagonal."""

    def __init__(self, level: Segments):
        self._vectors = level.vectors
        self._decay = np.exp(-np.diff(_centres(level)))
        parts = range(0, len(level.vectors), _ROWS_AT_A_TIME)
        lowest = [(self._vectors[at : at + _ROWS_AT_A_TIME] @ self._vectors.T).min(axis=1) for at in parts]
        self._with_negative = np.flatnonzero(np.concatenate(lowest) < 0)

    def times(self, x: Matrix) -> Matrix:
        """Return the product of this part of the graph and a matrix, without normalisation."""
        y = self._vectors @ (self._vectors.T @ x)
        for start in range(0, len(self._with_negative), _ROWS_AT_A_TIME):
            rows = self._with_negative[start : start + _ROWS_AT_A_TIME]
            y[rows] = np.maximum(self._vectors[rows] @ self._vectors.T, 0) @ x
        preceding = np.zeros_like(x[0])
        following = np.zeros_like(x[0])
        for row, decay in enumerate(self._decay, start=1):
            preceding = decay * (preceding + x[row - 1])
            y[row] += preceding
            following = self._decay[-row] * (following + x[-row])
            y[-row - 1] += following
        return y


def _conjugate_gradients(system: Callable[[Matrix], Matrix], right_side: Matrix) -> Matrix:
    """Solve a symmetric positive definite system, treating all columns as one vector."""
    solution = np.zeros_like(right_side)
    residual = right_side.copy()
    direction = residual.copy()
    square = float(np.vdot(residual, residual))
    tolerance = square * _RESIDUAL**2
    while square > tolerance:
        product = system(direction)
        step = square / float(np.vdot(direction, product))
        solution += step * direction
        residual -= step * product
        previous = square
        square = float(np.vdot(residual, residual))
        direction = residual + square / previous * direction
    return solution
