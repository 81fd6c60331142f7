"""Opens the socket and serves until it is told to end."""

from __future__ import annotations

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
from untrimmed.server.notice import announced
from untrimmed.server.schemas import Job
from untrimmed.server.service import Service

_KEEP_ALIVE_S = 60  # a program that asks every few seconds must not meet a connection that is just being closed


def serve(
    library: Library,
    *,
    host: str,
    port: int,
    access: Access,
    folders: tuple[Path, ...] = (),
    watch: tuple[Path, ...] = (),
    tell: Callable[[str], None],
    tell_run: Callable[[Job], None],
) -> None:
    """Serve a library until Ctrl-C.

    `tell` is given the address once it answers, `tell_run` every run that watched folders led to, when it has ended.

    Raises:
        ConfigError: The address cannot be had.
    """
    with listening_at(host, port) as (listening, address):
        app = create_app(library, access=access, folders=folders, watch=watch, tell=tell_run, warm=True)
        tell(address + (f"?token={access.token}" if access.token else ""))
        own = _own_address(host)
        with suppress(OSError):  # of a library that nothing was indexed into yet; the notice lies in it
            library.folder.mkdir(parents=True, exist_ok=True)
        with announced(library.folder, own, listening.getsockname()[1], access.own_token) if own else nullcontext():
            run_app(app, listening, app.state.service)


def run_app(app: ASGIApp, listening: socket.socket, service: Service) -> None:
    """Serve an application on a socket until Ctrl-C, which ends what is long in its service."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=5,
        timeout_keep_alive=_KEEP_ALIVE_S,
        workers=1,
    )
    _Server(config, service.begin_end).run(sockets=[listening])


@contextmanager
def listening_at(host: str, port: int) -> Iterator[tuple[socket.socket, str]]:
    """A socket that listens at an address, and the address as a browser takes it; port 0 is any that is free.

    Raises:
        ConfigError: The address cannot be had.
    """
    listening = _socket(host, port)
    try:
        named = socket.gethostname() if host == "0.0.0.0" else host  # that means all of the machine's own
        shown = f"[{named}]" if ":" in named else named
        yield listening, f"http://{shown}:{listening.getsockname()[1]}/"
    finally:
        listening.close()


class _Server(uvicorn.Server):
    """Leaves what is long as soon as it is told to end; requests are given some seconds only after that."""

    def __init__(self, config: uvicorn.Config, leave: Callable[[], None]) -> None:
        super().__init__(config)
        self._leave = leave

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take a signal. Not here, in the middle of any line: that may hold a lock which leaving needs."""
        threading.Thread(target=self._leave, daemon=True).start()
        super().handle_exit(sig, frame)


def _own_address(host: str) -> str | None:
    """The address at which programs of this machine reach a service that listens at another; None where they do not."""
    if host in ("localhost", "127.0.0.1", "0.0.0.0"):
        return "127.0.0.1"
    return "::1" if host in ("::1", "::") else None


def _socket(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(f"port {port} of {host} is taken; choose another --port, or 0 for any") from None
        raise ConfigError(f"cannot listen at {host}:{port} ({error.strerror}); check --host and --port") from None
