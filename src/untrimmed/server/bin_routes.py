"""The routes of bins: named, ordered lists of moments, stored in the library."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Path, Query

from untrimmed.search.store.bins import Bin, BinMoment
from untrimmed.server.depends import ServiceDependency
from untrimmed.server.problems import problems
from untrimmed.server.schemas import (
    VIDEO_ID,
    BinJson,
    BinList,
    BinMomentRequest,
    BinReplacement,
    BinRequest,
    BinSummary,
    BinVersion,
)
from untrimmed.server.service import Service

router = APIRouter(prefix="/api", tags=["bins"])

BinId = Annotated[str, Path(pattern=VIDEO_ID, examples=["344775f0c9a1be2d"])]


@router.get("/bins", summary="List the bins")
async def bins(service: ServiceDependency) -> BinList:
    """List the bins of the library by name, without their moments."""
    return await service.read(_list, service)


@router.post("/bins", summary="Create a bin", status_code=201)
async def create(service: ServiceDependency, request: BinRequest) -> BinJson:
    """Create a bin. No other bin may have its name."""
    return await service.read(_create, service, request)


@router.get("/bins/{bin_id}", summary="Read a bin")
async def read(service: ServiceDependency, bin_id: BinId) -> BinJson:
    """Return a bin and its moments. `is_missing` marks moments whose video was removed from the library."""
    return await service.read(_read, service, bin_id)


@router.put("/bins/{bin_id}", summary="Replace a bin", responses=problems(412))
async def write(service: ServiceDependency, bin_id: BinId, request: BinReplacement) -> BinJson:
    """Replace the name and all moments of a bin, if the version in the request is still the current version."""
    return await service.read(_replace, service, bin_id, request)


@router.delete("/bins/{bin_id}", summary="Delete a bin", responses=problems(412))
async def remove(service: ServiceDependency, bin_id: BinId, version: Annotated[BinVersion, Query()]) -> BinList:
    """Delete a bin, if this is still its current version. Returns the remaining bins."""
    await service.read(service.bins.remove, bin_id, version)
    return await service.read(_list, service)


def _list(service: Service) -> BinList:
    damaged = [f"{file}: is damaged; restore this file from a copy, or delete it" for file in service.bins.damaged()]
    return BinList(bins=[BinSummary.of(bin) for bin in service.bins.all()], problems=damaged)


def _read(service: Service, bin_id: str) -> BinJson:
    return _whole(service, service.bins.of(bin_id))


def _create(service: Service, request: BinRequest) -> BinJson:
    return _whole(service, service.bins.create(request.name, _with_paths(service, request.moments)))


def _replace(service: Service, bin_id: str, request: BinReplacement) -> BinJson:
    moments = _with_paths(service, request.moments)
    return _whole(service, service.bins.replace(bin_id, request.version, request.name, moments))


def _whole(service: Service, bin: Bin) -> BinJson:
    return BinJson.whole(bin, service.records())


def _with_paths(service: Service, moments: Iterable[BinMomentRequest]) -> list[BinMoment]:
    """Return the moments of a request with the paths of their videos."""
    records = service.records()
    stored = []
    for request in moments:
        moment = BinMoment(
            request.video_id, request.video, request.start_s, request.end_s, request.note, request.sentence
        )
        record = moment.record(records)
        stored.append(moment if record is None else replace(moment, video_id=record.video_id, path=record.path))
    return stored
