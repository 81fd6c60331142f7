"""Create the service of a library: routes, access control and the page."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.responses import Response
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import Match, Mount
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from untrimmed.passages.passage import TEXT_MODES, Mode
from untrimmed.search.library import Library
from untrimmed.search.store.bucket import name_of
from untrimmed.search.store.records import read_settings
from untrimmed.server import bin_routes, job_routes, proxy_routes, search_routes, thumbnail_routes, video_routes
from untrimmed.server.access import Access, Guard, Heads
from untrimmed.server.depends import ServiceDependency, require_token
from untrimmed.server.metrics import KIND, Meter, Metrics
from untrimmed.server.problems import RESPONSES, Problem, PublicError, add_problems
from untrimmed.server.proxies import DEFAULT_CACHE_BYTES
from untrimmed.server.schemas import Facts, Health, Job, Stopped
from untrimmed.server.service import Service
from untrimmed.server.stored_folders import CHOSEN, WATCHED, read_folders
from untrimmed.server.watching import Pace
from untrimmed.version import __version__

PAGE = Path(__file__).with_name("page")
_MIN_COMPRESSED = 1000  # bytes; smaller files fit into one packet anyway

router = APIRouter(tags=["service"])


class _Page(Mount):
    """Serves the files of the web page at all paths without a route.

    If a path has a route, but not for the method of the request, the request is refused with status 405.
    """

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return a partial match, so that routes take precedence over the page.

        A route with the same path but another HTTP method is also a partial match. It takes precedence because it was
        added earlier.
        """
        match, child_scope = super().matches(scope)
        return (Match.PARTIAL if match is Match.FULL else match), child_scope


def create_app(
    library: Library,
    *,
    access: Access | None = None,
    folders: tuple[Path, ...] = (),
    watch: tuple[Path, ...] = (),
    roots: tuple[Path, ...] = (),
    pace: Pace = Pace(),
    on_job: Callable[[Job], None] = lambda job: None,
    warm: bool = False,
    proxy_bytes: int = DEFAULT_CACHE_BYTES,
) -> FastAPI:
    """Create the service as an ASGI application.

    The application opens no socket. It loads no model until it starts.

    Args:
        access: Accepted hosts and tokens; by default, only this machine has access.
        folders: Folders that may be indexed from the page, in addition to the folders with indexed videos. Folders that
            users chose on the page earlier are added if they may still be chosen.
        watch: Folders to index whenever they change, in addition to the watched folders that users chose on the page.
        roots: Users with the token may choose any folder in these folders, in `folders` and in `watch`.
        pace: Intervals at which watched folders are checked.
        on_job: Called with every finished indexing run that was started by a change in a watched folder.
        warm: Load the encoder and vectors in the background when the application starts.
        proxy_bytes: Maximum total size of the cached proxies.
    """
    watch = (*watch, *read_folders(library.folder, WATCHED))
    allowed = (*(Path(os.path.realpath(root)) for root in roots), *folders, *watch)
    chosen = [path for path in read_folders(library.folder, CHOSEN) if any(map(path.is_relative_to, allowed))]
    service = Service(
        library,
        (*folders, *watch, *chosen),
        (*roots, *folders, *watch),
        pace=pace,
        on_job=on_job,
        proxy_bytes=proxy_bytes,
    )
    metrics = Metrics()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        if warm:
            service.warm_up()
        service.watch(watch)
        yield
        service.close()

    app = FastAPI(
        title="untrimmed",
        version=__version__,
        description="Find, by a sentence, the moment inside long untrimmed videos.",
        lifespan=lifespan,
        openapi_url="/api/openapi.json",
        docs_url=None,  # FastAPI's documentation pages are disabled, because they load scripts from other sites
        redoc_url=None,
        responses=RESPONSES,
    )
    app.state.service = service
    app.state.metrics = metrics
    metrics.gauge("videos", "Indexed videos.", lambda: len(service.records()))
    metrics.gauge("open_jobs", "Indexing runs that are not finished.", lambda: service.jobs.num_open)
    metrics.gauge("cached_picture_bytes", "Size of the frames cached in memory.", lambda: service.pictures.num_bytes)
    for module in (search_routes, video_routes, thumbnail_routes, proxy_routes, bin_routes, job_routes):
        app.include_router(module.router)
    app.include_router(router)
    _add_schema_of_problems(app)
    add_problems(app)
    if (PAGE / "index.html").exists():
        # only the page is compressed: videos and pictures already are, and compression would delay streamed answers
        files = GZipMiddleware(StaticFiles(directory=PAGE, html=True), minimum_size=_MIN_COMPRESSED, compresslevel=6)
        app.router.routes.append(_Page("/", files, name="page"))
    app.add_middleware(Meter, metrics=metrics)
    app.add_middleware(Heads)
    app.add_middleware(Guard, access=access or Access())
    return app


@router.get("/api/facts", summary="Facts about the library")
async def facts(service: ServiceDependency) -> Facts:
    """Return facts about the library and the service."""
    records = await service.read(service.records)
    settings = await service.read(read_settings, service.library.folder)
    return Facts(
        library=name_of(service.library.folder),
        version=__version__,
        num_videos=len(records),
        duration_s=sum(record.duration_s for record in records),
        encoder=settings.encoder_identity if settings else None,
        model=settings.model if settings else None,
        sampling=settings.sampling if settings else None,
        modes=await service.read(_modes, service.library) if records else ["seen"],
    )


def _modes(library: Library) -> list[Mode]:
    passages = library.engine.view().passages
    return ["seen", *(mode for mode in TEXT_MODES if passages and mode in passages.modes)]


@router.get("/healthz", summary="Health check")
async def health(service: ServiceDependency) -> Health:
    """Return whether the library has videos to search. Requires no token."""
    count = len(await service.read(service.records))
    return Health(status="ok" if count else "empty", num_videos=count)


@router.post("/api/stop", summary="Stop the service", status_code=202, dependencies=[Depends(require_token)])
async def stop(service: ServiceDependency) -> Stopped:
    """Stop the service, like Ctrl-C. Finished videos stay indexed. Requires the token."""
    if service.stop is None:
        raise PublicError(409, "another program runs this service; stop that program")
    service.stop()
    return Stopped(is_stopping=True)


@router.get(
    "/metrics",
    summary="Prometheus metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics_text(service: ServiceDependency, request: Request) -> Response:
    """Return metrics for Prometheus."""
    return Response(await service.read(request.app.state.metrics.text), media_type=KIND)


def _add_schema_of_problems(app: FastAPI) -> None:
    """Add the schema `Problem` to the OpenAPI document, because responses refer to it."""
    original = app.openapi

    def with_problems() -> dict[str, object]:
        schema = original()
        schema["components"].setdefault("schemas", {})["Problem"] = Problem.model_json_schema()
        return schema

    app.openapi = with_problems  # type: ignore[method-assign]
