"""Support libraries on object storage. Tables and settings are in a bucket; everything else is on this machine.

Each library has a local folder in the user's cache folder. It contains the lock, the copy of the records, the cached
blocks and a file with the library's address. Credentials and endpoint come from the usual AWS environment variables.
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
_SCHEME = re.compile(r"s3:/+")  # any number of slashes, because `Path` removes the second slash
_ACCESS = "access denied; check the credentials and their permissions"
_ADVICE = {
    "NoSuchBucket": "there is no such bucket; create it, or check the name",
    "credentials": "no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
    "conflict": "other machines were writing at the same time; run the same command again (finished work is not lost)",
    "AccessDenied": _ACCESS,
    "InvalidAccessKeyId": _ACCESS,
    "SignatureDoesNotMatch": _ACCESS,
}


def is_address(text: str) -> bool:
    """Whether a text is an address on object storage: s3://BUCKET/NAME."""
    return _SCHEME.match(text) is not None


def local_folder(address: str) -> Path:
    """Return the local folder of a library on object storage. It is created if it does not exist.

    Raises:
        ConfigError: The address has no bucket or no name.
        UntrimmedError: The folder cannot be created.
    """
    bucket, _, name = _SCHEME.sub("", address).strip("/").partition("/")
    if not bucket or not name:
        raise ConfigError(f"{address}: not a library on object storage; name bucket and library: s3://BUCKET/NAME")
    address = f"s3://{bucket}/{name}"
    digest = hashlib.blake2b(address.encode(), digest_size=6).hexdigest()
    folder = platformdirs.user_cache_path("untrimmed") / "libraries" / f"{name.rpartition('/')[2]}-{digest}"
    try:
        if address_of(folder) != address:
            write_whole(folder / _ADDRESS, address)
    except OSError as error:
        raise UntrimmedError(
            f"{shown(folder)}: the local folder of {address} cannot be created ({error.strerror}); set XDG_CACHE_HOME"
        ) from None
    return folder


def address_of(folder: Path) -> str | None:
    """Return the address of the library with this local folder, or None if the library is not on object storage."""
    try:
        return (folder / _ADDRESS).read_text(encoding="utf-8")
    except OSError:
        return None


def name_of(folder: Path) -> str:
    """Return the name of a library for messages: its address or its folder."""
    return address_of(folder) or shown(folder)


def options() -> dict[str, str]:
    """Return the options for object storage that Lance does not read from the environment."""
    settings = {"client_max_retries": "2", "client_retry_timeout": "20"}
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if endpoint:
        settings |= {"aws_endpoint": endpoint, "allow_http": str(endpoint.startswith("http://")).lower()}
    return settings


def fetch(address: str, name: str, to: Path) -> None:
    """Download a file of the library to a local path. If it is not in the bucket, delete the local file."""
    with _session(address) as session:
        if session.contains(name):
            temporary = to.with_name(f".{to.name}.{os.getpid()}")
            session.download_file(name, temporary)
            temporary.replace(to)
        else:
            session.list("_")  # raises an error if the bucket does not exist
            to.unlink(missing_ok=True)


def send(address: str, name: str, file: Path) -> None:
    """Upload a local file to the library."""
    with _session(address) as session:
        session.upload_file(file, name)


def names(address: str, below: str) -> list[str]:
    """Return the names of all files in a folder of the library and its subfolders, without the folders."""
    with _session(address) as session:
        return [name.rpartition("/")[2] for name in session.list(below)]


def reason(error: BaseException) -> str:
    """Return one line of advice for an error of the object storage. For an unknown error, it is the error's message."""
    advice = next((advice for word, advice in _ADVICE.items() if word in str(error)), None)
    return advice or f"{one_line(error)[:160]}; check the network and AWS_ENDPOINT_URL"


@contextlib.contextmanager
def _session(address: str) -> Iterator[LanceFileSession]:
    """Open a library in a bucket for a `with` block. All errors become UntrimmedErrors."""
    from lance.file import LanceFileSession

    from untrimmed.search.store.lance import lance  # noqa: F401  # makes the next import faster

    try:
        yield LanceFileSession(address, storage_options=options())
    except (OSError, RuntimeError, ValueError) as error:
        raise UntrimmedError(f"{address}: {reason(error)}") from error
