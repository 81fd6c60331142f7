"""Make names of files, clips and reels for exports."""

import hashlib
import itertools
import os
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

_REEL_CHARACTERS = 32
_CMX_REEL_CHARACTERS = 8
_RESERVED_REELS = {"AX", "BL", "BLACK", "BARS"}  # edit lists use these names for sources that are not files
_FOLDER_CHARACTERS = 20  # largest number of characters of a folder's name in the name of a file


def printable_line(text: str) -> str:
    """Return a text on one line, without characters that XML forbids. Bytes that are not UTF-8 are escaped.

    >>> printable_line("two\\n lines")
    'two lines'
    """
    printable = "".join(letter if letter.isprintable() or letter.isspace() else " " for letter in _escaped(text))
    return " ".join(printable.split())


def _escaped(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def file_name(path: str) -> str:
    """Return the name of a video's file without folder, suffix and characters that file systems refuse.

    It has at most 60 characters and 200 bytes, so that callers can add a span, a number and a suffix. File systems
    allow 255 bytes.
    """
    stem = "".join(letter if letter.isalnum() or letter in " ._-" else "_" for letter in Path(path).stem)
    return stem[:60].encode()[:200].decode(errors="ignore").strip(" .") or "video"


def with_folder(path: str, folder: str) -> str:
    """Return the name FOLDER_FILE, which distinguishes files of equal names, or the path itself if `folder` is empty.

    >>> file_name(with_folder("/holiday/a.mp4", "holiday")), file_name(with_folder("/holiday/a.mp4", ""))
    ('holiday_a', 'a')
    """
    return f"{folder[:_FOLDER_CHARACTERS]}_{Path(path).name}" if folder else path


def reel_names(paths: Iterable[Path]) -> dict[Path, str]:
    """Return a unique reel name (a file's name in an edit list) for each file of an export.

    A reel name has only ASCII letters, digits, `_`, `-` and `.`, because edit lists split lines at blanks. If several
    files have the same name, or edit lists reserve the name, it gets a number and is cut to 8 characters (the length in
    CMX 3600). If no character of a name is allowed, the reel name is a hash of the path.

    >>> list(reel_names([Path("/a/sea [1].mp4"), Path("/b/C0001.MP4"), Path("/a/C0001.MP4")]).values())
    ['sea_1', 'C0001_2', 'C0001_1']
    """
    stems = {path: _reel_stem(path) for path in paths}
    counts = Counter(stem.upper() for stem in stems.values())
    shared = {path for path, stem in stems.items() if counts[stem.upper()] > 1 or stem.upper() in _RESERVED_REELS}
    taken = {stem.upper() for path, stem in stems.items() if path not in shared}
    names = dict(stems)
    for path in sorted(shared):  # sorted, so that names do not depend on the order of the moments
        suffixes = (f"_{number}" for number in itertools.count(1))
        candidates = (stems[path][: _CMX_REEL_CHARACTERS - len(suffix)] + suffix for suffix in suffixes)
        names[path] = next(name for name in candidates if name.upper() not in taken)
        taken.add(names[path].upper())
    return names


def _reel_stem(path: Path) -> str:
    name = re.sub(r"[^A-Za-z0-9_.-]+", "_", path.stem).strip("_")[:_REEL_CHARACTERS]
    return name or "R" + hashlib.blake2b(os.fsencode(path)).hexdigest()[: _CMX_REEL_CHARACTERS - 1].upper()
