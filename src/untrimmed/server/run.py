"""Opens a socket and serves until a signal stops it."""

import errno
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from untrimmed.errors import ConfigError
from untrimmed.search.library import Library
from untrimmed.server.access import Access
from untrimmed.server.app import create_app
from untrimmed.server.notice import announce
from untrimmed.server.schemas import Job
from untrimmed.server.service import Service

_KEEP_ALIVE_S = 60  # longer than clients pause between requests, so they do not hit a closing connection


def serve(
    library: Library,
    *,
    host: str,
    port: int,
    access: Access,
    folders: tuple[Path, ...] = (),
    watch: tuple[Path, ...] = (),
    on_start: Callable[[str], None],
    on_job: Callable[[Job], None],
) -> None:
    """Serve a library until Ctrl-C.

    `on_start` is called with the address when the service starts, `on_job` with every finished indexing run that a
    watched folder started.

    Raises:
        ConfigError: The address is in use or cannot be bound.
    """
    with listening_at(host, port) as (listening, address):
        app = create_app(library, access=access, folders=folders, watch=watch, on_job=on_job, warm=True)
        on_start(address + (f"?token={access.token}" if access.token else ""))
        local = _local_address(host)
        with suppress(OSError):  # the notice needs the folder, and a new library does not have it yet
            library.folder.mkdir(parents=True, exist_ok=True)
        with announce(library.folder, local, listening.getsockname()[1], access.own_token) if local else nullcontext():
            run_app(app, listening, app.state.service)


def run_app(app: ASGIApp, listening: socket.socket, service: Service) -> None:
    """Serve an application on a socket until Ctrl-C, which also cancels long work of the service."""
    config = uvicorn.Config(
        app,
        log_level="error",  # warnings are about malformed requests, with which a client could fill the log
        ws="none",  # a request for a web socket is answered like any other
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=5,
        timeout_keep_alive=_KEEP_ALIVE_S,
        workers=1,
    )
    _HttpServer(config, service.cancel_long_work).run(sockets=[listening])


@contextmanager
def listening_at(host: str, port: int) -> Iterator[tuple[socket.socket, str]]:
    """A listening socket and its URL. Port 0 chooses a free port.

    Raises:
        ConfigError: The address is in use or cannot be bound.
    """
    listening = _socket(host, port)
    try:
        name = socket.gethostname() if host == "0.0.0.0" else host  # browsers cannot open 0.0.0.0
        url_host = f"[{name}]" if ":" in name else name
        yield listening, f"http://{url_host}:{listening.getsockname()[1]}/"
    finally:
        listening.close()


class _HttpServer(uvicorn.Server):
    """A server that cancels long work on a signal, before it waits for open requests."""

    def __init__(self, config: uvicorn.Config, cancel: Callable[[], None]) -> None:
        super().__init__(config)
        self._cancel = cancel

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handle a signal. A thread cancels the work, because the interrupted code may hold a lock that it needs."""
        threading.Thread(target=self._cancel, daemon=True).start()
        super().handle_exit(sig, frame)


def _local_address(host: str) -> str | None:
    """The loopback address of a service that listens at `host`; None if it has none."""
    if host in ("localhost", "127.0.0.1", "0.0.0.0"):
        return "127.0.0.1"
    return "::1" if host in ("::1", "::") else None


def _socket(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family, backlog=128)
        # Connections inherit this. Without it the system holds back the body of a small answer until the client has
        # acknowledged the headers, for 40 ms. asyncio sets it only for sockets that it creates itself.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(f"port {port} of {host} is in use; choose another --port, or 0 for a free port") from None
        raise ConfigError(f"cannot listen at {host}:{port} ({error.strerror}); check --host and --port") from None
