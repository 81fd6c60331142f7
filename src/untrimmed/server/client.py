"""Asks the running service of a library instead of loading encoder and vectors; imports nothing that takes long."""

from __future__ import annotations

import http.client
import io
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import untrimmed.errors as errors
from untrimmed.search.hits import Hit, Hits
from untrimmed.search.listing import read_records
from untrimmed.search.query import Place, Query
from untrimmed.server.notice import Notice, find_notice

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import UInt8
from untrimmed.span import Moment

_PATIENCE_S = 60.0  # its first search loads what a search needs


def ask_service(
    library: Path,
    query: Query,
    *,
    limit: int,
    moments: int,
    min_score: float | None,
    min_confidence: float | None,
) -> Hits | None:
    """The hits of the service of a library; None where none runs, or it cannot answer: then the caller searches.

    Raises:
        UntrimmedError: What the library would refuse.
    """
    notice = find_notice(library)
    if notice is None:
        return None
    like, unlike = (_places(library, places) for places in (query.like, query.unlike))
    if like is None or unlike is None:
        return None
    filters = {
        name: str(value) if name in ("since", "until") else os.fspath(value) if name == "within" else value
        for name, value in asdict(query.filters).items()
        if value is not None
    }
    if "within" in filters:
        filters["within"] = os.path.abspath(os.path.expanduser(filters["within"]))
    request = {
        "text": query.text,
        "then": query.then,
        "within_s": query.within_s,
        "without": query.without,
        "like": like,
        "unlike": unlike,
        "weights": asdict(query.weights),
        "filters": filters,
        "group_by": query.group_by,
        "fold": query.fold,
        "limit": limit,
        "moments": moments,
        "min_score": min_score,
        "min_confidence": min_confidence,
    }
    if query.image is None:
        answer = _post(notice, "/api/search", json.dumps(request).encode(), "application/json")
    else:
        route = f"/api/search/picture?{urlencode({'query': json.dumps(request)})}"
        answer = _post(notice, route, _png(query.image), "application/octet-stream")
    return None if answer is None else _hits(answer)


def _png(picture: UInt8[np.ndarray, "Y X 3"]) -> bytes:
    from PIL import Image

    written = io.BytesIO()
    Image.fromarray(picture).save(written, "PNG", compress_level=1)
    return written.getvalue()


def _post(notice: Notice, route: str, body: bytes, body_type: str) -> dict[str, Any] | None:
    connection = http.client.HTTPConnection(notice.host, notice.port, timeout=_PATIENCE_S)
    headers = {"Authorization": f"Bearer {notice.token}", "Content-Type": body_type}
    try:
        connection.request("POST", route, body, headers)
        answer = connection.getresponse()
        found = json.loads(answer.read())
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
    if answer.status == 200:
        return found
    kind = getattr(errors, str(found.get("error")), None)
    if isinstance(kind, type) and issubclass(kind, errors.UntrimmedError):
        raise kind(found["detail"])
    return None  # a limit of the service that the library does not have, or a bug: the search here says it


def _places(library: Path, places: tuple[Place, ...]) -> list[dict[str, Any]] | None:
    """Places by ids; None where one is in no video, which the search here says better."""
    if not places:
        return []
    records = read_records(library)
    ids = {record.path: record.video_id for record in records} | {
        record.video_id: record.video_id for record in records
    }
    found = [ids.get(os.fspath(place.video)) or ids.get(os.path.abspath(place.video)) for place in places]
    if None in found:
        return None
    return [
        {"video_id": video_id, "start_s": place.start_s, "end_s": place.end_s}
        for video_id, place in zip(found, places, strict=True)
    ]


def _hits(answer: dict[str, Any]) -> Hits:
    found = [
        Hit(
            video=Path(hit["video"]),
            video_id=hit["video_id"],
            start_s=hit["start_s"],
            end_s=hit["end_s"],
            score=hit["score"],
            duration_s=hit["duration_s"],
            moments=_moments(hit["moments"]),
            confidence=hit.get("confidence"),
            then=_moments(hit.get("then", [])),
            folded=tuple(map(Path, hit.get("folded", []))),
        )
        for hit in answer["hits"]
    ]
    return Hits(found, answer["warnings"], partial=answer["partial"])


def _moments(spans: list[dict[str, float]]) -> tuple[Moment, ...]:
    return tuple(Moment(span["start_s"], span["end_s"], span["score"]) for span in spans)
