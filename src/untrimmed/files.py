"""Write a file or a folder so that it is there whole or not at all; know a file by its content."""

import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def write_whole(path: Path, content: str | bytes, *, alone: bool = False) -> None:
    """Write a file of this content, text as UTF-8 with its line ends as they are; see `whole_file`."""
    with whole_file(path, alone=alone) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


@contextmanager
def whole_file(path: Path, *, replace: bool = True, alone: bool = False) -> Iterator[Path]:
    """A path beside `path` to write to; it takes the name `path` when the block ends without an error.

    Missing parent folders are made. After an error nothing is left, made folders included, and an older `path` is
    untouched. A kill or a loss of power at any moment leaves the old file or the new one, and what was written so far
    under a hidden name; a writer that is `alone`, for no other process writes this file, clears that of the last away.

    Raises: FileExistsError, without `replace`, where another file has come up under that name meanwhile.
    """
    with _beside(path, "part" if alone else secrets.token_hex(4)) as temporary:
        try:
            if alone:
                temporary.unlink(missing_ok=True)
            os.close(os.open(temporary, os.O_CREAT | os.O_EXCL, 0o666))
            mode = temporary.stat().st_mode
            yield temporary
            temporary.chmod(mode)  # some writers make private files; a data set or a run is shared like any other file
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            (os.replace if replace else _link)(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


def file_sha256(path: Path) -> str:
    """The SHA-256 of all bytes of a file, which is read a piece at a time."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A folder beside `path` to fill; it takes the name `path` when the block ends without an error.

    If `path` is there by then, made by another process, theirs stays and ours is dropped.
    """
    with _beside(path, secrets.token_hex(4)) as temporary:
        try:
            temporary.mkdir()
            yield temporary
            try:
                os.rename(temporary, path)
            except OSError:
                if not path.is_dir():
                    raise
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def _beside(path: Path, suffix: str) -> Iterator[Path]:
    """A hidden name beside `path`; missing parents are made, and removed again if still empty after an error."""
    made = [folder for folder in path.parents if not folder.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name[:50]}.{suffix}")
    try:
        with suppress(FileNotFoundError):
            path.lstat()  # a name that cannot be is told before the work, not after it
        yield temporary
    except BaseException as error:
        if isinstance(error, OSError) and error.errno is not None and _tells_nobody(error.filename, temporary):
            error.filename = str(path)
        for folder in made:
            with suppress(OSError):  # not empty: another process uses it
                folder.rmdir()
        raise


def _tells_nobody(name: str | bytes | None, temporary: Path) -> bool:
    """Whether an error names nothing, as one of a full disk, or the temporary file or folder."""
    return name is None or Path(os.fsdecode(name)).name == temporary.name


def _link(temporary: Path, path: Path) -> None:
    """Give the file a name that must be free."""
    try:
        os.link(temporary, path)  # unlike a rename, fails where another file has come up
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        os.rename(temporary, path)
