"""Write files and folders atomically, so that they never exist half-written, and hash files."""

import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def write_whole(path: Path, content: str | bytes, *, is_only_writer: bool = False) -> None:
    """Write a file with this content atomically (see `whole_file`).

    Text is written as UTF-8 with unchanged line ends.
    """
    with whole_file(path, is_only_writer=is_only_writer) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


@contextmanager
def whole_file(path: Path, *, replace: bool = True, is_only_writer: bool = False) -> Iterator[Path]:
    """A temporary file next to `path`, which is renamed to `path` if the block ends without an error.

    Missing parent folders are created. After an error, the temporary file and the new folders are deleted, and an older
    `path` is unchanged. If the process is killed or the power fails, `path` is the old or the new file, and the hidden
    temporary file may remain. With `is_only_writer`, the next call deletes such a temporary file. Set it only if no
    other process writes `path`.

    Raises: FileExistsError if `replace` is False and `path` exists when the block ends.
    """
    with _beside(path, "part" if is_only_writer else secrets.token_hex(4)) as temporary:
        try:
            if is_only_writer:
                temporary.unlink(missing_ok=True)
            os.close(os.open(temporary, os.O_CREAT | os.O_EXCL, 0o666))
            mode = temporary.stat().st_mode
            yield temporary
            temporary.chmod(mode)  # some writers create private files, but data sets and runs follow the user's umask
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            (os.replace if replace else _link)(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file's content. The file is read in blocks, so it may be larger than memory."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A temporary folder next to `path`, which is renamed to `path` if the block ends without an error.

    If another process has created `path` in the meantime, this folder is kept and the temporary folder is deleted.
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
    """A hidden name next to `path`. Missing parents are created, and after an error deleted if they are empty."""
    new_folders = [folder for folder in path.parents if not folder.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name[:50]}.{suffix}")
    try:
        with suppress(FileNotFoundError):
            path.lstat()  # raise an error for an impossible name before the caller's work, not after it
        yield temporary
    except BaseException as error:
        if isinstance(error, OSError) and error.errno is not None and _hides_path(error.filename, temporary):
            error.filename = str(path)
        for folder in new_folders:
            with suppress(OSError):  # not empty: another process uses it
                folder.rmdir()
        raise


def _hides_path(name: str | bytes | None, temporary: Path) -> bool:
    """Whether an error names the temporary path instead of the final path, or no path (for example, if the disk is
    full)."""
    return name is None or Path(os.fsdecode(name)).name == temporary.name


def _link(temporary: Path, path: Path) -> None:
    """Rename the file, but fail if the new name exists."""
    try:
        os.link(temporary, path)  # unlike a rename, this fails if the name exists
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        os.rename(temporary, path)
