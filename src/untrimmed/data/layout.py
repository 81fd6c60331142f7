"""Where the files of a data set are below ROOT/NAME, in the field's layout and in JSG's."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from untrimmed.data.benchmarks.benchmark import Benchmark
from untrimmed.data.benchmarks.registry import find_benchmark
from untrimmed.errors import ConfigError, FeatureError, UnknownNameError


@dataclass(frozen=True)
class Layout:
    """The paths of one data set, and whose captions they are; nothing else is read here."""

    name: str
    folder: Path

    @classmethod
    def at(cls, root: Path, name: str) -> Layout:
        """Return the data set of that name below a root; raises ConfigError if the name is not a folder name."""
        if not name or name in (".", "..") or "/" in name or os.sep in name:
            raise ConfigError(f"data set {name!r} is no folder's name; give the folder above it as root")
        return cls(name, root / name)

    @property
    def benchmark_note(self) -> Path:
        """The name of the benchmark whose captions these are, written by `prepare`."""
        return self.folder / "benchmark.txt"

    @property
    def benchmark(self) -> Benchmark | None:
        """The benchmark named in the note, or else by the folder; None for people's own data.

        Raises: FeatureError if no benchmark has the noted name.
        """
        if not self.benchmark_note.is_file():
            return find_benchmark(self.name)
        noted = self.benchmark_note.read_text(encoding="utf-8", errors="replace").strip()
        if (found := find_benchmark(noted)) is None:
            step = "prepare the data set again, or --import the file that registers it"
            raise FeatureError(f"{self.benchmark_note}: {noted!r}, wanted the name of a benchmark; {step}")
        return found

    def captions(self, split: str) -> Path:
        """Caption ids and texts in the field's layout."""
        return self.folder / "TextData" / f"{self.name}{split}.caption.txt"

    def moments(self, split: str) -> Path:
        """Captions with times, as JSG reads them; of its two names the one that is there."""
        short = self.folder / "TextData" / f"prvr_vcmr_{split}.jsonl"
        long = short.with_name(f"prvr_vcmr_{split}_comp.jsonl")
        return long if long.is_file() and not short.is_file() else short

    @property
    def merged_videos(self) -> Path:
        """Which videos of the source each merged video consists of, `{video: [piece, ...]}`, where there are any."""
        return self.folder / "FeatureData" / "merged_videos.json"

    @property
    def words(self) -> Path:
        """Word features in the field's layout."""
        return self.folder / "TextData" / f"roberta_{self.name}_query_feat.hdf5"

    @property
    def teacher_frames(self) -> Path:
        """CLIP frame vectors for DL-DKD."""
        return self.folder / "FeatureData" / f"new_clip_vit_32_{self.name}_vid_features.hdf5"

    @property
    def teacher_sentences(self) -> Path:
        """CLIP sentence vectors for DL-DKD."""
        return self.folder / "TextData" / f"clip_ViT_B_32_{self.name}_query_feat.hdf5"

    def frame_sources(self) -> list[Path]:
        """Every place with frame features: BigFile folders, then JSG's HDF5 files."""
        big_files = sorted(path.parent for path in self.folder.glob("FeatureData/*/shape.txt"))
        return big_files + sorted(self.folder.glob(f"{self.name}_*.hdf5"))

    def frames(self, video_features: str | None = None) -> Path:
        """Return the frame features: those named, else those of the released archive, else the only ones.

        Raises: FeatureError for none, UnknownNameError for an unknown name, ConfigError for several and none chosen.
        """
        by_name: dict[str, Path] = {}
        for path in self.frame_sources():  # a BigFile folder goes before a JSG file of the same name
            by_name.setdefault(path.name.removeprefix(f"{self.name}_").removesuffix(".hdf5"), path)
        if not by_name:
            wanted = f"FeatureData/<name>/shape.txt or {self.name}_<name>.hdf5"
            raise FeatureError(f"{self.folder}: no frame features, wanted {wanted}; extract them or correct --root")
        if video_features is not None:
            if video_features not in by_name:
                raise UnknownNameError(
                    f"{self.folder}: no frame features {video_features!r}; found {', '.join(by_name)}"
                )
            return by_name[video_features]
        if self.benchmark is not None and self.benchmark.video_features in by_name:
            return by_name[self.benchmark.video_features]
        if len(by_name) > 1:
            raise ConfigError(
                f"{self.folder}: frame features {', '.join(by_name)}; choose one with video_features (--video-features)"
            )
        return next(iter(by_name.values()))
