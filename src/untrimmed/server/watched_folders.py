"""Store the watched folders that users chose on the page, so that they are watched after a restart.

The list is a file in the library folder. Folders of `--watch` are not stored, because the option names them at every
start.
"""

import json
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from untrimmed.errors import UntrimmedError, shown
from untrimmed.files import write_whole

FILE = "watched.json"


def read_folders(library: Path) -> tuple[Path, ...]:
    """Return the stored folders, including folders that do not exist at the moment.

    Returns no folders if the file is damaged or belongs to another user. Other users must not choose folders, because
    the service reads them with this user's rights.
    """
    try:
        opened = os.open(library / FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(opened, encoding="utf-8") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid():
                return ()
            folders = json.load(file)
    except (OSError, ValueError):  # the file does not exist, or is not JSON
        return ()
    is_valid = isinstance(folders, list) and all(isinstance(path, str) and os.path.isabs(path) for path in folders)
    return tuple(map(Path, folders)) if is_valid else ()


def write_folders(library: Path, folders: Iterable[Path]) -> None:
    """Replace the list of stored folders.

    Raises:
        UntrimmedError: The file cannot be written.
    """
    try:
        write_whole(library / FILE, json.dumps([str(folder) for folder in dict.fromkeys(folders)]))
    except OSError as error:
        raise UntrimmedError(
            f"{shown(library / FILE)}: cannot be written ({error.strerror}), so folders would not be watched after a "
            "restart; check the permissions of the folder"
        ) from error
