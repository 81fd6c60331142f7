"""Move the edges of moments to exact shot changes. The sampled frames of a library only give approximate times."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path

from untrimmed.search.query.hits import Hit
from untrimmed.span import Moment
from untrimmed.video.process import Limits
from untrimmed.video.reader import FrameReader
from untrimmed.video.shot_changes import exact_edge_s

_LIMITS = Limits(cpu_s=20.0, stall_s=20.0, total_s=30.0)  # short limits, because a user is waiting
_MAX_EDGES = 100_000  # largest number of edges in the cache
_END_S = 0.05  # an edge this close to the end of the video is not moved


class ExactEdges:
    """Moves edges of moments to shot changes, and caches the results.

    It is thread-safe; one thread decodes at a time.
    """

    def __init__(self) -> None:
        self._reader = FrameReader(limits=_LIMITS)
        self._lock = threading.Lock()
        self._cache: OrderedDict[tuple[object, float], float] = OrderedDict()

    def moment(
        self,
        path: Path,
        moment: Moment,
        *,
        duration_s: float,
        content: object = None,
        min_s: float = 0.0,
        extend_only: bool = False,
    ) -> Moment:
        """Return the moment with each edge moved to a shot change within half a second, if there is one.

        The edges are unchanged if the moment would become shorter than `min_s` seconds, or if the file cannot be read.
        With `extend_only`, and for a moment with a passage, an edge does not move inwards, because this would cut off
        words. `content` is the file's key in the cache. If it is None, the path of the file is the key.
        """
        key = path if content is None else content
        start_s, end_s = (self._edge_s(path, key, edge_s, duration_s) for edge_s in (moment.start_s, moment.end_s))
        if extend_only or moment.has_passage:
            start_s, end_s = min(start_s, moment.start_s), max(end_s, moment.end_s)
        if end_s - start_s < min(min_s, moment.end_s - moment.start_s) or end_s <= start_s:
            return moment
        peak_s = None if moment.peak_s is None else min(max(moment.peak_s, start_s), end_s)
        return replace(moment, start_s=start_s, end_s=end_s, peak_s=peak_s)

    def hit(self, hit: Hit, *, content: object = None, min_s: float = 0.0) -> Hit:
        """Return the hit with the edges of all its moments moved, as in `moment`."""

        def exact(moments: tuple[Moment, ...]) -> tuple[Moment, ...]:
            return tuple(
                self.moment(hit.video, moment, duration_s=hit.duration_s, content=content, min_s=min_s)
                for moment in moments
            )

        moments = exact(hit.moments)
        best = moments[hit.moments.index(hit.best)]
        return replace(
            hit, moments=moments, then=exact(hit.then), start_s=best.start_s, end_s=best.end_s, peak_s=best.peak_s
        )

    def close(self) -> None:
        """Stop the decoder."""
        self._reader.close()

    def _edge_s(self, path: Path, key: object, edge_s: float, duration_s: float) -> float:
        if edge_s <= 0 or edge_s >= duration_s - _END_S:
            return edge_s
        with self._lock:
            if (key, edge_s) not in self._cache:
                self._cache[key, edge_s] = min(exact_edge_s(self._reader, path, edge_s), duration_s)
                if len(self._cache) > _MAX_EDGES:
                    self._cache.popitem(last=False)
            return self._cache[key, edge_s]
