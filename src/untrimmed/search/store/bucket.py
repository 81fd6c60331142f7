"""Libraries on object storage: the table and the settings lie there, all else on this machine.

A folder of the user's cache stands for such a library. Lock, copy of the records and cached blocks are files in it,
as of any library; one more names the address. Credentials and endpoint are those of the environment, as other programs
read them (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL ...).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs

from untrimmed.errors import ConfigError, UntrimmedError, one_line, shown
from untrimmed.files import write_whole

if TYPE_CHECKING:
    from lance.file import LanceFileSession

_ADDRESS = "address"
_SCHEME = re.compile(r"s3:/+")  # of paths, the second slash is gone
_TRIES, _PATIENCE_S = 2, 20
_REASONS = {
    "NoSuchBucket": "there is no such bucket; make it, or check the name",
    "credentials": "no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
    "conflict": "other machines were writing at the same time; run the same command again (what was done is kept)",
    "AccessDenied": "access denied; check the credentials and what they allow",
    "InvalidAccessKeyId": "access denied; check the credentials and what they allow",
    "SignatureDoesNotMatch": "access denied; check the credentials and what they allow",
}


def is_address(place: str) -> bool:
    """Whether a library's place is on object storage: s3://BUCKET/NAME."""
    return _SCHEME.match(place) is not None


def stand_in(address: str) -> Path:
    """The folder that stands for a library on object storage; it is made if it is not there.

    Raises: ConfigError for an address without bucket or name; UntrimmedError where it cannot be made.
    """
    bucket, _, name = _SCHEME.sub("", address).strip("/").partition("/")
    if not bucket or not name:
        raise ConfigError(f"{address}: not a library on object storage; name bucket and library: s3://BUCKET/NAME")
    address = f"s3://{bucket}/{name}"
    own = f"{name.rpartition('/')[2]}-{hashlib.blake2b(address.encode(), digest_size=6).hexdigest()}"
    folder = Path(platformdirs.user_cache_path("untrimmed")) / "libraries" / own
    try:
        if address_of(folder) != address:
            folder.mkdir(parents=True, exist_ok=True)
            write_whole(folder / _ADDRESS, address)
    except OSError as error:
        raise UntrimmedError(
            f"{shown(folder)}: cannot be made ({error.strerror}), and stands for {address}; set XDG_CACHE_HOME"
        ) from None
    return folder


def address_of(folder: Path) -> str | None:
    """The address of the library that a folder stands for; None for one that is a library itself."""
    try:
        return (folder / _ADDRESS).read_text(encoding="utf-8")
    except OSError:
        return None


def name_of(folder: Path) -> str:
    """How a library is called in messages."""
    return address_of(folder) or shown(folder)


def options() -> dict[str, str]:
    """What the store is told besides the environment, which it reads by itself."""
    told = {"client_max_retries": str(_TRIES), "client_retry_timeout": str(_PATIENCE_S)}
    endpoint = next(filter(None, map(os.environ.get, ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"))), None)
    if endpoint is not None:
        told |= {"aws_endpoint": endpoint, "allow_http": str(endpoint.startswith("http://")).lower()}
    return told


def fetch(address: str, name: str, to: Path) -> None:
    """Bring a copy of a file up to date; without one there, there is none here.

    Raises: UntrimmedError where the bucket cannot be read.
    """
    with _session(address) as session:
        if session.contains(name):
            new = to.with_name(f".{to.name}.{os.getpid()}")
            session.download_file(name, new)
            new.replace(to)
        else:
            session.list("_")  # says so where there is no bucket at all
            to.unlink(missing_ok=True)


def send(address: str, name: str, file: Path) -> None:
    """Put a copy of a file there.

    Raises: UntrimmedError where the bucket cannot be written to.
    """
    with _session(address) as session:
        session.upload_file(file, name)


def names(address: str, below: str) -> list[str]:
    """The names of all files below a folder there, without it.

    Raises: UntrimmedError where the bucket cannot be read.
    """
    with _session(address) as session:
        return [name.rpartition("/")[2] for name in session.list(below)]


def reason(error: BaseException) -> str:
    """What the store says, and what to do, on one line."""
    known = next((advice for word, advice in _REASONS.items() if word in str(error)), None)
    return known or f"{one_line(error)[:160]}; check the network and AWS_ENDPOINT_URL"


@contextlib.contextmanager
def _session(address: str) -> Iterator[LanceFileSession]:
    from lance.file import LanceFileSession

    from untrimmed.search.store.lance import lance  # noqa: F401  # sets up what the next line imports

    try:
        yield LanceFileSession(address, storage_options=options())
    except (OSError, RuntimeError, ValueError) as error:
        raise UntrimmedError(f"{address}: {reason(error)}") from error
