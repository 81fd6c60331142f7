"""Responses to failed requests (RFC 9457), with the same one-line messages as on the command line."""

import logging
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any, get_args

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from untrimmed.errors import (
    ConfigError,
    FeatureError,
    StaleVersionError,
    UnknownNameError,
    UntrimmedError,
    missing_package,
    nearest,
)

log = logging.getLogger(__name__)

_IDS = {"video_id", "job_id", "folder_id", "folder_ids", "bin_id"}
# an error gets the status of the first class in this list that it is an instance of
_STATUS: tuple[tuple[type[UntrimmedError], int], ...] = (
    (UnknownNameError, 404),
    (FeatureError, 422),
    (ConfigError, 422),
    (StaleVersionError, 412),
    (UntrimmedError, 409),  # the library is empty, locked by a writer, or lacks its encoder
)


class Problem(BaseModel):
    """Why a request failed."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"title": "Not Found", "status": 404, "detail": "no video has this id; list the videos again"}]
        }
    )
    title: str = Field(description="The name of the status.")
    status: int
    detail: str = Field(description="One line: what was found, what was expected, and how to fix it.")
    error: str | None = Field(None, description="The class of the error in untrimmed.errors.")


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return OpenAPI documentation for failed requests with these statuses."""
    return {
        status: {
            "description": HTTPStatus(status).phrase,
            "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        for status in statuses
    }


# pydantic's name for the number in a field that accepts a number or a word
_BRANCH_OF_UNION = "constrained-int"
RESPONSES = problems(400, 401, 403, 404, 409, 413, 422)  # the statuses of failures that are documented for every route


class PublicError(Exception):
    """Raised to refuse a request with a status and a one-line reason."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


def problem(status: int, detail: str, error: str | None = None, headers: dict[str, str] | None = None) -> Response:
    """Create the response to a failed request."""
    body = Problem(title=HTTPStatus(status).phrase, status=status, detail=detail, error=error)
    return JSONResponse(body.model_dump(), status, headers, media_type="application/problem+json")


def validation_message(first: Mapping[str, Any], body: Any = None) -> tuple[str, bool]:
    """Return a one-line message for a pydantic error, and whether it is complete.

    If it is not complete, the response should also refer to the schema. `body` is the type of the request's body. It is
    used to suggest the name of a similar field.
    """
    place = ".".join(str(part) for part in first["loc"] if part != _BRANCH_OF_UNION)
    if first["type"] == "string_pattern_mismatch" and _IDS & {*first["loc"]}:
        return f"{place}: {str(first['input'])[:50]!r} is not an id; expected 16 hexadecimal digits", True
    if first["type"] == "extra_forbidden":
        *parents, name = first["loc"]
        hint = nearest(str(name), _field_names(body, parents[1:]))
        within = "" if parents == ["body"] else ".".join(str(part) for part in parents)
        return f"{f'{within}: ' if within else ''}unknown field {str(name)[:50]!r}{hint}", False
    return f"{place or 'the arguments'}: {first['msg']}", False


def _field_names(annotation: Any, place: Iterable[int | str]) -> list[str]:
    """Return the names of the fields at a place in a value of a type, e.g. of `like` and 0 in a search request."""
    fields = _fields(annotation)
    for part in place:
        if part in fields:
            fields = _fields(fields[str(part)])
    return [*fields]


def _fields(annotation: Any) -> dict[str, Any]:
    """Return the types of the fields of all models in a type, such as `list[Model] | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return {name: field.annotation for name, field in annotation.model_fields.items()}
    return {name: kind for part in get_args(annotation) for name, kind in _fields(part).items()}


def add_problems(app: FastAPI) -> None:
    """Make the application respond with a `Problem` to invalid requests, errors of this package, and bugs."""

    @app.exception_handler(UntrimmedError)
    async def library_error(_: Request, error: UntrimmedError) -> Response:
        status = next(status for kind, status in _STATUS if isinstance(error, kind))
        return problem(status, str(error), type(error).__name__)

    @app.exception_handler(PublicError)
    async def public_error(_: Request, error: PublicError) -> Response:
        return problem(error.status, error.detail, headers={"retry-after": "5"} if error.status == 503 else None)

    @app.exception_handler(ModuleNotFoundError)
    async def missing_module(_: Request, error: ModuleNotFoundError) -> Response:
        reason = missing_package(error)
        return _bug(error) if reason is None else problem(409, reason)

    @app.exception_handler(RequestValidationError)
    async def invalid_request(request: Request, error: RequestValidationError) -> Response:
        body = getattr(request.scope.get("route"), "body_field", None)
        line, is_complete = validation_message(error.errors()[0], body and body.field_info.annotation)
        end = " See /api/openapi.json" if line.endswith("?") else "; see /api/openapi.json"
        return problem(422, line if is_complete else f"{line}{end}"[:500])

    @app.exception_handler(HTTPException)
    async def http_error(_: Request, error: HTTPException) -> Response:
        return problem(
            error.status_code, f"{error.detail}; see /api/openapi.json", headers=dict(error.headers or {}) or None
        )

    @app.exception_handler(Exception)
    async def bug(_: Request, error: Exception) -> Response:
        return _bug(error)


def _bug(error: Exception) -> Response:
    log.error("a request failed", exc_info=error)
    return problem(500, "this is a bug in the service; see the traceback in its log")
