"""Store the folders that users chose on the page, so that the service knows them after a restart.

Each list is a file in the library folder. Folders of `--videos` and `--watch` are not stored, because the options name
them at every start.
"""

import json
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from untrimmed.errors import UntrimmedError, shown
from untrimmed.files import write_whole

CHOSEN = "chosen.json"  # folders to index
WATCHED = "watched.json"


def read_folders(library: Path, name: str) -> tuple[Path, ...]:
    """Return the folders of the list `name`, including folders that do not exist at the moment.

    Returns no folders if the file is damaged or belongs to another user. Other users must not choose folders, because
    the service reads them with this user's rights.
    """
    try:
        opened = os.open(library / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(opened, encoding="utf-8") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid():
                return ()
            folders = json.load(file)
    except (OSError, ValueError):  # the file does not exist, or is not JSON
        return ()
    is_valid = isinstance(folders, list) and all(isinstance(path, str) and os.path.isabs(path) for path in folders)
    return tuple(map(Path, folders)) if is_valid else ()


def write_folders(library: Path, name: str, folders: Iterable[Path]) -> None:
    """Replace the folders of the list `name`.

    Raises:
        UntrimmedError: The file cannot be written.
    """
    try:
        write_whole(library / name, json.dumps([str(folder) for folder in dict.fromkeys(folders)]))
    except OSError as error:
        raise UntrimmedError(
            f"{shown(library / name)}: cannot be written ({error.strerror}), so the service would forget folders at a "
            "restart; check the permissions of the folder"
        ) from error
