"""The paths of a data set's files in ROOT/NAME, in the standard layout and in JSG's layout."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from glob import escape
from pathlib import Path

from untrimmed.data.benchmarks.benchmark import SPLITS, Benchmark
from untrimmed.data.benchmarks.registry import find_benchmark
from untrimmed.errors import ConfigError, FeatureError, UnknownNameError

FRAME_FILES = ("feature.hdf5", "frames.h5")
"""Possible names of an HDF5 file with frames in a folder of `FeatureData`. Holmes and DreamPRVR use the first name."""


@dataclass(frozen=True)
class Layout:
    """The paths and the benchmark of one data set. Features and captions are not read."""

    name: str
    folder: Path

    @classmethod
    def at(cls, root: Path, name: str) -> Layout:
        """Return the data set ROOT/NAME; raises ConfigError if the name is not a folder name."""
        if not name or name in (".", "..") or "/" in name or os.sep in name:
            raise ConfigError(f"data set {name!r} is not a folder name; set root to its parent folder")
        return cls(name, root / name)

    @property
    def benchmark_note(self) -> Path:
        """The file with the name of the benchmark, written by `prepare`."""
        return self.folder / "benchmark.txt"

    @property
    def benchmark(self) -> Benchmark | None:
        """The benchmark that `benchmark.txt` names.

        Without this file, the result is the benchmark with the name of the folder or of the folder's files. If there is
        no such benchmark, the result is None.

        Raises: FeatureError if the file contains an unknown name.
        """
        if not self.benchmark_note.is_file():
            return find_benchmark(self.name) or find_benchmark(self.prefix)
        name = self.benchmark_note.read_text(encoding="utf-8", errors="replace").strip()
        if (benchmark := find_benchmark(name)) is None:
            step = (
                "prepare the data set again, or add --import with the file that registers it (in Python: import_module)"
            )
            raise FeatureError(f"{self.benchmark_note}: {name!r}, expected the name of a benchmark; {step}")
        return benchmark

    @property
    def next_step(self) -> str:
        """Advice for a missing data set: the command that prepares its benchmark, or the file to write.

        If `benchmark` is None, the benchmark is guessed from the beginning of the folder's name (`tvr_clip` is TVR).
        """
        check = "check its name and the folder of data sets (root), or"
        benchmark = self.benchmark or find_benchmark(self.name.partition("_")[0])
        if benchmark is None:
            return f"{check} write {self.folder / 'captions.jsonl'} (docs/data.md)"
        name = "" if benchmark.name == self.name else f" --name {self.name}"
        return (
            f"{check} run: untrimmed data prepare {benchmark.name}{name} --annotations DIR --out {self.folder.parent}"
        )

    @cached_property
    def prefix(self) -> str:
        """The data set's name in file names. This name differs from the folder's name if the folder was renamed."""
        texts = self.folder / "TextData"
        ends = [f"{split}.caption.txt" for split in SPLITS]
        names = {path.name.removesuffix(end) for end in ends for path in texts.glob(f"*{end}")}
        if not names:
            names = {
                path.name.removeprefix("roberta_").partition("_query_feat")[0]
                for path in texts.glob("roberta_*_query_feat*.hdf5")
            }
        return names.pop() if len(names) == 1 else self.name

    def captions(self, split: str) -> Path:
        """The path of the file with caption ids and texts in the standard layout."""
        return self.folder / "TextData" / f"{self.prefix}{split}.caption.txt"

    def moments(self, split: str) -> Path:
        """The path of JSG's file of captions with times. Released files have one of two names."""
        short = self.folder / "TextData" / f"prvr_vcmr_{split}.jsonl"
        long = short.with_name(f"prvr_vcmr_{split}_comp.jsonl")
        return long if long.is_file() and not short.is_file() else short

    def dense_labels(self, split: str) -> Path | None:
        """The path of the file with all correct videos of each test caption, or None.

        The file is named `*denseval*.gt.jsonl` or `*denseval*.gt.jsonl.gz`, and `data/truths.py` reads it.
        """
        if split != "test":
            return None
        files = (*self.folder.glob("*denseval*.gt.jsonl*"), *self.folder.glob("TextData/*denseval*.gt.jsonl*"))
        return min(files, default=None)

    @property
    def merged_videos(self) -> Path:
        """The path of the file with the pieces of each merged video: `{video: [piece, ...]}`.

        Only benchmarks with merged videos have this file.
        """
        return self.folder / "FeatureData" / "merged_videos.json"

    @property
    def words(self) -> Path:
        """The path of the word features in the standard layout. JSG's file for TVR has a longer name."""
        path = self.folder / "TextData" / f"roberta_{self.prefix}_query_feat.hdf5"
        similar = [] if path.is_file() else list(path.parent.glob(f"{escape(path.stem)}*.hdf5"))
        return similar[0] if len(similar) == 1 else path

    @property
    def subtitles(self) -> Path:
        """The path of the file with the videos' subtitles, see `untrimmed.data.subtitles`."""
        return self.folder / "subtitles.jsonl"

    @property
    def subtitle_vectors(self) -> Path:
        """The path of the vectors of subtitles: an HDF5 file with one data set [passages, width] per video."""
        return self.folder / "subtitles.h5"

    @property
    def teacher_frames(self) -> Path:
        """The path of the CLIP frame vectors for DL-DKD."""
        return self.folder / "FeatureData" / f"new_clip_vit_32_{self.prefix}_vid_features.hdf5"

    @property
    def teacher_sentences(self) -> Path:
        """The path of the CLIP sentence vectors for DL-DKD."""
        return self.folder / "TextData" / f"clip_ViT_B_32_{self.prefix}_query_feat.hdf5"

    def frame_sources(self) -> dict[str, Path]:
        """Return {name: path} of all frame features: BigFile folders, HDF5 files, JSG's HDF5 files, plain features.

        If two kinds have the same name, the kind that is listed first here is used.
        """
        features = self.folder / "FeatureData"
        by_name = {path.parent.name: path.parent for path in sorted(features.glob("*/shape.txt"))}
        for file in FRAME_FILES:
            for path in sorted(features.glob(f"*/{file}")):
                by_name.setdefault(path.parent.name, path)
        for path in sorted(self.folder.glob(f"{escape(self.prefix)}_*.hdf5")):
            by_name.setdefault(path.stem.removeprefix(f"{self.prefix}_"), path)
        for path in (self.folder / "frames.h5", self.folder / "frames"):
            if path.exists():
                by_name.setdefault("frames", path)
        return by_name

    def frames(self, video_features: str | None = None) -> Path:
        """Return the path of the frame features with the given name.

        By default, return the features of the released archive if they exist, otherwise the only frame features.

        Raises: FeatureError if there are no frame features, UnknownNameError for an unknown name, ConfigError if no
            name is given and the data set has several frame features.
        """
        by_name = self.frame_sources()
        if not by_name:
            expected = f"FeatureData/<name>/{{shape.txt or {' or '.join(FRAME_FILES)}}} or {self.prefix}_<name>.hdf5"
            raise FeatureError(
                f"{self.folder}: no frame features, expected {expected}; extract them or correct the folder (root)"
            )
        if video_features is not None:
            if video_features not in by_name:
                raise UnknownNameError(
                    f"{self.folder}: no frame features {video_features!r}; choose from {', '.join(by_name)}"
                )
            return by_name[video_features]
        if self.benchmark is not None and self.benchmark.video_features in by_name:
            return by_name[self.benchmark.video_features]
        if len(by_name) > 1:
            raise ConfigError(f"{self.folder}: frame features {', '.join(by_name)}; choose one (video_features)")
        return next(iter(by_name.values()))
