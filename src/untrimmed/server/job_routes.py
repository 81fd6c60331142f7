"""Routes for indexing runs and watched folders. Progress is sent as server-sent events."""

import asyncio
from collections.abc import AsyncIterable
from typing import Annotated

from fastapi import APIRouter, Depends, Path
from fastapi.sse import EventSourceResponse, ServerSentEvent

from untrimmed.server.depends import JobDependency, ServiceDependency, TokenDependency, require_token
from untrimmed.server.problems import problems
from untrimmed.server.schemas import (
    VIDEO_ID,
    CountedFolder,
    Folder,
    FolderListing,
    FolderQuery,
    Job,
    JobRequest,
    RemovedVideos,
    Watch,
)

_LOOK_S = 0.1
_FolderId = Annotated[str, Path(pattern=VIDEO_ID)]

router = APIRouter(prefix="/api", tags=["indexing"])


@router.get("/folders", summary="List the folders that may be indexed")
async def folders(service: ServiceDependency) -> list[Folder]:
    """List the folders that may be indexed."""
    records = await service.read(service.records)
    indexable = await service.read(service.indexable)
    return [
        Folder(folder_id=folder_id, path=str(path), num_videos=len(records.below(path)))
        for folder_id, path in indexable.items()
    ]


@router.delete("/folders/{folder_id}", summary="Remove the videos of a folder", dependencies=[Depends(require_token)])
async def remove_folder(service: ServiceDependency, folder_id: _FolderId) -> RemovedVideos:
    """Remove the videos of a folder from the library, and stop watching the folder.

    Files are kept. Requires the token.
    """
    return RemovedVideos(num_removed=await service.read(service.remove, folder_id))


@router.get(
    "/browse", summary="List the topmost folders", dependencies=[Depends(require_token)], responses=problems(503)
)
async def browse(service: ServiceDependency) -> FolderListing:
    """List the topmost folders that can be chosen, or the content of the only one. Requires the token."""
    return await service.read(service.browser.roots)


@router.get(
    "/browse/{folder_id}",
    summary="List the subfolders of a folder",
    dependencies=[Depends(require_token)],
    responses=problems(503),
)
async def browse_folder(service: ServiceDependency, folder_id: _FolderId) -> FolderListing:
    """List the subfolders of a folder. Requires the token."""
    return await service.read(service.browser.listing, folder_id)


@router.post("/browse/find", summary="Find folders by name", dependencies=[Depends(require_token)])
async def find_folders(service: ServiceDependency, query: FolderQuery) -> list[CountedFolder]:
    """Find folders with this name, and folders that contain a video file with this name. Requires the token."""
    return await service.read(service.browser.find, query.name)


@router.get("/watches", summary="List the watched folders")
async def watches(service: ServiceDependency) -> list[Watch]:
    """List the watched folders. Changes of the videos in them are indexed automatically."""
    return await service.read(service.watches.status)


@router.post("/watches", summary="Start watching folders", status_code=201)
async def watch(service: ServiceDependency, has_token: TokenDependency, request: JobRequest) -> list[Watch]:
    """Start watching folders. They are also watched after a restart of the service."""
    await service.read(service.start_watching, await service.read(service.choose, request.folder_ids, has_token))
    return await service.read(service.watches.status)


@router.delete("/watches/{folder_id}", summary="Stop watching a folder")
async def unwatch(service: ServiceDependency, folder_id: _FolderId) -> list[Watch]:
    """Stop watching a folder. Its videos stay indexed. Returns the remaining watched folders."""
    await service.read(service.stop_watching, folder_id)
    return await service.read(service.watches.status)


@router.get("/jobs", summary="List the indexing runs")
async def jobs(service: ServiceDependency) -> list[Job]:
    """List the indexing runs of this service, newest first."""
    return [job.status for job in service.jobs.all()]


@router.post("/jobs", summary="Start an indexing run", status_code=202)
async def start(service: ServiceDependency, has_token: TokenDependency, request: JobRequest) -> Job:
    """Index new and changed videos in folders. Runs are processed one at a time."""
    return service.jobs.start(await service.read(service.choose, request.folder_ids, has_token)).status


@router.get("/jobs/{job_id}", summary="Read an indexing run")
async def job(job: JobDependency) -> Job:
    """Return an indexing run."""
    return job.status


@router.post("/jobs/{job_id}/pause", summary="Pause an indexing run")
async def pause(job: JobDependency) -> Job:
    """Pause the run at the next step. Searches are not affected."""
    job.pause()
    return job.status


@router.post("/jobs/{job_id}/resume", summary="Resume an indexing run")
async def resume(job: JobDependency) -> Job:
    """Resume a paused run."""
    job.resume()
    return job.status


@router.post("/jobs/{job_id}/stop", summary="Stop an indexing run")
async def stop(job: JobDependency) -> Job:
    """Stop the run at the next step. Finished videos stay indexed."""
    job.stop()
    return job.status


@router.post("/jobs/{job_id}/retry", summary="Retry the failed files of an indexing run", status_code=202)
async def retry(service: ServiceDependency, job: JobDependency) -> Job:
    """Start a new run for the files that failed."""
    return service.jobs.retry(job).status


@router.get(
    "/jobs/{job_id}/events", summary="Stream the progress of an indexing run", response_class=EventSourceResponse
)
async def events(service: ServiceDependency, job: JobDependency) -> AsyncIterable[ServerSentEvent]:
    """Stream the changes of an indexing run as server-sent events of type `job`, until the run or the service ends."""
    last_change = -1
    while True:
        is_last = not job.is_open
        if job.changed_at != last_change:
            last_change = job.changed_at
            yield ServerSentEvent(event="job", data=job.status)
        if is_last or service.ends.is_set():
            return
        await asyncio.sleep(_LOOK_S)
