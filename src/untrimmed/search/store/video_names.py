"""Find a library's video by what people call it: its path, its file name, or that without the suffix."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from untrimmed.errors import ConfigError, UnknownNameError, shown


class VideoNames:
    """The videos at some paths by their names."""

    def __init__(self, paths: Iterable[str]):
        self._paths: dict[str, list[str]] = {}
        for path in paths:
            for name in {path, Path(path).name, Path(path).stem}:
                self._paths.setdefault(name, []).append(path)

    def find_all(self, name: str) -> list[str]:
        """The paths of all videos of that name."""
        return self._paths.get(name) or self._paths.get(os.path.abspath(name)) or []

    def find(self, name: str) -> str | None:
        """The path of the one video of that name; None if there is none.

        Raises:
            UnknownNameError: Several videos have it.
        """
        found = self.find_all(name)
        if len(found) > 1:
            raise UnknownNameError(f"video {name!r} fits {len(found)} files, e.g. {found[0]}; name it by its path")
        return found[0] if found else None


def absolute(path: str | os.PathLike[str]) -> Path:
    """The path from the root, links in it kept.

    Raises:
        ConfigError: It is empty, or begins with the name of a user who is not known.
    """
    if not os.fspath(path):
        raise ConfigError("a path is empty; name a file or a folder ('.' is the current one)")
    try:
        return Path(os.path.abspath(Path(path).expanduser()))
    except RuntimeError as error:
        raise ConfigError(f"{shown(Path(path))}: {error}; write ./~NAME for a file that is called so") from None
