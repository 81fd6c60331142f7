"""Parts of an indexing run that many machines share: which files are whose, and where each part's library lies.

A file belongs to the part that a hash of its path says, relative to the folder that was named. So the parts are
disjoint and together everything, wherever the folder is mounted, and none needs to know of the others.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from untrimmed.errors import ConfigError
from untrimmed.search.store.records import absolute

_NAMED = re.compile(r"(.+)\.part-(\d+)-of-(\d+)")


@dataclass(frozen=True)
class Part:
    """Part `number` of `total`, counted from 1."""

    number: int
    total: int

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.total:
            raise ConfigError(f"part is {self}; parts are counted from 1: the last of 16 is 16/16")

    def __str__(self) -> str:
        return f"{self.number}/{self.total}"

    @classmethod
    def parse(cls, text: str) -> Part:
        """A part as it is typed.

        >>> Part.parse("3/16")
        Part(number=3, total=16)

        Raises:
            ConfigError: It is none.
        """
        found = re.fullmatch(r"(\d+)/(\d+)", text.strip())
        if found is None:
            raise ConfigError(f"part is {text!r}; write which one of how many: 3/16")
        return cls(int(found[1]), int(found[2]))

    def folder(self, library: Path) -> Path:
        """Where the part's own library lies: beside the one that it is a part of.

        >>> Part(3, 16).folder(Path("films")).name
        'films.part-03-of-16'
        """
        return library.with_name(f"{library.name}.part-{self.number:0{len(str(self.total))}d}-of-{self.total}")

    def holds(self, name: str) -> bool:
        """Whether a file of this name, relative to the folder that was given, is of this part."""
        digest = hashlib.blake2b(os.fsencode(name), digest_size=8).digest()
        return int.from_bytes(digest, "big") % self.total == self.number - 1

    def choose(self, files: Iterable[Path], given: Sequence[Path]) -> tuple[Path, ...]:
        """The files of this part, among those found in the paths that were given.

        A file that was given itself goes by its name alone, one below several folders by the first of them.
        """
        roots = [absolute(path) for path in given]
        return tuple(file for file in files if self.holds(_relative(file, roots)))


def missing_parts(folders: Iterable[Path]) -> list[Path]:
    """The libraries of parts that are not there, going by the names of those that are."""
    missing: dict[Path, None] = {}
    named = {folder: _NAMED.fullmatch(folder.name) for folder in folders}
    for folder, found in named.items():
        if found is not None and (total := int(found[3])):
            whole = folder.with_name(found[1])
            missing |= dict.fromkeys(Part(number, total).folder(whole) for number in range(1, total + 1))
    return [folder for folder in missing if folder not in named]


def _relative(file: Path, roots: Sequence[Path]) -> str:
    for root in roots:
        if file == root:
            return file.name
        if root in file.parents:
            return file.relative_to(root).as_posix()
    return str(file)
