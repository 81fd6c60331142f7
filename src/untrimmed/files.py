"""Write files and folders atomically, so that no other process sees them half-written, and hash files."""

import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def write_whole(path: Path, content: str | bytes, *, is_only_writer: bool = False) -> None:
    """Write `content` to a file atomically, as `whole_file` does. Text is written as UTF-8 with unchanged line ends."""
    with whole_file(path, is_only_writer=is_only_writer) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


@contextmanager
def whole_file(path: Path, *, replace: bool = True, is_only_writer: bool = False) -> Iterator[Path]:
    """Yield a temporary file next to `path`. If the `with` block ends without an error, rename the file to `path`.

    Missing parent folders are created. After an error, the temporary file and the new folders are deleted, and an
    existing `path` is unchanged.

    If the process is killed or the power fails, `path` is the old or the new file, and the hidden temporary file may
    remain. With `is_only_writer`, the next call deletes this temporary file. Set `is_only_writer` only if no other
    process writes `path`.

    Raises: FileExistsError if `replace` is False and `path` exists when the block ends.
    """
    with _beside(path, "part" if is_only_writer else secrets.token_hex(4)) as temporary:
        try:
            if is_only_writer:
                temporary.unlink(missing_ok=True)
            os.close(os.open(temporary, os.O_CREAT | os.O_EXCL, 0o666))
            mode = temporary.stat().st_mode
            yield temporary
            temporary.chmod(mode)  # some writers make the file private: restore its first permissions
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            (os.replace if replace else _link)(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's content as hexadecimal digits. The file may be larger than memory."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder next to `path`. If the `with` block ends without an error, rename it to `path`.

    If another process creates `path` before the block ends, the other process's folder is kept, and the temporary
    folder is deleted.
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
    """Yield a hidden path next to `path`. Missing parent folders are created; after an error, empty ones are deleted.

    An error that names the hidden path is changed to name `path`.
    """
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
            with suppress(OSError):  # the folder is not empty, because another process uses it
                folder.rmdir()
        raise


def _hides_path(name: str | bytes | None, temporary: Path) -> bool:
    """Whether an error names the temporary path, or names no file (for example because the disk is full)."""
    return name is None or Path(os.fsdecode(name)).name == temporary.name


def _link(temporary: Path, path: Path) -> None:
    """Rename `temporary` to `path`.

    Raises: FileExistsError if `path` exists.
    """
    try:
        os.link(temporary, path)  # unlike a rename, this fails if the name exists
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        os.rename(temporary, path)
