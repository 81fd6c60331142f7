"""Arguments that FastAPI passes to routes: the service, and the video or indexing run with the id in the request."""

from typing import Annotated

from fastapi import Depends, Path, Request

from untrimmed.search.store.records import VideoRecord
from untrimmed.server.access import HAS_TOKEN
from untrimmed.server.jobs import IndexJob
from untrimmed.server.problems import PublicError
from untrimmed.server.schemas import VIDEO_ID
from untrimmed.server.service import Service


def _service(request: Request) -> Service:
    service = request.app.state.service
    assert isinstance(service, Service)
    return service


ServiceDependency = Annotated[Service, Depends(_service)]


def _has_token(request: Request) -> bool:
    """Whether the request contains an accepted token. If only this machine has access, few routes require one."""
    return bool(request.scope.get(HAS_TOKEN))


TokenDependency = Annotated[bool, Depends(_has_token)]


def require_token(has_token: TokenDependency) -> None:
    """Refuse a request without a token.

    Raises:
        PublicError: The request has no token.
    """
    if not has_token:
        raise PublicError(
            403, "only the user who started the service may do this; run `untrimmed`, which opens the page with a token"
        )


async def _record(
    service: ServiceDependency, video_id: Annotated[str, Path(pattern=VIDEO_ID, examples=["5f0c9a1be2d34477"])]
) -> VideoRecord:
    return await service.read(service.record, video_id)


def _job(
    service: ServiceDependency, job_id: Annotated[str, Path(pattern=VIDEO_ID, examples=["9a1be2d344775f0c"])]
) -> IndexJob:
    return service.jobs.get(job_id)


RecordDependency = Annotated[VideoRecord, Depends(_record)]
JobDependency = Annotated[IndexJob, Depends(_job)]
