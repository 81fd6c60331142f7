"""Write a simulated data set: real or invented captions, features from `untrimmed.data.simulation.world`."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from untrimmed.data.annotations import Annotation, videos_of
from untrimmed.data.benchmarks.benchmark import SPLITS
from untrimmed.data.benchmarks.registry import get_benchmark
from untrimmed.data.layout import Layout
from untrimmed.data.simulation.grammar import invent
from untrimmed.data.simulation.world import SimulationSettings, World
from untrimmed.data.writing import LayoutName, write_captions, write_frames, write_tables, write_words
from untrimmed.errors import ConfigError, FeatureError
from untrimmed.files import whole_folder

VIDEO_FEATURES = "simulated"
"""Name of the frame features, so that nobody takes them for extracted ones."""


@dataclass(frozen=True)
class Simulated:
    """What was written: videos and captions of each split, and where."""

    videos: Mapping[str, int]
    captions: Mapping[str, int]
    folder: Path


def simulate(
    name: str,
    out: Path,
    *,
    num_videos: int,
    annotations_dir: Path | None = None,
    layout: LayoutName = "field",
    teacher: bool = False,
    settings: SimulationSettings | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Simulated:
    """Write a data set of simulated features to `out/name`, whole or not at all.

    With annotations, a seeded draw of the videos of benchmark `name`, all its parts together; without, `name` is free
    and a small grammar makes the captions. Videos are dealt 3 : 1 : 1 to train, val and test. `teacher` adds DL-DKD's
    files. The settings are kept in `simulation.json`.

    Raises:
        UnknownNameError: if annotations are given and no benchmark has that name.
        ConfigError: if there are not enough videos, the folder is already there, or settings contradict each other.
        FeatureError: if an annotation file is damaged or none is there.
    """
    settings = settings or SimulationSettings()
    target = Layout.at(out, name)
    if target.folder.exists():
        raise ConfigError(f"{target.folder} is already there; choose another --out, or remove it first")
    if teacher and layout == "plain":
        raise ConfigError("the plain layout has no place for a teacher; choose layout field, or leave the teacher out")
    if num_videos < len(SPLITS):
        raise ConfigError(f"num_videos is {num_videos}, wanted at least {len(SPLITS)}, one for each split")
    rng = np.random.default_rng(settings.seed)
    pool = invent(num_videos, rng) if annotations_dir is None else _pool(name, annotations_dir)
    splits = _deal(pool, num_videos, rng)
    world = World(settings, [annotation.text for split in splits.values() for annotation in split])
    try:
        with whole_folder(target.folder) as temporary:
            temporary_layout = Layout(name, temporary)
            write_captions(temporary_layout, layout, splits)
            videos = _videos(splits, one_moment=annotations_dir is not None and get_benchmark(name).several_annotators)
            frames = {}
            for done, (video, captions) in enumerate(videos.items(), start=1):
                frames[video] = world.frames(captions)
                if progress is not None:
                    progress(done, len(videos))
            write_frames(temporary_layout, layout, VIDEO_FEATURES, frames)
            everything = [caption for captions in videos.values() for caption in captions]
            write_words(temporary_layout, layout, ((c.caption_id, world.words(c.text)) for c in everything))
            if teacher:
                _write_teacher(temporary_layout, world, videos)
            about = {**asdict(settings), "captions": name if annotations_dir else "grammar", "num_videos": num_videos}
            (temporary / "simulation.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        what = f"{target.folder}: cannot be written ({error})"
        raise FeatureError(f"{what}; free space or choose another --out") from error
    return Simulated(
        videos={split: len(videos_of(captions)) for split, captions in splits.items()},
        captions={split: len(captions) for split, captions in splits.items()},
        folder=target.folder,
    )


def _pool(name: str, annotations_dir: Path) -> list[Annotation]:
    """The captions of all parts that are in the folder; a video that two parts describe counts in the first."""
    benchmark = get_benchmark(name)
    found = [part for part in benchmark.files if benchmark.find(part, annotations_dir) is not None]
    pool: list[Annotation] = []
    seen: set[str] = set()
    for part in found or list(benchmark.files)[:1]:  # with none there, reading the first one says what is missing
        annotations = benchmark.read_part(part, annotations_dir)
        pool += [annotation for annotation in annotations if annotation.video not in seen]
        seen.update(videos_of(annotations))
    return pool


def _deal(pool: list[Annotation], num_videos: int, rng: np.random.Generator) -> dict[str, list[Annotation]]:
    known = videos_of(annotation for annotation in pool if annotation.duration_s)
    if len(known) < num_videos:
        raise ConfigError(
            f"num_videos is {num_videos}, the annotations have {len(known)} with a duration; ask for fewer"
        )
    chosen = [known[place] for place in rng.permutation(len(known))[:num_videos]]
    share = max(1, num_videos // 5)
    split_of = dict.fromkeys(chosen, "train")
    split_of.update(dict.fromkeys(chosen[-2 * share : -share], "val") | dict.fromkeys(chosen[-share:], "test"))
    by_video = defaultdict(list)
    for annotation in pool:
        if annotation.text:
            by_video[annotation.video].append(annotation)
    return {
        split: [annotation for video in chosen if split_of[video] == split for annotation in by_video[video]]
        for split in SPLITS
    }


def _videos(splits: Mapping[str, list[Annotation]], *, one_moment: bool) -> dict[str, list[Annotation]]:
    """The captions of each video; of several annotators' opinions the main one is what the video shows."""
    videos = defaultdict(list)
    for annotation in (annotation for split in splits.values() for annotation in split):
        if one_moment and annotation.main_moment is not None:
            annotation = replace(annotation, moments=(annotation.main_moment,))
        videos[annotation.video].append(annotation)
    return dict(videos)


def _write_teacher(target: Layout, world: World, videos: Mapping[str, list[Annotation]]) -> None:
    captions = [caption for captions in videos.values() for caption in captions]
    frames = {video: world.teacher_frames(captions) for video, captions in videos.items()}
    write_tables(target.teacher_frames, frames.items())
    write_tables(target.teacher_sentences, ((c.caption_id, world.teacher_sentence(c.text)) for c in captions))
