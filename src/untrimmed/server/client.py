"""Search with a running service, which has already loaded the encoder and vectors.

This module does not import slow packages.
"""

from __future__ import annotations

import http.client
import io
import json
import os
from dataclasses import is_dataclass, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

import untrimmed.errors as errors
from untrimmed.search.query.hits import Hits
from untrimmed.search.query.query import Cutoff, Place, Query, specs
from untrimmed.search.store.listing import read_records
from untrimmed.search.store.records import absolute
from untrimmed.server.notice import Notice, find_notice

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import UInt8

_PATIENCE_S = 60.0  # the first search of a service takes long, because it loads the encoder and vectors


def ask_service(library: Path, query: Query, cutoff: Cutoff) -> Hits | None:
    """Return hits from the running service of a library, or None if no service can answer.

    If the result is None, the caller must search in this process.

    Raises:
        UntrimmedError: The service's library refuses the query.
    """
    notice = find_notice(library)
    if notice is None:
        return None
    like, unlike = (_places(library, places) for places in (query.like, query.unlike))
    if like is None or unlike is None:
        return None
    answer = _post(notice, _request(replace(query, like=like, unlike=unlike), cutoff), query.image)
    return None if answer is None else Hits.from_json(answer)


def ask_address(address: str, query: Query, cutoff: Cutoff, *, token: str | None = None) -> Hits:
    """Return hits from the service at an address such as `http://127.0.0.1:8765`.

    The query may have sentences and filters, but no picture.

    Raises:
        UntrimmedError: The address is invalid, no service answers there, or the service refuses the query.
    """
    try:
        place = urlsplit(address)
    except ValueError:
        place = urlsplit("")
    if place.scheme not in ("http", "https") or not place.hostname:
        raise errors.ConfigError(
            f"{address!r} is not the address of a service; expected an address such as http://127.0.0.1:8765"
        )
    kind = http.client.HTTPSConnection if place.scheme == "https" else http.client.HTTPConnection
    request = _request(query, cutoff)
    try:
        connection = kind(place.hostname, place.port, timeout=_PATIENCE_S)
        status, answer = _send(connection, token, f"{place.path.rstrip('/')}/api/search", request, None)
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = errors.one_line(error)
        raise errors.UntrimmedError(
            f"{address}: no service answers ({reason}); start one with `untrimmed serve`"
        ) from None
    if status == 200:
        try:
            return Hits.from_json(answer)
        except (KeyError, TypeError, AttributeError):
            raise errors.UntrimmedError(
                f"{address}: the answer does not come from untrimmed; check the address"
            ) from None
    _raise(answer)
    raise errors.UntrimmedError(f"{address}: {answer.get('detail') or answer.get('title') or status}")


def _request(query: Query, cutoff: Cutoff) -> dict[str, Any]:
    """Return a query as the JSON body of a request, without the query's picture."""
    if (within := query.filters.within) is not None:
        query = replace(query, filters=replace(query.filters, within=absolute(within)))
    return as_json(query) | as_json(cutoff)


def as_json(value: Any) -> Any:
    """Return a part of a query as JSON, without fields that have their default value."""
    if isinstance(value, Place):
        return {"video_id": os.fspath(value.video), "start_s": value.start_s, "end_s": value.end_s}
    if is_dataclass(value):
        names = [name for name, (_, spec) in specs(type(value)).items() if spec.is_json]
        changed = {name: getattr(value, name) for name in names if getattr(value, name) != getattr(type(value), name)}
        return {name: as_json(field) for name, field in changed.items()}
    if isinstance(value, tuple | list):
        return [as_json(item) for item in value]
    return str(value) if isinstance(value, date | os.PathLike) else value


def _png(picture: UInt8[np.ndarray, "Y X 3"]) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def _post(notice: Notice, request: dict[str, Any], picture: UInt8[np.ndarray, "Y X 3"] | None) -> dict[str, Any] | None:
    connection = http.client.HTTPConnection(notice.host, notice.port, timeout=_PATIENCE_S)
    try:
        status, answer = _send(connection, notice.token, "/api/search", request, picture)
    except (OSError, http.client.HTTPException, ValueError):
        return None
    if status == 200:
        return answer
    _raise(answer)
    # the service has stricter limits, or there is a bug; the caller's own search will succeed or report the cause
    return None


def _send(
    connection: http.client.HTTPConnection,
    token: str | None,
    route: str,
    request: dict[str, Any],
    picture: UInt8[np.ndarray, "Y X 3"] | None,
) -> tuple[int, dict[str, Any]]:
    """Send a request, and return the status and the JSON object of the response.

    Raises:
        OSError, http.client.HTTPException, ValueError: The request failed, or the response is not a JSON object.
    """
    text = json.dumps(request)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        if picture is None:
            connection.request("POST", route, text.encode(), headers | {"Content-Type": "application/json"})
        else:
            headers |= {"Content-Type": "application/octet-stream"}
            connection.request("POST", f"{route}/picture?{urlencode({'query': text})}", _png(picture), headers)
        response = connection.getresponse()
        answer = json.loads(response.read())
        if not isinstance(answer, dict):
            raise ValueError("the answer is not a JSON object")
        return response.status, answer
    finally:
        connection.close()


def _raise(problem: dict[str, Any]) -> None:
    """Raise the error that the service reports, if it is an UntrimmedError."""
    kind = getattr(errors, str(problem.get("error")), None)
    if isinstance(kind, type) and issubclass(kind, errors.UntrimmedError) and "detail" in problem:
        raise kind(problem["detail"])


def _places(library: Path, places: tuple[Place, ...]) -> tuple[Place, ...] | None:
    """Return places with the ids of videos instead of their paths.

    Returns None if a video is not in the library. The caller then searches in this process, which raises the error.
    """
    if not places:
        return ()
    records = read_records(library)
    ids = {record.path: record.video_id for record in records} | {
        record.video_id: record.video_id for record in records
    }
    video_ids: list[Any] = [
        ids.get(os.fspath(place.video)) or ids.get(os.path.abspath(place.video)) for place in places
    ]
    if None in video_ids:
        return None
    return tuple(replace(place, video=video_id) for video_id, place in zip(video_ids, places, strict=True))
