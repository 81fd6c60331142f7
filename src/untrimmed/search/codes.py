"""What is read of many vectors in their stead: codes of a seventh of their bytes, which say how far off they can be.

A vector is turned (`Axes`). Its *head* and *body* are the 64 numbers along the directions in which a corpus varies
most, in 8 bits each; of its *tail*, all others, signs are kept and one length. Each of the three is turned at random
besides, so that what rounding and signs leave out has a random direction to whichever query: its product with the
query's is as good as never more than `MARGIN` times what is to be expected (RaBitQ, SIGMOD 2024, Theorem 3.2: the
chance falls as exp(-MARGIN^2 / 2), 1e-14 here). What codes leave in doubt is decided by the rows in float16.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Bool, Float, Float16, Float32, Int, Int8, Int16, UInt64

from untrimmed.search.products import LANES, cores, padded_width

WIDTH = 32  # of head and body
MARGIN = 8.0
LEAST_VIDEOS, LEAST_SEARCHES = 1000, 2
_HALF = 2.0**-11 * 1.01  # of a number, what float16 is off at most
_CODED = ("head", "head_scale", "body", "body_scale", "tail", "tail_scale", "tail_error")  # as kernels take them
_ROWS_AT_A_TIME = 2**15  # that are turned at once


@dataclass(frozen=True)
class Axes:
    """The directions along which codes are taken: those in which rows vary most first."""

    matrix: Float32[np.ndarray, "D D"]  # orthogonal
    splits: tuple[int, int]  # where body and tail begin

    @classmethod
    def of(cls, rows: Float[np.ndarray, "R D"]) -> Axes:
        """Fitted to some rows of a corpus; whatever they are, bounds hold."""
        dim = rows.shape[1]
        splits = min(WIDTH, dim), min(2 * WIDTH, dim)
        rows = rows.astype(np.float32)
        _, directions = np.linalg.eigh((rows.T @ rows).astype(np.float64))
        rng = np.random.default_rng(0)
        parts = []
        for begin, end in zip((0, *splits), (*splits, dim), strict=True):
            turn, _ = np.linalg.qr(rng.standard_normal((end - begin, end - begin)))
            parts.append(directions[:, ::-1][:, begin:end] @ turn)
        return cls(np.concatenate(parts, axis=1).astype(np.float32), splits)

    def turned(self, rows: Float[np.ndarray, "R D"]) -> list[Float32[np.ndarray, "R _"]]:
        """Heads, bodies and tails."""
        return np.split(rows.astype(np.float32) @ self.matrix, self.splits, axis=1)

    def probe(self, vector: Float[np.ndarray, " D"]) -> Probe:
        """A query's vector, turned and rounded as codes are."""
        head, body, tail = (part[0] for part in self.turned(vector[None]))
        unit = np.float32(max(float(tail.max(initial=0.0)) / 7.49, float(-tail.min(initial=0.0)) / 8.49, 1e-20))
        levels = np.clip(np.rint(tail / unit), -8, 7).astype(np.int64)
        missed = tail - levels * unit
        squares = head @ head / 12, body @ body / 12, tail @ tail / max(1, len(tail)), missed @ missed
        (short_head, head_unit), (short_body, body_unit) = _short(head), _short(body)
        return Probe(
            query=np.pad(vector.astype(np.float32), (0, padded_width(len(vector)) - len(vector))),
            head=short_head,
            body=short_body,
            planes=np.stack([_words(((levels & 15) >> plane) & 1 == 1) for plane in range(4)]),
            units=(head_unit, body_unit, unit),
            level_sum=int(levels.sum()),
            margins=tuple(np.float32(MARGIN**2 * square) for square in squares),
            length=float(np.linalg.norm(vector)),
        )


@dataclass(frozen=True, eq=False)
class Probe:
    """A query's vector as codes are compared with it."""

    query: Float32[np.ndarray, " E"]  # as wide as a multiple of 16
    head: Int16[np.ndarray, " _"]
    body: Int16[np.ndarray, " _"]
    planes: UInt64[np.ndarray, "4 W"]  # the bits of levels from -8 to 7, the lowest first
    units: tuple[np.float32, np.float32, np.float32]  # of head, body and levels
    level_sum: int
    margins: tuple[np.float32, ...]  # squared, for what head, body, signs and levels leave out
    length: float

    @property
    def numbers(self) -> tuple[Any, ...]:
        """What is compared with codes."""
        return self.head, self.body, self.planes, *self.units, self.level_sum


Rows = tuple[Float[np.ndarray, "R D"], Int[np.ndarray, " V"]]  # of videos one after the other, and how many each has


@dataclass(frozen=True, eq=False)
class Codes:
    """The rows of some videos in float16, one video after the other, and their codes in blocks of 16 rows of a video.

    A video's last row fills its last block. Within a block what all rows have stands side by side: pairs of numbers of
    a head or body, words of a tail's signs.
    """

    axes: Axes
    rows: Float16[np.ndarray, "R E"]  # as wide as a multiple of 16, and four at least
    longest: float  # of the rows
    first_row: Int[np.ndarray, " _"]  # of each video, and where the last one ends
    first: Int[np.ndarray, " _"]  # block of each video, and where the last one ends
    head: Int8[np.ndarray, " _"]
    head_scale: Float32[np.ndarray, " B"]
    body: Int8[np.ndarray, " _"]
    body_scale: Float32[np.ndarray, " B"]
    tail: UInt64[np.ndarray, "B W 16"]
    tail_scale: Float32[np.ndarray, "B 16"]  # a row's signs times this have the row's own product with itself
    tail_error: Float32[np.ndarray, " B"]  # what signs leave out of a row, in units of `tail_scale`; of none is it more
    unbounded: Bool[np.ndarray, " V"]  # videos with a row that is not finite

    @classmethod
    def of(cls, axes: Axes, rows: Float[np.ndarray, "R D"], counts: Int[np.ndarray, " V"]) -> Codes:
        """Codes of videos with so many rows each, at least one."""
        finite = np.isfinite(rows).all(axis=1)
        rows = np.where(finite[:, None], rows, 0).astype(np.float32)
        padded = -(-counts // LANES) * LANES
        first_row, first = (np.concatenate([[0], np.cumsum(some)]) for some in (counts, padded // LANES))
        place = np.arange(padded.sum()) - np.repeat(first[:-1] * LANES, padded)
        number = np.repeat(first_row[:-1], padded) + np.minimum(place, np.repeat(counts, padded) - 1)
        parts = [
            _coded(axes, rows[number[start : start + _ROWS_AT_A_TIME]])
            for start in range(0, len(number), _ROWS_AT_A_TIME)
        ]
        halves = np.zeros((max(4, len(rows)), padded_width(rows.shape[1])), dtype=np.float16)
        halves[: len(rows), : rows.shape[1]] = rows
        longest = float(np.sqrt(np.einsum("rd,rd->r", rows, rows).max()))
        coded = dict(zip(_CODED, map(np.concatenate, zip(*parts, strict=True)), strict=True))
        unbounded = ~np.logical_and.reduceat(finite, first_row[:-1])
        return cls(axes, halves, longest, first_row, first, unbounded=unbounded, **coded)

    @classmethod
    def joined(cls, parts: Sequence[Codes]) -> Codes:
        """The codes of the videos of all parts, which have the same axes."""
        names = (*_CODED, "unbounded")
        rows = [part.rows[: part.first_row[-1]] for part in parts]
        spare = np.zeros((max(0, 4 - sum(map(len, rows))), rows[0].shape[1]), dtype=np.float16)
        return cls(
            axes=parts[0].axes,
            rows=np.concatenate([*rows, spare]),
            longest=max(part.longest for part in parts),
            first_row=_joined_ends([part.first_row for part in parts]),
            first=_joined_ends([part.first for part in parts]),
            **{name: np.concatenate([getattr(part, name) for part in parts]) for name in names},
        )

    def __len__(self) -> int:
        return len(self.first) - 1

    @property
    def nbytes(self) -> int:
        """Of the codes alone."""
        return sum(part.nbytes for part in self._scanned)

    @property
    def _scanned(self) -> tuple[np.ndarray, ...]:
        return tuple(getattr(self, name) for name in _CODED)

    def by_codes(self, probe: Probe, videos: Int[np.ndarray, " N"]) -> Float32[np.ndarray, "2 N"]:
        """The best row of each of these videos by its code; and what no row is above."""
        from untrimmed.search.kernels import scan_codes

        both = np.empty((2, len(videos)), dtype=np.float32)
        given = self._scanned, self.first, probe.numbers, probe.margins, videos
        _share(len(videos), 256, lambda start, stop: scan_codes(*given, start, stop, *both))
        both[1, self.unbounded[videos]] = np.inf
        return both

    def by_rows(self, probe: Probe, videos: Int[np.ndarray, " N"]) -> Float32[np.ndarray, "2 N"]:
        """The best row of each of these videos by its float16 numbers; and what no row is above."""
        from untrimmed.search.kernels import score_rows

        best = np.empty(len(videos), dtype=np.float32)
        rows = self.rows.view(np.uint16).reshape(-1), self.rows.shape[1], self.first_row
        given = self._scanned, self.first, probe.numbers, probe.margins, *rows, probe.query, videos
        _share(len(videos), 64, lambda start, stop: score_rows(*given, start, stop, best))
        rounding = np.float32(_HALF * self.longest * probe.length + 1e-6)
        return np.stack([best, np.where(self.unbounded[videos], np.float32(np.inf), best + rounding)])


Level = Callable[[Codes, Probe, Int[np.ndarray, " N"]], Float32[np.ndarray, "2 N"]]
K = TypeVar("K")


class Coder(Generic[K]):
    """Codes of blocks of videos, made by a thread of its own after some searches and kept as long as the block.

    To code a video takes as long as to compare it with dozens of queries: whoever searches once or twice is better off
    without, and nobody waits for them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._axes: dict[str, Axes] = {}
        self._codes: WeakKeyDictionary[K, dict[str, Codes]] = WeakKeyDictionary()
        self._searches = 0
        self._maker: threading.Thread | None = None

    def ready(self, blocks: Sequence[K], rows: Callable[[K], Iterable[Mapping[str, Rows]]]) -> bool:
        """Whether all blocks have their codes; after a few searches those that lack begin to be made.

        Args:
            rows: The rows of a block by branch, some videos at a time.
        """
        with self._lock:
            self._searches += 1
            lacking = [block for block in blocks if block not in self._codes]
            idle = self._maker is None or not self._maker.is_alive()
            if lacking and idle and self._searches > LEAST_SEARCHES and find_spec("numba") is not None:
                self._maker = threading.Thread(target=self._make, args=(lacking, rows), name="codes", daemon=True)
                self._maker.start()
            return not lacking

    def of(self, block: K) -> dict[str, Codes]:
        """The codes of a block that is ready, by branch."""
        return self._codes[block]

    def wait(self) -> None:
        """Until what is being made is there."""
        if self._maker is not None:
            self._maker.join()

    def _make(self, blocks: Sequence[K], rows: Callable[[K], Iterable[Mapping[str, Rows]]]) -> None:
        for block in blocks:
            parts: dict[str, list[Codes]] = {}
            for piece in rows(block):
                for branch, (vectors, counts) in piece.items():
                    parts.setdefault(branch, []).append(Codes.of(self._axes_of(branch, vectors), vectors, counts))
            with self._lock:
                self._codes[block] = {branch: Codes.joined(some) for branch, some in parts.items()}

    def _axes_of(self, branch: str, vectors: Float[np.ndarray, "R D"]) -> Axes:
        """All blocks have the axes that fit the first videos."""
        if branch not in self._axes:
            self._axes[branch] = Axes.of(vectors[np.isfinite(vectors).all(axis=1)][:_ROWS_AT_A_TIME])
        return self._axes[branch]


def _joined_ends(lists: Sequence[Int[np.ndarray, " _"]]) -> Int[np.ndarray, " _"]:
    """Where each video begins and the last one ends, of lists that each begin at 0."""
    return np.cumsum([0, *np.concatenate([np.diff(ends) for ends in lists])])


def _coded(axes: Axes, rows: Float[np.ndarray, "R D"]) -> tuple[np.ndarray, ...]:
    head, body, tail = axes.turned(rows)
    squares, sums = (tail * tail).sum(axis=1), np.abs(tail).sum(axis=1)
    scale = np.divide(squares, sums, out=np.zeros_like(squares), where=sums > 0)
    left_out = np.sqrt(np.maximum(scale * scale * tail.shape[1] - squares, 0))
    error = np.divide(left_out, scale, out=np.zeros_like(scale), where=scale > 0)
    words = _words(tail > 0).reshape(len(rows) // LANES, LANES, -1).transpose(0, 2, 1)
    in_blocks = scale.reshape(-1, LANES), error.reshape(-1, LANES).max(axis=1)
    return (*_bytes(head), *_bytes(body), np.ascontiguousarray(words), *in_blocks)


def _bytes(part: Float32[np.ndarray, "R P"]) -> tuple[Int8[np.ndarray, " _"], Float32[np.ndarray, " B"]]:
    """A head or body in 8 bits, pairs of numbers of all rows of a block side by side, and each block's unit."""
    blocks = _even(part).reshape(len(part) // LANES, LANES, -1)
    unit = np.maximum(np.abs(blocks).max(axis=(1, 2), initial=0.0), np.float32(1e-20)) / 127
    pairs = np.rint(blocks / unit[:, None, None]).astype(np.int8).reshape(len(blocks), LANES, -1, 2)
    return np.ascontiguousarray(pairs.transpose(0, 2, 1, 3)).reshape(-1), unit.astype(np.float32)


def _short(part: Float32[np.ndarray, " P"]) -> tuple[Int16[np.ndarray, " _"], np.float32]:
    unit = np.float32(max(float(np.abs(part).max(initial=0.0)), 1e-20) / 32000)
    return np.rint(_even(part[None])[0] / unit).astype(np.int16), unit


def _even(part: Float32[np.ndarray, "R P"]) -> Float32[np.ndarray, "R Q"]:
    return np.pad(part, ((0, 0), (0, max(2, part.shape[1] + part.shape[1] % 2) - part.shape[1])))


def _words(bits: np.ndarray) -> UInt64[np.ndarray, ...]:
    """Bits in words of 64."""
    padded = np.pad(bits, [(0, 0)] * (bits.ndim - 1) + [(0, -bits.shape[-1] % 64)])
    return np.packbits(padded, axis=-1, bitorder="little").view(np.uint64)


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="scan")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_threads.cache_clear)  # threads do not go along


def _share(number: int, piece: int, work: Callable[[int, int], object]) -> None:
    """Do work on parts of a range, each by the next thread that is free."""
    starts, lock = iter(range(0, number, piece)), threading.Lock()

    def take() -> Iterator[int]:
        while True:
            with lock:
                start = next(starts, None)
            if start is None:
                return
            yield start

    def run() -> None:
        for start in take():
            work(start, min(start + piece, number))

    others = [_threads().submit(run) for _ in range(min(cores(), -(-number // piece)) - 1)]
    run()
    for other in others:
        if not other.cancel():  # one that has not begun, behind other searches' work, has nothing left to do
            other.result()
