"""The published facts about a benchmark: its files, splits, sizes and features."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from untrimmed.data.annotations import Annotation, videos_of
from untrimmed.data.benchmarks.normalised import read_normalised
from untrimmed.errors import FeatureError, UnknownNameError

SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class PublishedSize:
    """The number of videos and captions of a split in a published source."""

    videos: int
    captions: int
    source: str


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A benchmark as its authors publish it.

    - `files` maps each part that the authors distribute to possible file names: the original file, then the copy in our
      format.
    - `parts` maps train, val and test to the parts that PRVR papers use. Most papers use the same part for val and
      test.
    - `merge` replaces the captions of separate videos by captions of merged videos, if the papers merge videos.
    """

    name: str
    title: str
    paper: str
    read: Callable[[Path], list[Annotation]]
    files: Mapping[str, tuple[str, ...]]
    parts: Mapping[str, str]
    sizes: Mapping[str, Sequence[PublishedSize]]
    video_features: str | None = None  # folder of frame features in the released archive's `FeatureData`
    # whether a caption has one moment per annotator, all for the same event
    several_annotators: bool = False
    merge: Callable[[list[Annotation]], list[Annotation]] | None = None
    # function that maps the ids of pieces to {merged video: pieces in temporal order}
    pieces: Callable[[list[str]], dict[str, list[str]]] | None = None
    notes: tuple[str, ...] = field(default=())

    def find(self, part: str, folder: Path) -> Path | None:
        """Return the path of a part's file in the folder, or None. The original file is preferred to our copy."""
        return next((folder / name for name in self.files[part] if (folder / name).is_file()), None)

    def read_part(self, part: str, folder: Path) -> list[Annotation]:
        """Return the captions of a part. If the papers merge videos, the captions refer to merged videos.

        Raises: UnknownNameError for an unknown part, FeatureError for missing or damaged files.
        """
        annotations = self._read_unmerged(part, folder)
        return self.merge(annotations) if self.merge else annotations

    def read_pieces(self, part: str, folder: Path) -> dict[str, list[str]]:
        """Return {merged video: pieces} for a part. The dictionary is empty if the benchmark merges no videos.

        Raises: the errors of `read_part`.
        """
        return self.pieces(videos_of(self._read_unmerged(part, folder))) if self.pieces else {}

    def _read_unmerged(self, part: str, folder: Path) -> list[Annotation]:
        if part not in self.files:
            raise UnknownNameError(f"{self.name} has no part {part!r}; its parts are {', '.join(self.files)}")
        path = self.find(part, folder)
        if path is None:
            expected = " or ".join(self.files[part])
            raise FeatureError(f"{folder}: no {part} annotations of {self.name}; put {expected} there")
        annotations = read_normalised(path) if path.name.endswith(".jsonl.gz") else self.read(path)
        if not annotations:
            raise FeatureError(f"{path}: contains no captions; download the file again")
        return annotations

    def published(self, part: str, videos: int, captions: int) -> str:
        """Return a text that names a source with the same counts, or otherwise lists the published counts."""
        sizes = self.sizes.get(part, ())
        agreeing = [size.source for size in sizes if (size.videos, size.captions) == (videos, captions)]
        if agreeing:
            return f"as in {agreeing[0]}"
        differences = self.differences(part, videos, captions)
        return "published: " + "; ".join(differences) if differences else "no published size"

    def differences(self, part: str, videos: int, captions: int) -> list[str]:
        """Return a text with counts and source for each published size of the part that differs from these counts."""
        return [
            f"{size.videos:,} / {size.captions:,} in {size.source}"
            for size in self.sizes.get(part, ())
            if (size.videos, size.captions) != (videos, captions)
        ]
