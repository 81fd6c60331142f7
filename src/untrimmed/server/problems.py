"""What goes wrong, as JSON that programs read (RFC 9457): the same one line that the command line prints."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from untrimmed.errors import (
    ConfigError,
    FeatureError,
    UnknownNameError,
    UntrimmedError,
    missing_package,
)

log = logging.getLogger(__name__)

_IDS = {"video_id", "job_id", "folder_id", "folder_ids"}
_STATUS: tuple[tuple[type[UntrimmedError], int], ...] = (  # the first that fits
    (UnknownNameError, 404),
    (FeatureError, 422),
    (ConfigError, 422),
    (
        UntrimmedError,
        409,
    ),  # the library's state: nothing is in it yet, another process writes, the encoder is not there
)


class Problem(BaseModel):
    """Why a request was not served."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"title": "Not Found", "status": 404, "detail": "no video has this id; list them anew"}]
        }
    )
    title: str = Field(description="The status in words.")
    status: int
    detail: str = Field(description="One line: what was found, what was wanted, what to do.")
    error: str | None = Field(None, description="The class of the error, as in untrimmed.errors.")


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """How the description of the service names problems of these statuses."""
    return {
        status: {
            "description": HTTPStatus(status).phrase,
            "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        for status in statuses
    }


RESPONSES = problems(400, 401, 403, 404, 409, 413, 422)  # of every route


class PublicError(Exception):
    """A request that is refused with a status of its own."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail


def problem(status: int, detail: str, error: str | None = None, headers: dict[str, str] | None = None) -> Response:
    """The answer to a request that is refused."""
    body = Problem(title=HTTPStatus(status).phrase, status=status, detail=detail, error=error)
    return JSONResponse(body.model_dump(), status, headers, media_type="application/problem+json")


def what_is_wrong(first: Mapping[str, Any]) -> tuple[str, bool]:
    """The first of pydantic's errors in one line, and whether that says all that is to be known."""
    place = ".".join(str(part) for part in first["loc"])
    if first["type"] == "string_pattern_mismatch" and _IDS & {*first["loc"]}:
        return f"{place}: {str(first['input'])[:50]!r} is no id, which is 16 digits from 0 to f", True
    return f"{place or 'the arguments'}: {first['msg']}", False


def add_problems(app: FastAPI) -> None:
    """Answer errors with problems: those of this package, of requests that fit no schema, and bugs."""

    @app.exception_handler(UntrimmedError)
    async def refused(_: Request, error: UntrimmedError) -> Response:
        status = next(status for kind, status in _STATUS if isinstance(error, kind))
        return problem(status, str(error), type(error).__name__)

    @app.exception_handler(PublicError)
    async def refused_here(_: Request, error: PublicError) -> Response:
        return problem(error.status, error.detail)

    @app.exception_handler(ModuleNotFoundError)
    async def not_installed(_: Request, error: ModuleNotFoundError) -> Response:
        reason = missing_package(error)
        return _bug(error) if reason is None else problem(409, reason)

    @app.exception_handler(RequestValidationError)
    async def no_such_form(_: Request, error: RequestValidationError) -> Response:
        line, is_whole = what_is_wrong(error.errors()[0])
        return problem(422, line if is_whole else f"{line}; see /api/openapi.json"[:500])

    @app.exception_handler(HTTPException)
    async def of_the_framework(_: Request, error: HTTPException) -> Response:
        return problem(
            error.status_code, f"{error.detail}; see /api/openapi.json", headers=dict(error.headers or {}) or None
        )

    @app.exception_handler(Exception)
    async def bug(_: Request, error: Exception) -> Response:
        return _bug(error)


def _bug(error: Exception) -> Response:
    log.error("a request failed", exc_info=error)
    return problem(500, "this is a bug of the service; its log has the traceback")
