"""Routes of indexing runs and of watched folders, which start some; progress comes as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable
from pathlib import Path as FolderPath
from typing import Annotated

from fastapi import APIRouter, Path
from fastapi.sse import EventSourceResponse, ServerSentEvent

from untrimmed.server.depends import AJob, AService
from untrimmed.server.problems import PublicError
from untrimmed.server.schemas import VIDEO_ID, Folder, Job, JobRequest, Watch
from untrimmed.server.service import Service

_LOOK_S = 0.1

router = APIRouter(prefix="/api", tags=["indexing"])


@router.get("/folders")
async def folders(service: AService) -> list[Folder]:
    """The folders that may be indexed from here."""
    records = await service.read(service.records)
    found = await service.read(service.indexable)
    return [
        Folder(folder_id=folder_id, path=str(path), num_videos=len(records.below(path)))
        for folder_id, path in found.items()
    ]


@router.get("/watches")
async def watches(service: AService) -> list[Watch]:
    """The folders that are watched: what is new, changed or gone below them is indexed by itself."""
    return await service.read(service.watches.shown)


@router.post("/watches", status_code=201)
async def watch(service: AService, request: JobRequest) -> list[Watch]:
    """Watch folders from now on; services of this library that come later do so, too."""
    await service.read(service.start_watching, await _folders(service, request))
    return await service.read(service.watches.shown)


@router.delete("/watches/{folder_id}")
async def unwatch(service: AService, folder_id: Annotated[str, Path(pattern=VIDEO_ID)]) -> list[Watch]:
    """Watch a folder no more; its videos stay. Gives those that are still watched."""
    await service.read(service.stop_watching, folder_id)
    return await service.read(service.watches.shown)


@router.get("/jobs")
async def jobs(service: AService) -> list[Job]:
    """The indexing runs of this service, the newest first."""
    return [job.shown for job in service.jobs.all()]


@router.post("/jobs", status_code=202)
async def start(service: AService, request: JobRequest) -> Job:
    """Bring the library up to date with folders; one run at a time works, others wait."""
    return service.jobs.start(await _folders(service, request)).shown


async def _folders(service: Service, request: JobRequest) -> list[FolderPath]:
    known = await service.read(service.indexable)
    if unknown := [folder_id for folder_id in request.folder_ids if folder_id not in known]:
        raise PublicError(404, f"no folder has the id {unknown[0]}; list them anew: /api/folders")
    return [known[folder_id] for folder_id in dict.fromkeys(request.folder_ids)]


@router.get("/jobs/{job_id}")
async def job(job: AJob) -> Job:
    """One run."""
    return job.shown


@router.post("/jobs/{job_id}/pause")
async def pause(job: AJob) -> Job:
    """Wait at the next step; searches go on."""
    job.pause()
    return job.shown


@router.post("/jobs/{job_id}/resume")
async def resume(job: AJob) -> Job:
    """Go on."""
    job.resume()
    return job.shown


@router.post("/jobs/{job_id}/stop")
async def stop(job: AJob) -> Job:
    """End at the next step; what was reported done is kept."""
    job.stop()
    return job.shown


@router.post("/jobs/{job_id}/retry", status_code=202)
async def retry(service: AService, job: AJob) -> Job:
    """A new run of the files that could not be indexed."""
    return service.jobs.retry(job).shown


@router.get("/jobs/{job_id}/events", response_class=EventSourceResponse)
async def events(service: AService, job: AJob) -> AsyncIterable[ServerSentEvent]:
    """The run as it changes, as server-sent events of type `job`; ends with the run, or the service."""
    seen = -1
    while True:
        is_last = not job.is_open
        if job.changed_at != seen:
            seen = job.changed_at
            yield ServerSentEvent(event="job", data=job.shown)
        if is_last or service.ends.is_set():
            return
        await asyncio.sleep(_LOOK_S)
