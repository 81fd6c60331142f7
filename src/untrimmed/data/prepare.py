"""Convert a benchmark's published annotation files to the standard layout."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from untrimmed.data.annotations import Annotation, videos_of
from untrimmed.data.benchmarks.benchmark import SPLITS, Benchmark
from untrimmed.data.benchmarks.registry import get_benchmark
from untrimmed.data.layout import Layout
from untrimmed.data.layouts import PlainLayout, layout_of, open_frames, open_hdf5
from untrimmed.data.origin import ORIGIN
from untrimmed.data.packed import read_finite
from untrimmed.data.plain import CAPTION_FILE
from untrimmed.data.subtitles import read_subtitles, write_subtitles
from untrimmed.data.writing import write_annotations, write_tables
from untrimmed.errors import ConfigError, FeatureError
from untrimmed.files import whole_file, write_whole


@dataclass(frozen=True)
class PreparedSplit:
    """The counts of one written split, and their comparison with the published counts of its `part`.

    `published` is the comparison as text. `differences` lists the published counts that differ.
    """

    split: str
    part: str
    videos: int
    captions: int
    without_moment: int
    published: str
    differences: tuple[str, ...]


@dataclass(frozen=True)
class PreparedSubtitles:
    """Counts of the written subtitles: videos with passages, all passages, and videos with subtitle vectors."""

    videos: int
    passages: int
    videos_with_vectors: int


@dataclass(frozen=True)
class Prepared:
    """The written splits, and the frame features that are in the folder.

    If a split was not written, `missing` names the file that the split needs. `subtitles` is None if no subtitles
    were written.
    """

    splits: tuple[PreparedSplit, ...]
    missing: Mapping[str, str]
    folder: Path
    frames: tuple[Path, ...]
    subtitles: PreparedSubtitles | None = None


def prepare(
    name: str,
    annotations_dir: Path,
    out: Path,
    *,
    parts: Mapping[str, str] | None = None,
    data_set: str | None = None,
    only_with_features: bool = False,
    subtitles: Path | None = None,
    subtitle_features: Path | None = None,
) -> Prepared:
    """Write caption files and moments of a benchmark to `out/name` and return the counts.

    All parts are read before anything is written. A split without an annotation file is reported and not written.

    - `parts` replaces the benchmark's parts for some splits, e.g. `{"test": "val_2"}`.
    - `data_set` is the name of the folder if it differs from `name`, for example for features of another network.
    - `only_with_features` leaves out videos that have no frame features in the folder, as the papers do for
      ActivityNet.
    - `subtitles` is a file in the format of `read_subtitles`. `subtitle_features` is an HDF5 file with the subtitle
      vectors by video id. Only entries of the benchmark's videos are written.

    Raises: UnknownNameError for an unknown benchmark or part, ConfigError for an invalid name or a folder of another
        benchmark or layout, FeatureError for missing or damaged files.
    """
    benchmark = get_benchmark(name)
    layout = Layout.at(out, name if data_set is None else data_set)
    if (existing := layout.benchmark) is not None and existing.name != name:
        raise ConfigError(
            f"{layout.folder}: the folder of {existing.name}, expected one for {name}; choose another name (--name)"
        )
    # In the plain layout, `untrimmed features` uses paths as ids. The standard layout escapes special characters in
    # ids, so the features of such a folder would not be found.
    is_exported = (layout.folder / ORIGIN).is_file()
    if isinstance(layout_of(layout.folder), PlainLayout) and (is_exported or (layout.folder / CAPTION_FILE).is_file()):
        raise ConfigError(
            f"{layout.folder}: is in the plain layout, where captions of {name} would not be read; choose another name "
            "(--name), or remove the folder, prepare again, and add features with untrimmed features"
        )
    if _has_own_captions(layout):
        raise ConfigError(
            f"{layout.folder}: contains your own captions and features; choose another name (--name) or remove it"
        )
    chosen = {**benchmark.parts, **(parts or {})}
    captions_of: dict[str, list[Annotation]] = {}
    pieces: dict[str, list[str]] = {}
    missing: dict[str, str] = {}
    for split in SPLITS:
        part = chosen[split]
        if part in benchmark.files and benchmark.find(part, annotations_dir) is None:
            missing[split] = " or ".join(benchmark.files[part])
        else:
            captions_of[split] = benchmark.read_part(part, annotations_dir)
            pieces |= benchmark.read_pieces(part, annotations_dir)
    if not captions_of:
        expected = "; ".join(" or ".join(names) for names in benchmark.files.values())
        raise FeatureError(f"{annotations_dir}: no annotations of {name}, expected {expected}; put the files there")
    if only_with_features:
        frames = open_frames(layout)
        for split, captions in captions_of.items():
            usable = [a for a in captions if all(piece in frames for piece in pieces.get(a.video, [a.video]))]
            if not usable:
                what = f"no frame features of any video of {name}, {chosen[split]}, such as {captions[0].video!r}"
                raise FeatureError(f"{frames.place}: {what}; use the features of this benchmark")
            captions_of[split] = usable
    videos = list(dict.fromkeys(annotation.video for captions in captions_of.values() for annotation in captions))
    passages = {} if subtitles is None else read_subtitles(subtitles, videos)
    vectors = None if subtitle_features is None else open_hdf5(subtitle_features)
    in_file = [] if vectors is None else [video for video in videos if video in vectors]
    if vectors is not None and not in_file:
        what = f"no vectors of videos of {name}, such as {videos[0]!r}; found {vectors.first_name!r}"
        raise FeatureError(f"{subtitle_features}: {what}; use the file of this benchmark")
    write_whole(layout.benchmark_note, f"{name}\n")
    for split, captions in captions_of.items():
        write_annotations(layout, split, captions)
    if pieces:
        write_whole(layout.merged_videos, json.dumps(pieces, indent=0) + "\n")
    if subtitles is not None:
        write_subtitles(layout.subtitles, passages)
    if vectors is not None:
        with whole_file(layout.subtitle_vectors) as temporary:
            write_tables(temporary, ((video, read_finite(vectors, video)) for video in in_file))
    num_passages = sum(len(of_video) for of_video in passages.values())
    counts = PreparedSubtitles(len(passages), num_passages, len(in_file)) if passages or in_file else None
    splits = tuple(_report(benchmark, split, chosen[split], captions) for split, captions in captions_of.items())
    return Prepared(splits, missing, layout.folder, tuple(layout.frame_sources().values()), counts)


def _has_own_captions(layout: Layout) -> bool:
    """Whether the folder has captions from `untrimmed features`, which may be the only copy of these captions."""
    exported = (layout.folder / ORIGIN).is_file() and not layout.benchmark_note.is_file()
    return exported and any(layout.captions(split).is_file() for split in SPLITS)


def _report(benchmark: Benchmark, split: str, part: str, annotations: list[Annotation]) -> PreparedSplit:
    videos = len(videos_of(annotations))
    return PreparedSplit(
        split=split,
        part=part,
        videos=videos,
        captions=len(annotations),
        without_moment=sum(not annotation.moments for annotation in annotations),
        published=benchmark.published(part, videos, len(annotations)),
        differences=tuple(benchmark.differences(part, videos, len(annotations))),
    )
