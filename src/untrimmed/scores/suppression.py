"""Temporal non-maximum suppression: one moment of many overlapping candidates."""

from __future__ import annotations

from collections.abc import Sequence

from untrimmed.types import Moment


def suppress(
    moments: Sequence[Moment], priority: Sequence[float] | None = None, *, limit: int, max_iou: float
) -> list[Moment]:
    """The best moments, none overlapping a better one by more than `max_iou`, best first.

    What is best says `priority` (one number a moment), by default the moments' own scores. Equal ones are decided by
    the earlier start, so the result does not depend on the order given.

    >>> suppress([Moment(0, 4, 0.9), Moment(1, 5, 0.8), Moment(8, 9, 0.2)], limit=5, max_iou=0.3)
    [Moment(start_s=0, end_s=4, score=0.9), Moment(start_s=8, end_s=9, score=0.2)]
    """
    if priority is None:
        priority = [moment.score for moment in moments]
    kept: list[Moment] = []
    for _, moment in sorted(
        zip(priority, moments, strict=True), key=lambda pair: (-pair[0], pair[1].start_s, pair[1].end_s)
    ):
        if len(kept) >= limit:
            break
        if all(moment.iou(better) <= max_iou for better in kept):
            kept.append(moment)
    return kept
