"""The cached proxies of a library: one file for each span that was played.

The name of a file consists of the hash of the video, the span, and the hash of the proxy itself.

A service writes proxies and deletes the oldest (`untrimmed.server.proxies`). A writer of the library deletes the
proxies of videos that are no longer in the library.
"""

import contextlib
import hashlib
import time
from collections.abc import Iterable
from pathlib import Path

PROXIES = "proxies"
_MAX_UNFINISHED_S = 3600.0  # if an unfinished file is older than this, the service that wrote it was killed


def proxy_name(content_hash: str, start_s: float, end_s: float) -> str:
    """Return the file name of the proxy of a span, without the hash of the proxy. Times are rounded to milliseconds."""
    return f"{content_hash}-{round(start_s * 1000)}-{round(end_s * 1000)}"


def named_by_hash(proxy: Path, name: str) -> Path:
    """Return the path for a complete proxy: `name` and the hash of the file's content. Raises: OSError."""
    with proxy.open("rb") as stream:
        digest = hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=8))
    return proxy.with_name(f"{name}-{digest.hexdigest()}")


def remove_unused_proxies(library: Path, content_hashes: Iterable[str]) -> None:
    """Remove the proxies of all videos except those with these content hashes."""
    used = set(content_hashes)
    with contextlib.suppress(OSError):  # the library may have no proxies
        for file in (library / PROXIES).iterdir():
            if file.name.lstrip(".").partition("-")[0] not in used:
                file.unlink(missing_ok=True)


def remove_oldest_proxies(folder: Path, max_bytes: int) -> None:
    """Remove the least recently used proxies until the rest have at most `max_bytes`."""
    files = []
    with contextlib.suppress(OSError):
        for file in folder.iterdir():
            with contextlib.suppress(OSError):  # another service may have deleted the file
                status = file.stat()
                files.append((status.st_mtime, status.st_size, file))
    num_bytes = 0
    for used_at, size, file in sorted(files, reverse=True):
        num_bytes += size
        is_unfinished = file.name.startswith(".")
        if is_unfinished and time.time() - used_at < _MAX_UNFINISHED_S:
            continue
        if is_unfinished or num_bytes > max_bytes:
            num_bytes -= size
            with contextlib.suppress(OSError):
                file.unlink(missing_ok=True)
