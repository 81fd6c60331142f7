"""What is published about a benchmark: its files, splits, sizes and features."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from untrimmed.data.annotations import Annotation, videos_of
from untrimmed.data.benchmarks.normalised import read_normalised
from untrimmed.errors import FeatureError, UnknownNameError

SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class PublishedSize:
    """How many videos and captions somebody counts in a split, and who."""

    videos: int
    captions: int
    source: str


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A benchmark of the field as its authors publish it.

    `files` names, for each part that its authors distribute, the original file and the normalised copy. `parts` says
    which of them the field uses as train, val and test: most papers report on the part that they also select models on.
    """

    name: str
    title: str
    paper: str
    read: Callable[[Path], list[Annotation]]
    files: Mapping[str, tuple[str, ...]]
    parts: Mapping[str, str]
    sizes: Mapping[str, Sequence[PublishedSize]]
    video_features: str | None = None  # the folder below FeatureData of the released archive
    several_annotators: bool = False  # moments are opinions on one span, not all relevant spans
    merge: Callable[[list[Annotation]], list[Annotation]] | None = None
    pieces: Callable[[list[str]], dict[str, list[str]]] | None = None  # of each merged video, in order of time
    notes: tuple[str, ...] = field(default=())

    def find(self, part: str, folder: Path) -> Path | None:
        """The file of a part below the folder: the original if it is there, else the normalised copy, else None."""
        return next((folder / name for name in self.files[part] if (folder / name).is_file()), None)

    def read_part(self, part: str, folder: Path) -> list[Annotation]:
        """Return the captions of a part, with merged videos where the field merges them.

        Raises: UnknownNameError for an unknown part, FeatureError for missing or damaged files.
        """
        annotations = self._read_unmerged(part, folder)
        return self.merge(annotations) if self.merge else annotations

    def read_pieces(self, part: str, folder: Path) -> dict[str, list[str]]:
        """Return the pieces of each merged video of a part, empty where nothing is merged; raises as `read_part`."""
        return self.pieces(videos_of(self._read_unmerged(part, folder))) if self.pieces else {}

    def _read_unmerged(self, part: str, folder: Path) -> list[Annotation]:
        if part not in self.files:
            raise UnknownNameError(f"{self.name} has no part {part!r}; its parts are {', '.join(self.files)}")
        path = self.find(part, folder)
        if path is None:
            wanted = " or ".join(self.files[part])
            raise FeatureError(f"{folder}: no {part} annotations of {self.name}, wanted {wanted}; put the file there")
        annotations = read_normalised(path) if path.name.endswith(".jsonl.gz") else self.read(path)
        if not annotations:
            raise FeatureError(f"{path}: no caption in it; download the file again")
        return annotations

    def published(self, part: str, videos: int, captions: int) -> str:
        """Who publishes these counts for the part; where nobody does, what is published instead."""
        sizes = self.sizes.get(part, ())
        agreeing = [size.source for size in sizes if (size.videos, size.captions) == (videos, captions)]
        if agreeing:
            return f"as in {agreeing[0]}"
        others = [f"{size.videos:,} / {size.captions:,} in {size.source}" for size in sizes]
        return "published: " + "; ".join(others) if others else "no published size"

    def differs_from(self, part: str, videos: int, captions: int) -> list[str]:
        """The published counts that these are not, one line each."""
        return [
            f"{size.videos:,} / {size.captions:,} in {size.source}"
            for size in self.sizes.get(part, ())
            if (size.videos, size.captions) != (videos, captions)
        ]
