"""Read and write files of the released archives: BigFile frame features, `video2frames.txt` and caption files."""

import ast
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float

from untrimmed.data.annotations import Annotation, single_spaced
from untrimmed.errors import FeatureError
from untrimmed.files import whole_folder


class BigFile:
    """Memory-mapped rows of `feature.bin` by name.

    Raises: FeatureError if a file of the folder is missing, or if two files contradict each other.
    """

    def __init__(self, folder: Path):
        self.folder = Path(folder)
        self.shape = self._read_shape()
        # Split at ASCII white space before decoding, because byte 0xA0 of a name decodes to a (no-break) space.
        self.names = [name.decode("iso-8859-1") for name in _read_bytes(self.folder / "id.txt").split()]
        if len(self.names) != self.shape[0]:
            raise FeatureError(
                f"{self.folder / 'id.txt'} has {len(self.names)} names, shape.txt {self.shape[0]} rows; "
                "write both files again from the same features"
            )
        self.row_of = {name: row for row, name in enumerate(self.names)}  # if a name is repeated, its last row is used
        self.vectors = self._map_vectors()

    def _read_shape(self) -> tuple[int, int]:
        path = self.folder / "shape.txt"
        numbers = _read_bytes(path).decode("ascii", "replace").partition("\n")[0].split()
        if len(numbers) != 2 or not all(number.isdigit() and len(number) < 20 for number in numbers):
            raise FeatureError(
                f"{path}: first line is {' '.join(numbers)[:60]!r}, expected two whole numbers: count width"
            )
        return int(numbers[0]), int(numbers[1])

    def _map_vectors(self) -> Float[np.ndarray, "N D"]:
        path = self.folder / "feature.bin"
        (count, width) = self.shape
        if not path.is_file():
            raise FeatureError(f"{path}: no such file; choose a complete BigFile folder")
        if path.stat().st_size != 4 * count * width:
            raise FeatureError(
                f"{path} has {path.stat().st_size} bytes, expected {4 * count * width} for {count} x {width} "
                "float32; the file is truncated or shape.txt belongs to another file"
            )
        if count * width == 0:
            return np.zeros((count, width), dtype=np.float32)
        return np.memmap(path, dtype="<f4", mode="r", shape=(count, width))

    def read(self, names: Iterable[str]) -> tuple[list[str], Float[np.ndarray, "N D"]]:
        """Return the known names and their vectors, in row order without repetitions. Unknown names are ignored."""
        return self.read_rows(self.row_of[name] for name in names if name in self.row_of)

    def read_rows(self, rows: Iterable[int]) -> tuple[list[str], Float[np.ndarray, "N D"]]:
        """Return the names and vectors of the given rows, in row order without repetitions."""
        ordered = sorted(set(rows))
        return [self.names[row] for row in ordered], np.asarray(self.vectors[ordered])

    def read_one(self, name: str) -> Float[np.ndarray, " D"]:
        """Return one vector; raises FeatureError for an unknown name."""
        if name not in self.row_of:
            raise FeatureError(f"{self.folder / 'id.txt'}: no frame {name!r}; extract it or fix video2frames.txt")
        return np.asarray(self.vectors[self.row_of[name]])

    def read_sequence(self, names: Sequence[str]) -> Float[np.ndarray, "T D"]:
        """Return the vectors of `names` in the given order; raises FeatureError for an unknown name."""
        unknown = [name for name in names if name not in self.row_of]
        if unknown:
            self.read_one(unknown[0])
        return np.asarray(self.vectors[[self.row_of[name] for name in names]])


def read_video2frames(path: Path) -> dict[str, list[str]]:
    """Return {video: frame names in temporal order}. The file contains this dictionary as a Python literal."""
    content = _read_bytes(path)
    try:
        table = ast.literal_eval(content.decode("utf-8"))
    except (ValueError, SyntaxError, UnicodeDecodeError, MemoryError, RecursionError) as error:
        raise FeatureError(f"{path}: not a dictionary of lists of names; write or copy the file again") from error
    if not isinstance(table, dict) or not all(
        isinstance(video, str) and isinstance(frames, list) and all(isinstance(name, str) for name in frames)
        for video, frames in table.items()
    ):
        raise FeatureError(f"{path}: expected {{'video': ['frame', ...], ...}}; write it with `write_bigfile`")
    return table


def read_captions(path: Path) -> list[Annotation]:
    """Return the captions of a file in file order. A line is `<caption id> <text>`, separated by the first space.

    The video id is the part of the caption id before the first `#`.

    Raises: FeatureError if a line has no space, or if the file cannot be read as UTF-8.
    """
    captions = []
    try:
        text = _read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FeatureError(f"{path}: not UTF-8 at byte {error.start}; convert the file") from error
    for number, line in enumerate(text.split("\n"), start=1):
        stripped = line.strip()
        if not stripped:
            continue
        caption_id, space, caption = stripped.partition(" ")
        if not space:
            raise FeatureError(f"{path}:{number}: {stripped!r} has no text, expected `<caption id> <text>`; fix it")
        captions.append(Annotation(caption_id.partition("#")[0], caption_id, caption))
    return captions


def write_captions(path: Path, captions: Iterable[Annotation]) -> None:
    """Write captions in the format of `read_captions`.

    Raises: FeatureError for an empty text, and for an id that is repeated, empty or contains white space.
    """
    lines = []
    written_ids = set()
    for caption in captions:
        text = single_spaced(caption.text)
        if not caption.caption_id or caption.caption_id.split() != [caption.caption_id]:
            raise FeatureError(f"caption id {caption.caption_id!r} is empty or has white space; change it")
        if caption.caption_id in written_ids or not text:
            problem = "is repeated" if caption.caption_id in written_ids else "has no text"
            raise FeatureError(f"caption id {caption.caption_id!r} {problem}; rename it or write its text")
        written_ids.add(caption.caption_id)
        lines.append(f"{caption.caption_id} {text}\n")
    path.write_text("".join(lines), encoding="utf-8", newline="\n")


def write_bigfile(folder: Path, videos: Iterable[tuple[str, Float[np.ndarray, "_ D"]]]) -> None:
    """Write a BigFile folder with `video2frames.txt`; frame i of a video is named `<video id>_<i>`.

    Raises: FeatureError if there is no video, if widths differ, or if an id has white space or is not ISO-8859-1.
    """
    table: dict[str, list[str]] = {}
    widths = set()
    with whole_folder(folder) as temporary:
        with (temporary / "feature.bin").open("wb") as file:
            for video, frames in videos:
                table[video] = [f"{video}_{i}" for i in range(len(frames))]
                widths.add(frames.shape[1])
                file.write(np.ascontiguousarray(frames, dtype="<f4").data)
        if len(widths) != 1:
            problem = f"widths {sorted(widths)}" if widths else "no videos"
            raise FeatureError(f"{folder}: {problem}, expected at least one video and one width; extract them again")
        encoded = [_frame_name(name) for names in table.values() for name in names]
        (temporary / "id.txt").write_bytes(b" ".join(encoded))
        (temporary / "shape.txt").write_text(f"{len(encoded)} {widths.pop()}\n", encoding="ascii")
        (temporary / "video2frames.txt").write_text(repr(table), encoding="utf-8")


def _frame_name(name: str) -> bytes:
    try:
        encoded = name.encode("iso-8859-1")
    except UnicodeEncodeError:
        encoded = b""
    if encoded.split() != [encoded]:
        raise FeatureError(f"frame name {name!r} has white space or is not ISO-8859-1; rename its video")
    return encoded


def _read_bytes(path: Path) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise FeatureError(f"{path}: cannot be read ({error.strerror}); choose a complete data folder") from error
