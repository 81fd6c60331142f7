"""Segments that borrow from each other: relevance propagated over a graph of all segments of a video (TF-PRVR).

Segments of a level are joined by similarity and nearness, those of adjacent levels by overlap. The propagated vectors
are (1 - beta) (I - beta G)^-1 S, S the segments' vectors and G the normalised graph. Up to `MOST_DENSE` segments G is
dense and the system is solved. Beyond, conjugate gradients need only G times a matrix: rows whose cosines are all
positive need a matrix of D x D, the decay in time one pass each way, and overlaps are at most as many as segments. Rows
with a negative cosine, which counts as 0, are multiplied in blocks; encoders whose frames lie in one cone have none.
The eigenvalues of I - beta G are between 1 - beta and 1 + beta, which bounds the steps.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from jaxtyping import Float64, Int

from untrimmed.moments.wavelet_segments import Segments, joint_edges

MOST_DENSE = 2048  # segments
_ROWS_AT_A_TIME = 1024
_RESIDUAL = 1e-9  # of the right side's norm; an error is at most so much of it, times 1 / (1 - beta)

Matrix = Float64[np.ndarray, "N D"]


def propagate(levels: Sequence[Segments], beta: float, *, most_dense: int = MOST_DENSE) -> Matrix:
    """The propagated vectors of all segments, level after level; they are not rescaled."""
    vectors = np.concatenate([level.vectors for level in levels])
    if len(vectors) <= most_dense:
        system = np.eye(len(vectors)) - beta * normalised_graph(levels)
        return np.linalg.solve(system, (1 - beta) * vectors)
    graph = _Graph(levels)
    return _conjugate_gradients(lambda x: x - beta * graph.times(x), (1 - beta) * vectors)


def normalised_graph(levels: Sequence[Segments]) -> Float64[np.ndarray, "N N"]:
    """The graph over all segments, divided by the roots of the sums of its rows and columns."""
    starts = np.cumsum([0, *(len(level.vectors) for level in levels)])
    graph = np.zeros((starts[-1], starts[-1]))
    for start, level in zip(starts, levels, strict=False):
        centres = _centres(level)
        own = slice(start, start + len(centres))
        graph[own, own] = np.maximum(level.vectors @ level.vectors.T, 0)
        graph[own, own] += np.exp(-np.abs(centres[:, None] - centres))
    for start, (one, other) in zip(starts, pairwise(levels), strict=False):
        rows, columns, weights = _overlaps(one, other)
        rows = rows + start
        columns = columns + start + len(one.vectors)
        graph[rows, columns] = graph[columns, rows] = weights
    np.fill_diagonal(graph, 1.0)
    scale = 1 / np.sqrt(graph.sum(axis=1))
    return graph * scale[:, None] * scale


def _centres(level: Segments) -> Float64[np.ndarray, " N"]:
    """The middle of each segment, in mean lengths of the level's segments."""
    middle = (level.edges[:-1] + level.edges[1:]) / 2
    return middle / np.diff(level.edges).mean()


def _overlaps(
    one: Segments, other: Segments
) -> tuple[Int[np.ndarray, " P"], Int[np.ndarray, " P"], Float64[np.ndarray, " P"]]:
    """The pairs that share frames, in order of time in both, and IoU times cosine of each, at least 0."""
    edges = joint_edges([one.edges, other.edges])
    rows = owners(one.edges, edges)
    columns = owners(other.edges, edges)
    shared = np.diff(edges)  # two spans meet in one span, so that each pair is there once
    together = np.diff(one.edges)[rows] + np.diff(other.edges)[columns] - shared
    cosines = np.einsum("nd,nd->n", one.vectors[rows], other.vectors[columns])
    return rows, columns, shared / together * np.maximum(cosines, 0)


def owners(edges: Int[np.ndarray, " E"], pieces: Int[np.ndarray, " P"]) -> Int[np.ndarray, " M"]:
    """The segment between `edges` in which each span between two `pieces` lies; M = P - 1.

    >>> owners(np.array([0, 4, 9]), np.array([0, 2, 4, 7, 9])).tolist()
    [0, 0, 1, 1]
    """
    return np.searchsorted(edges, pieces[:-1], side="right") - 1


class _Graph:
    """The normalised graph as what it does to a matrix."""

    def __init__(self, levels: Sequence[Segments]):
        starts = np.cumsum([0, *(len(level.vectors) for level in levels)])
        self._levels = [_Level(level) for level in levels]
        self._rows = [slice(*bounds) for bounds in pairwise(starts)]
        self._overlaps = [_overlaps(*pair) for pair in pairwise(levels)]
        self._scale = np.ones((starts[-1], 1))
        self._scale = 1 / np.sqrt(self.times(self._scale))

    def times(self, x: Matrix) -> Matrix:
        """The graph times a matrix."""
        x = self._scale * x
        y = np.concatenate([level.times(x[rows]) for level, rows in zip(self._levels, self._rows, strict=True)])
        for (one, other), (rows, columns, weights) in zip(pairwise(self._rows), self._overlaps, strict=True):
            # Both levels tile the video, so that each segment has a pair, and those of one stand side by side.
            y[one] += np.add.reduceat(weights[:, None] * x[other][columns], _firsts(rows), axis=0)
            y[other] += np.add.reduceat(weights[:, None] * x[one][rows], _firsts(columns), axis=0)
        return self._scale * y


def _firsts(groups: Int[np.ndarray, " P"]) -> Int[np.ndarray, " N"]:
    return np.flatnonzero(np.diff(groups, prepend=-1))


class _Level:
    """What joins the segments of one level; a segment and itself have 1."""

    def __init__(self, level: Segments):
        self._vectors = level.vectors
        self._decay = np.exp(-np.diff(_centres(level)))
        parts = range(0, len(level.vectors), _ROWS_AT_A_TIME)
        lowest = [(self._vectors[at : at + _ROWS_AT_A_TIME] @ self._vectors.T).min(axis=1) for at in parts]
        self._with_negative = np.flatnonzero(np.concatenate(lowest) < 0)

    def times(self, x: Matrix) -> Matrix:
        """This part of the graph, before it is normalised, times a matrix."""
        y = self._vectors @ (self._vectors.T @ x)
        for start in range(0, len(self._with_negative), _ROWS_AT_A_TIME):
            rows = self._with_negative[start : start + _ROWS_AT_A_TIME]
            y[rows] = np.maximum(self._vectors[rows] @ self._vectors.T, 0) @ x
        before = np.zeros_like(x[0])
        after = np.zeros_like(x[0])
        for row, decay in enumerate(self._decay, start=1):
            before = decay * (before + x[row - 1])
            y[row] += before
            after = self._decay[-row] * (after + x[-row])
            y[-row - 1] += after
        return y


def _conjugate_gradients(system: Callable[[Matrix], Matrix], wanted: Matrix) -> Matrix:
    """What a symmetric positive definite system makes into `wanted`, all columns as one vector."""
    found = np.zeros_like(wanted)
    rest = wanted.copy()
    direction = rest.copy()
    left = float(np.vdot(rest, rest))
    enough = left * _RESIDUAL**2
    while left > enough:
        made = system(direction)
        step = left / float(np.vdot(direction, made))
        found += step * direction
        rest -= step * made
        before = left
        left = float(np.vdot(rest, rest))
        direction = rest + left / before * direction
    return found
