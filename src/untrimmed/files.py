"""Write a file or a folder so that it is there whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A path beside `path` to write to; it takes the name `path` when the block ends without an error.

    Missing parent folders are made. After an error nothing is left, made folders included, and an older `path` is
    untouched.
    """
    with _new_parents(path):
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        try:
            yield temporary
            # mkstemp and some writers make private files; a data set or a run is shared like any other file
            temporary.chmod(0o666 & ~_umask())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A folder beside `path` to fill; it takes the name `path` when the block ends without an error.

    If `path` is there by then, made by another process, theirs stays and ours is dropped.
    """
    with _new_parents(path):
        temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
        temporary.chmod(0o777 & ~_umask())
        try:
            yield temporary
            try:
                os.rename(temporary, path)
            except OSError:
                if not path.is_dir():
                    raise
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def _new_parents(path: Path) -> Iterator[None]:
    """Make missing parent folders; those that are still empty after an error are removed again."""
    made = [folder for folder in path.parents if not folder.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException as error:
        if isinstance(error, OSError) and error.errno is not None and _tells_nobody(error.filename, path):
            error.filename = str(path)
        for folder in made:
            with suppress(OSError):  # not empty: another process uses it
                folder.rmdir()
        raise


def _tells_nobody(name: str | bytes | None, path: Path) -> bool:
    """Whether an error names nothing, as one of a full disk, or the temporary file or folder that stands for `path`."""
    return name is None or Path(os.fsdecode(name)).name.startswith(f".{path.name}.")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
