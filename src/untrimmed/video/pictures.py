"""Read folders of numbered pictures (00001.jpg, 00002.jpg, ...) as videos. The TVR data set publishes such folders."""

import os
import re
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path

PICTURE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp")
_NUMBERED = re.compile(r"(.*?)(\d+)(\.[a-z]+)", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class Pictures:
    """The pictures of a folder in the order of their numbers, and the frame rate at which they were taken.

    The first picture is shown at time 0. If a number is missing, the previous picture is shown for longer.
    """

    folder: str
    names: tuple[str, ...]
    numbers: tuple[int, ...]
    fps: float

    @property
    def duration_s(self) -> float:
        """The end of the last picture, in seconds."""
        return self.end_s(len(self.names) - 1)

    def end_s(self, index: int) -> float:
        """Return the time until which a picture is shown, in seconds."""
        next_number = self.numbers[index + 1] if index + 1 < len(self.numbers) else self.numbers[index] + 1
        return (next_number - self.numbers[0]) / self.fps

    def index_at(self, time_s: float) -> int:
        """Return the index of the picture at a time in seconds, or of the last picture if the time is after the end."""
        number = self.numbers[0] + int(time_s * self.fps + 1e-6)
        return max(0, bisect_right(self.numbers, number) - 1)

    def state(self) -> tuple[int, int]:
        """Return the total size of the pictures in bytes, and the time of the latest change in ns since 1970."""
        states = [os.stat(os.path.join(self.folder, name)) for name in self.names]
        return sum(stat.st_size for stat in states), max(stat.st_mtime_ns for stat in states)


def read_pictures(folder: str | os.PathLike[str], fps: float) -> Pictures | None:
    """Return the numbered pictures of a folder, or None if it is not a folder of numbered pictures.

    The folder must have at least two pictures, and the names of all pictures must be equal except for their numbers.
    Other files, folders, links and hidden files are ignored.

    Raises:
        OSError: The folder cannot be read.
    """
    matches = []
    with os.scandir(folder) as entries:
        for entry in entries:
            is_picture = not entry.name.startswith(".") and Path(entry.name).suffix.lower() in PICTURE_SUFFIXES
            if is_picture and entry.is_file(follow_symlinks=False):
                match = _NUMBERED.fullmatch(entry.name)
                if match is None:
                    return None
                matches.append((int(match[2]), entry.name, (match[1], match[3])))
    if len(matches) < 2 or len({form for _, _, form in matches}) > 1:
        return None
    matches.sort()
    numbers = tuple(number for number, _, _ in matches)
    if len(set(numbers)) < len(numbers):
        return None
    return Pictures(os.fspath(folder), tuple(name for _, name, _ in matches), numbers, fps)
