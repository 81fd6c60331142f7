"""Asks the running service of a library instead of loading encoder and vectors; imports nothing that takes long."""

from __future__ import annotations

import http.client
import io
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

import untrimmed.errors as errors
from untrimmed.search.query.hits import Hit, Hits, WeighedWord
from untrimmed.search.query.query import Place, Query
from untrimmed.search.store.listing import read_records
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
    request = _request(query, limit=limit, moments=moments, min_score=min_score, min_confidence=min_confidence)
    answer = _post(notice, request | {"like": like, "unlike": unlike}, query.image)
    return None if answer is None else _hits(answer)


def ask_address(
    address: str, query: Query, *, token: str | None = None, limit: int, moments: int, min_confidence: float | None
) -> Hits:
    """The hits of a service at an address (`http://127.0.0.1:8765`), for a query of sentences and filters.

    Raises:
        UntrimmedError: It is no address, no service answers there, or the service refuses.
    """
    try:
        place = urlsplit(address)
    except ValueError:
        place = urlsplit("")
    if place.scheme not in ("http", "https") or not place.hostname:
        raise errors.ConfigError(f"{address!r} is no address of a service; name one as http://127.0.0.1:8765")
    kind = http.client.HTTPSConnection if place.scheme == "https" else http.client.HTTPConnection
    request = _request(query, limit=limit, moments=moments, min_score=None, min_confidence=min_confidence)
    try:
        connection = kind(place.hostname, place.port, timeout=_PATIENCE_S)
        status, found = _send(connection, token, f"{place.path.rstrip('/')}/api/search", request, None)
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = errors.one_line(error)
        raise errors.UntrimmedError(f"{address}: no service answers ({reason}); start: untrimmed serve") from None
    if status == 200:
        try:
            return _hits(found)
        except (KeyError, TypeError, AttributeError):
            raise errors.UntrimmedError(f"{address}: another program answers; name a service of untrimmed") from None
    _raise(found)
    raise errors.UntrimmedError(f"{address}: {found.get('detail') or found.get('title') or status}")


def _request(query: Query, **cutoff: float | None) -> dict[str, Any]:
    """What is sent for a query, but for its places and its picture."""
    filters = {
        name: str(value) if name in ("since", "until") else os.fspath(value) if name == "within" else value
        for name, value in asdict(query.filters).items()
        if value is not None
    }
    if "within" in filters:
        filters["within"] = os.path.abspath(os.path.expanduser(filters["within"]))
    return {
        "text": query.text,
        "then": query.then,
        "within_s": query.within_s,
        "without": query.without,
        "weights": asdict(query.weights),
        "filters": filters,
        "group_by": query.group_by,
        "fold": query.fold,
        **cutoff,
    }


def _png(picture: UInt8[np.ndarray, "Y X 3"]) -> bytes:
    from PIL import Image

    written = io.BytesIO()
    Image.fromarray(picture).save(written, "PNG", compress_level=1)
    return written.getvalue()


def _post(notice: Notice, request: dict[str, Any], picture: UInt8[np.ndarray, "Y X 3"] | None) -> dict[str, Any] | None:
    connection = http.client.HTTPConnection(notice.host, notice.port, timeout=_PATIENCE_S)
    try:
        status, found = _send(connection, notice.token, "/api/search", request, picture)
    except (OSError, http.client.HTTPException, ValueError):
        return None
    if status == 200:
        return found
    _raise(found)
    return None  # a limit of the service that the library does not have, or a bug: the search here says it


def _send(
    connection: http.client.HTTPConnection,
    token: str | None,
    route: str,
    request: dict[str, Any],
    picture: UInt8[np.ndarray, "Y X 3"] | None,
) -> tuple[int, dict[str, Any]]:
    """Status and JSON of the answer.

    Raises:
        OSError, http.client.HTTPException, ValueError: There is none.
    """
    text = json.dumps(request)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        if picture is None:
            connection.request("POST", route, text.encode(), headers | {"Content-Type": "application/json"})
        else:
            headers |= {"Content-Type": "application/octet-stream"}
            connection.request("POST", f"{route}/picture?{urlencode({'query': text})}", _png(picture), headers)
        answer = connection.getresponse()
        found = json.loads(answer.read())
        if not isinstance(found, dict):
            raise ValueError("the answer is none of a service")
        return answer.status, found
    finally:
        connection.close()


def _raise(problem: dict[str, Any]) -> None:
    """Raise what the library of the service has raised, if it is one of our errors."""
    kind = getattr(errors, str(problem.get("error")), None)
    if isinstance(kind, type) and issubclass(kind, errors.UntrimmedError) and "detail" in problem:
        raise kind(problem["detail"])


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
    words = [WeighedWord(one["word"], one["weight"]) for one in answer.get("words", [])]
    return Hits(found, answer["warnings"], partial=answer["partial"], words=words)


def _moments(spans: list[dict[str, float]]) -> tuple[Moment, ...]:
    return tuple(Moment(span["start_s"], span["end_s"], span["score"]) for span in spans)
