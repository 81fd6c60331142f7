"""Search for moments and return them as documents. All retrievers use this module."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from untrimmed.search.library import Library
from untrimmed.search.query.hits import Hit
from untrimmed.search.query.query import Cutoff, Filters, GroupBy, Query, specs
from untrimmed.server.client import ask_address

Source: TypeAlias = Library | str  # an open library, or the address of a service
_MAX_MOMENTS = int(specs(Cutoff)["moments"][1].service_maximum or 0)  # largest number of moments per video
_METADATA = ("video_id", "start_s", "end_s", "peak_s", "score", "confidence", "duration_s")


@dataclass(frozen=True)
class MomentDocument:
    """A moment as a document.

    The text is the file name and the span, because the library has no captions. The keys of `metadata` are `video` (a
    path), `video_id`, `start_s`, `end_s`, `peak_s`, `score`, `confidence` (None if it was not measured) and
    `duration_s` (the length of the video).
    """

    document_id: str
    text: str
    metadata: dict[str, Any]

    @classmethod
    def of(cls, hit: Hit) -> MomentDocument:
        """Return the first moment of a hit as a document."""
        return cls(
            f"{hit.video_id}@{hit.start_s:.3f}-{hit.end_s:.3f}",
            f"{Path(hit.video).name}, {hit.start_s:.1f} to {hit.end_s:.1f} s",
            {"video": str(hit.video), **{name: getattr(hit, name) for name in _METADATA}},
        )


def find_documents(
    source: Source,
    text: str,
    *,
    token: str | None = None,
    limit: int = 5,
    min_confidence: float | None = None,
    filters: Filters = Filters(),
    group_by: GroupBy = "video",
) -> list[MomentDocument]:
    """Return the moments that best match a sentence, best first. By default, return only one moment per video.

    Raises: UntrimmedError if the library refuses the query or no service answers at the address.
    """
    query = Query(text, filters=filters, group_by=group_by)
    moments = 1 if group_by == "video" else min(limit, _MAX_MOMENTS)
    cutoff = Cutoff(limit=limit, moments=moments, min_confidence=min_confidence)
    if isinstance(source, Library):
        hits = source.search(query, **vars(cutoff))
    else:
        hits = ask_address(source, query, cutoff, token=token)
    return [MomentDocument.of(hit) for hit in hits]
