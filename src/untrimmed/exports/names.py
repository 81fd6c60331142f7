"""Names of files, clips and reels in exports."""

import re
from pathlib import Path

_REEL_CHARACTERS = 32
_FOLDER_CHARACTERS = 20  # longest folder in the name of a file


def one_line(text: str) -> str:
    """A text on one line, without the characters that XML forbids. Bytes that are not UTF-8 are escaped.

    >>> one_line("two\\n lines")
    'two lines'
    """
    printable = "".join(letter if letter.isprintable() or letter.isspace() else " " for letter in _escaped(text))
    return " ".join(printable.split())


def _escaped(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def file_name(path: str) -> str:
    """The name of a video's file without folder, suffix and characters that file systems refuse.

    It has at most 60 characters and 200 bytes: callers append span, number and suffix, and file names have at most 255
    bytes.
    """
    stem = "".join(letter if letter.isalnum() or letter in " ._-" else "_" for letter in Path(path).stem)
    return stem[:60].encode()[:200].decode(errors="ignore").strip(" .") or "video"


def with_folder(path: str, folder: str) -> str:
    """The name FOLDER_FILE, to distinguish files of equal names, or the path itself if `folder` is empty.

    >>> file_name(with_folder("/holiday/a.mp4", "holiday")), file_name(with_folder("/holiday/a.mp4", ""))
    ('holiday_a', 'a')
    """
    return f"{folder[:_FOLDER_CHARACTERS]}_{Path(path).name}" if folder else path


def reel_name(path: Path) -> str:
    """The name of a video's file as a reel name.

    It has only ASCII letters, digits, `_`, `-` and `.`, because edit lists split lines at blanks.

    >>> reel_name(Path("/v/sea [1].mp4"))
    'sea_1'
    """
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", path.stem).strip("_")[:_REEL_CHARACTERS] or "AX"
