"""Routes for indexing runs and watched folders. Progress is sent as server-sent events."""

import asyncio
from collections.abc import AsyncIterable
from pathlib import Path as FolderPath
from typing import Annotated

from fastapi import APIRouter, Path
from fastapi.sse import EventSourceResponse, ServerSentEvent

from untrimmed.server.depends import JobDependency, ServiceDependency
from untrimmed.server.problems import PublicError
from untrimmed.server.schemas import VIDEO_ID, Folder, Job, JobRequest, Watch
from untrimmed.server.service import Service

_LOOK_S = 0.1

router = APIRouter(prefix="/api", tags=["indexing"])


@router.get("/folders")
async def folders(service: ServiceDependency) -> list[Folder]:
    """The folders that clients may index."""
    records = await service.read(service.records)
    indexable = await service.read(service.indexable)
    return [
        Folder(folder_id=folder_id, path=str(path), num_videos=len(records.below(path)))
        for folder_id, path in indexable.items()
    ]


@router.get("/watches")
async def watches(service: ServiceDependency) -> list[Watch]:
    """The watched folders. New, changed and deleted videos in them are indexed automatically."""
    return await service.read(service.watches.status)


@router.post("/watches", status_code=201)
async def watch(service: ServiceDependency, request: JobRequest) -> list[Watch]:
    """Start watching folders. Later services of this library watch them, too."""
    await service.read(service.start_watching, await _folders(service, request))
    return await service.read(service.watches.status)


@router.delete("/watches/{folder_id}")
async def unwatch(service: ServiceDependency, folder_id: Annotated[str, Path(pattern=VIDEO_ID)]) -> list[Watch]:
    """Stop watching a folder. Its videos stay indexed. Returns the remaining watched folders."""
    await service.read(service.stop_watching, folder_id)
    return await service.read(service.watches.status)


@router.get("/jobs")
async def jobs(service: ServiceDependency) -> list[Job]:
    """The indexing runs of this service, newest first."""
    return [job.status for job in service.jobs.all()]


@router.post("/jobs", status_code=202)
async def start(service: ServiceDependency, request: JobRequest) -> Job:
    """Index new and changed videos in folders. Runs are processed one at a time."""
    return service.jobs.start(await _folders(service, request)).status


async def _folders(service: Service, request: JobRequest) -> list[FolderPath]:
    indexable = await service.read(service.indexable)
    if unknown := [folder_id for folder_id in request.folder_ids if folder_id not in indexable]:
        raise PublicError(404, f"no folder has the id {unknown[0]}; list the folders again: /api/folders")
    return [indexable[folder_id] for folder_id in dict.fromkeys(request.folder_ids)]


@router.get("/jobs/{job_id}")
async def job(job: JobDependency) -> Job:
    """An indexing run."""
    return job.status


@router.post("/jobs/{job_id}/pause")
async def pause(job: JobDependency) -> Job:
    """Pause the run at the next step. Searches are not affected."""
    job.pause()
    return job.status


@router.post("/jobs/{job_id}/resume")
async def resume(job: JobDependency) -> Job:
    """Resume a paused run."""
    job.resume()
    return job.status


@router.post("/jobs/{job_id}/stop")
async def stop(job: JobDependency) -> Job:
    """Stop the run at the next step. Videos reported as done stay indexed."""
    job.stop()
    return job.status


@router.post("/jobs/{job_id}/retry", status_code=202)
async def retry(service: ServiceDependency, job: JobDependency) -> Job:
    """Start a new run for the files that failed."""
    return service.jobs.retry(job).status


@router.get("/jobs/{job_id}/events", response_class=EventSourceResponse)
async def events(service: ServiceDependency, job: JobDependency) -> AsyncIterable[ServerSentEvent]:
    """Changes of an indexing run, as server-sent events of type `job`, until the run finishes or the service stops."""
    last_change = -1
    while True:
        is_last = not job.is_open
        if job.changed_at != last_change:
            last_change = job.changed_at
            yield ServerSentEvent(event="job", data=job.status)
        if is_last or service.ends.is_set():
            return
        await asyncio.sleep(_LOOK_S)
