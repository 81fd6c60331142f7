"""A file in the library folder with the address and token of the running service, for the command line.

Only the owner can read the file. The service holds a lock on it, so a free lock means that the service has stopped or
crashed. The file is only written for services that listen at a local address.
"""

import contextlib
import fcntl
import json
import os
import socket
import stat
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

FILE = "service.json"
_LOCK_ATTEMPTS = 20  # several attempts, because a reader may hold the lock for a moment
_LOCK_RETRY_S = 0.02


@dataclass(frozen=True)
class Notice:
    """The address of a service, and its token for programs of the same user."""

    host: str
    port: int
    token: str
    pid: int
    machine: str

    @property
    def address(self) -> str:
        """The URL of the page."""
        return url_of(self.host, self.port)


def url_of(host: str, port: int) -> str:
    """Return the URL of a service."""
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


@contextlib.contextmanager
def announce(library: Path, host: str, port: int, token: str) -> Iterator[bool]:
    """Let this user's commands find the service of a library during the `with` block.

    Yields whether the file was written. It is not written if the folder is not writable, or if another service of the
    library is running.
    """
    try:
        # O_TRUNC is left out, because the file may belong to a running service
        file = os.open(library / FILE, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        yield False
        return
    try:
        if not _lock(file):
            yield False
            return
        os.fchmod(file, 0o600)
        os.ftruncate(file, 0)
        notice = Notice(host, port, token, os.getpid(), socket.gethostname())
        os.write(file, json.dumps(asdict(notice)).encode())
        try:
            yield True
        finally:
            with contextlib.suppress(OSError):
                os.ftruncate(file, 0)
                os.unlink(library / FILE)
    finally:
        os.close(file)


def find_notice(library: Path) -> Notice | None:
    """Return the address and token of the library's running service on this machine.

    Returns None if no service is running, or if other users have access to the file of the notice.
    """
    try:
        file = os.open(library / FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = os.fstat(file)
        is_private = stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077
        if not is_private or _is_free(file):
            return None
        notice = Notice(**json.loads(os.read(file, 4096)))
        return notice if notice.machine == socket.gethostname() and notice.host in ("127.0.0.1", "::1") else None
    except (OSError, ValueError, TypeError):  # the file is being written, or it is damaged
        return None
    finally:
        os.close(file)


def _lock(file: int) -> bool:
    for _ in range(_LOCK_ATTEMPTS):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(_LOCK_RETRY_S)
    return False


def _is_free(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
