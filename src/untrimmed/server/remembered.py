"""The folders that people have told a service to watch: a file beside the library, so that the next service knows them.

Those of `--watch` are not in it: whoever starts the service names them each time.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from untrimmed.errors import UntrimmedError, shown
from untrimmed.files import write_whole

FILE = "watched.json"


def remembered(library: Path) -> tuple[Path, ...]:
    """The folders, whether or not they are there now; none where the file is damaged, or is not this user's own.

    Somebody else who can write to the library is not to choose what is read with this user's rights.
    """
    try:
        opened = os.open(library / FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(opened, encoding="utf-8") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid():
                return ()
            found = json.load(file)
    except (OSError, ValueError):  # nothing was remembered, or no JSON
        return ()
    is_whole = isinstance(found, list) and all(isinstance(one, str) and os.path.isabs(one) for one in found)
    return tuple(map(Path, found)) if is_whole else ()


def remember(library: Path, folders: Iterable[Path]) -> None:
    """Remember these folders and no others.

    Raises:
        UntrimmedError: The file cannot be written.
    """
    try:
        write_whole(library / FILE, json.dumps([str(folder) for folder in dict.fromkeys(folders)]))
    except OSError as error:
        raise UntrimmedError(
            f"{shown(library / FILE)}: cannot be written ({error.strerror}), and the next service would not know which "
            "folders to watch; see who may write there"
        ) from error
