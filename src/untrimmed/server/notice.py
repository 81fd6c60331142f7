"""How the command line finds the service of a library: a file beside it, which names the port and holds a token.

Only its owner can read the file, and the service holds a lock on it while it runs, so that one whose service has ended,
in whichever way, is known by its lock being free. It is written for services that answer at this machine's own address.
"""

from __future__ import annotations

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
_LOOKS, _BETWEEN_S = 20, 0.02  # at a lock that a reader may hold for a moment


@dataclass(frozen=True)
class Notice:
    """Where a service answers, and the token that it takes from programs of this user."""

    host: str
    port: int
    token: str
    pid: int
    machine: str


@contextlib.contextmanager
def announced(library: Path, host: str, port: int, token: str) -> Iterator[bool]:
    """Let the commands of this user find the service while the block runs; gives whether they can.

    Not where the library cannot be written to, or another service of it has announced itself.
    """
    try:
        # Without O_TRUNC: the file may be that of a service that runs.
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
    """The notice of a service that runs on this machine, for this user; None where there is none to be trusted."""
    try:
        file = os.open(library / FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = os.fstat(file)
        is_own = stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077
        if not is_own or _is_free(file):
            return None
        notice = Notice(**json.loads(os.read(file, 4096)))
        return notice if notice.machine == socket.gethostname() and notice.host in ("127.0.0.1", "::1") else None
    except (OSError, ValueError, TypeError):  # being written, or damaged
        return None
    finally:
        os.close(file)


def _lock(file: int) -> bool:
    for _ in range(_LOOKS):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(_BETWEEN_S)
    return False


def _is_free(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
