"""Open a socket and run the service until a signal stops the process."""

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
from untrimmed.server.notice import announce, url_of
from untrimmed.server.proxies import DEFAULT_CACHE_BYTES
from untrimmed.server.schemas import Job
from untrimmed.server.service import Service

# Seconds before an idle connection is closed. Clients pause for less time, so they can reuse the connection.
_KEEP_ALIVE_S = 60


def serve(
    library: Library,
    *,
    host: str,
    port: int,
    access: Access,
    folders: tuple[Path, ...] = (),
    watch: tuple[Path, ...] = (),
    roots: tuple[Path, ...] = (),
    is_port_fixed: bool = True,
    on_start: Callable[[str], None],
    on_job: Callable[[Job], None],
    proxy_bytes: int = DEFAULT_CACHE_BYTES,
) -> None:
    """Serve a library until Ctrl-C.

    Args:
        folders, watch, roots: See `create_app`.
        is_port_fixed: Whether to fail if the port is in use. Otherwise any free port is used.
        on_start: Called with the address when the service starts.
        on_job: Called with every finished indexing run that was started by a change in a watched folder.
        proxy_bytes: Maximum total size of the cached proxies.

    Raises:
        ConfigError: The address is in use or cannot be bound.
    """
    with listening_at(host, port, is_port_fixed=is_port_fixed) as (listening, address):
        app = create_app(
            library,
            access=access,
            folders=folders,
            watch=watch,
            roots=roots,
            on_job=on_job,
            warm=True,
            proxy_bytes=proxy_bytes,
        )
        on_start(address)
        local = _local_address(host)
        with (
            _existing(library.folder),
            announce(library.folder, local, listening.getsockname()[1], access.own_token) if local else nullcontext(),
        ):
            run_app(app, listening, app.state.service)


@contextmanager
def _existing(folder: Path) -> Iterator[None]:
    """Create the folder that `announce` writes to. Delete it after the `with` block if it is empty."""
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        with suppress(OSError):
            folder.rmdir()


def run_app(app: ASGIApp, listening: socket.socket, service: Service) -> None:
    """Serve an application on a socket until Ctrl-C, which also cancels long work such as indexing."""
    config = uvicorn.Config(
        app,
        log_level="error",  # a client could fill the log with warnings about malformed requests
        ws="none",  # answer a request for a web socket like any other request
        access_log=False,
        server_header=False,
        proxy_headers=False,  # a client could name another address, so that its user is not known
        timeout_graceful_shutdown=5,
        timeout_keep_alive=_KEEP_ALIVE_S,
        workers=1,
    )
    server = _HttpServer(config, service.cancel_long_work)
    service.stop = server.stop
    server.run(sockets=[listening])


@contextmanager
def listening_at(host: str, port: int, *, is_port_fixed: bool = True) -> Iterator[tuple[socket.socket, str]]:
    """Open a socket for a `with` block, and yield the socket and its URL.

    A free port is chosen if `port` is 0, or if it is in use and not fixed.

    Raises:
        ConfigError: The address is in use or cannot be bound.
    """
    try:
        listening = _socket(host, port)
    except ConfigError:
        if is_port_fixed:
            raise
        listening = _socket(host, 0)
    try:
        name = socket.gethostname() if host == "0.0.0.0" else host  # browsers cannot open 0.0.0.0
        yield listening, url_of(name, listening.getsockname()[1])
    finally:
        listening.close()


class _HttpServer(uvicorn.Server):
    """A server that cancels long work when a signal arrives, before it waits for open requests."""

    def __init__(self, config: uvicorn.Config, cancel: Callable[[], None]) -> None:
        super().__init__(config)
        self._cancel = cancel

    def stop(self) -> None:
        """Stop the server like a signal, but with exit code 0."""
        threading.Thread(target=self._cancel, daemon=True).start()
        self.should_exit = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handle a signal.

        Long work is cancelled in another thread, because cancelling needs locks that the interrupted code may hold.
        """
        threading.Thread(target=self._cancel, daemon=True).start()
        super().handle_exit(sig, frame)


def _local_address(host: str) -> str | None:
    """Return the loopback address of a service that listens at `host`, or None if there is no such address."""
    if host in ("localhost", "127.0.0.1", "0.0.0.0"):
        return "127.0.0.1"
    return "::1" if host in ("::1", "::") else None


def _socket(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family, backlog=128)
        # Connections inherit this option. Without it, the system delays the body of a small response by 40 ms, until
        # the client has acknowledged the headers. asyncio only sets it for sockets that it creates.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(f"port {port} of {host} is in use; choose another --port, or 0 for a free port") from None
        raise ConfigError(f"cannot listen at {host}:{port} ({error.strerror}); check --host and --port") from None
