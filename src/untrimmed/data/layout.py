"""Where the files of a data set lie below ROOT/NAME, in the field's layout, in JSG's and in the plain one."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from untrimmed.data.annotations import Annotation
from untrimmed.data.benchmarks.benchmark import SPLITS, Benchmark
from untrimmed.data.benchmarks.registry import find_benchmark
from untrimmed.data.bigfile import read_captions
from untrimmed.data.jsg import read_jsg
from untrimmed.data.outside import find_layout
from untrimmed.data.plain import CAPTION_FILE, read_plain
from untrimmed.errors import ConfigError, FeatureError, UnknownNameError


@dataclass(frozen=True)
class Layout:
    """The paths of one data set, and whose captions they are; nothing else is read here."""

    name: str
    folder: Path

    @classmethod
    def at(cls, root: Path, name: str) -> Layout:
        """The data set of that name below a root that holds several.

        Raises:
            ConfigError: if the name is no name of a folder; files inside it are called by it.
        """
        if not name or name in (".", "..") or "/" in name or os.sep in name:
            raise ConfigError(f"data set {name!r} is no folder's name; give the folder above it as root")
        return cls(name, root / name)

    @property
    def benchmark_note(self) -> Path:
        """The name of the benchmark whose captions these are, written by `prepare`."""
        return self.folder / "benchmark.txt"

    @property
    def benchmark(self) -> Benchmark | None:
        """The benchmark that the note names, without a note the one called as the folder; None for people's own data.

        Raises:
            FeatureError: if no benchmark has the noted name.
        """
        if not self.benchmark_note.is_file():
            return find_benchmark(self.name)
        noted = self.benchmark_note.read_text(encoding="utf-8", errors="replace").strip()
        if (found := find_benchmark(noted)) is None:
            step = "prepare the data set again, or --import the file that registers it"
            raise FeatureError(f"{self.benchmark_note}: {noted!r}, wanted the name of a benchmark; {step}")
        return found

    @property
    def plain_captions(self) -> Path:
        """Captions of all splits in the plain layout."""
        return self.folder / CAPTION_FILE

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

    @property
    def is_plain(self) -> bool:
        """Whether this is the plain layout; frames without captions are enough to tell."""
        if self.plain_captions.is_file():
            return True
        has_frames = (self.folder / "frames").is_dir() or (self.folder / "frames.h5").is_file()
        return has_frames and not (self.folder / "TextData").is_dir()

    def frame_sources(self) -> list[Path]:
        """Every place with frame features: BigFile folders, then JSG's HDF5 files."""
        big_files = sorted(path.parent for path in self.folder.glob("FeatureData/*/shape.txt"))
        return big_files + sorted(self.folder.glob(f"{self.name}_*.hdf5"))

    def frames(self, video_features: str | None = None) -> Path:
        """The frame features: those named, else the ones of the released archive, else the only ones there.

        Raises:
            FeatureError: if there are none.
            UnknownNameError: if the named ones are not there.
            ConfigError: if there are several and none is named.
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


def read_split(name: str, root: Path, split: str) -> list[Annotation]:
    """The captions of one split in file order, from whichever layout is at ROOT/NAME.

    In the field's layout the caption file says which captions there are; their times come from JSG's file where it is
    beside it, by caption id, else by video and text.

    Raises:
        UnknownNameError: for an unknown split.
        FeatureError: if there are no captions, or a file is damaged.
    """
    if split not in SPLITS:
        raise UnknownNameError(f"no split {split!r}; choose one of {', '.join(SPLITS)}")
    layout = Layout.at(root, name)
    if (outside := find_layout(layout.folder)) is not None:
        annotations, source = list(outside.captions(layout.folder, split)), layout.folder
    elif layout.plain_captions.is_file():
        annotations, source = read_plain(layout.plain_captions)[split], layout.plain_captions
    elif layout.captions(split).is_file():
        annotations, source = _read_field(layout, split), layout.captions(split)
    elif layout.moments(split).is_file():
        annotations, source = read_jsg(layout.moments(split)), layout.moments(split)
    else:
        raise FeatureError(_nothing_found(layout, split))
    if not annotations:
        raise FeatureError(f"{source}: no caption for split {split}; add some")
    return annotations


def _read_field(layout: Layout, split: str) -> list[Annotation]:
    captions = read_captions(layout.captions(split))
    path = layout.moments(split)
    if not path.is_file():
        return captions
    timed = read_jsg(path)
    by_id = {annotation.caption_id: annotation for annotation in timed}
    by_text = {(annotation.video, annotation.text): annotation for annotation in timed}
    joined = []
    for caption in captions:
        found = by_id.get(caption.caption_id) or by_text.get((caption.video, caption.text))
        if found is not None:
            caption = replace(caption, moments=found.moments, duration_s=found.duration_s, kind=found.kind)
        joined.append(caption)
    return joined


def _nothing_found(layout: Layout, split: str) -> str:
    if layout.is_plain:
        wanted = 'lines like {"video": "lake", "caption": "a dog jumps"}'
        return f"{layout.plain_captions}: no such file, wanted {wanted}; write it, or run untrimmed features --captions"
    looked_for = (
        f"{layout.plain_captions.name}, TextData/{layout.captions(split).name} and {layout.moments(split).name}"
    )
    if (benchmark := layout.benchmark) is not None:
        called = "" if benchmark.name == layout.name else f" --name {layout.name}"
        step = f"run: untrimmed data prepare {benchmark.name}{called} --annotations DIR --out {layout.folder.parent}"
    else:
        step = f"write one, or run: untrimmed data simulate {layout.name} --out {layout.folder.parent}"
    return f"{layout.folder}: no captions for split {split}, looked for {looked_for}; {step}"
