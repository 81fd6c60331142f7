"""Write a simulated data set: real or invented captions with simulated features (`untrimmed.data.simulation.world`)."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
from jaxtyping import Float

from untrimmed.config import checked
from untrimmed.data.annotations import Annotation, videos_of
from untrimmed.data.benchmarks.benchmark import SPLITS, Benchmark
from untrimmed.data.benchmarks.registry import find_benchmark, get_benchmark
from untrimmed.data.layout import Layout
from untrimmed.data.layouts import read_split
from untrimmed.data.simulation.grammar import invent
from untrimmed.data.simulation.world import SimulationSettings, World
from untrimmed.data.subtitles import write_subtitles
from untrimmed.data.writing import LayoutName, write_captions, write_frames, write_tables, write_words
from untrimmed.errors import ConfigError, FeatureError
from untrimmed.files import whole_folder

VIDEO_FEATURES = "simulated"
"""Name of simulated frame features, which distinguishes them from extracted features."""
SETTINGS = "simulation.json"  # name of the file with the settings in the folder of a simulated data set


@dataclass(frozen=True)
class Simulated:
    """The numbers of videos and captions written for each split, and the folder of the data set."""

    videos: Mapping[str, int]
    captions: Mapping[str, int]
    folder: Path


@checked(name="the name of the data set", out="the folder to write to")
def simulate(
    name: str,
    out: Path | str,
    *,
    num_videos: int,
    annotations_dir: Path | str | None = None,
    layout: LayoutName = "field",
    teacher: bool = False,
    subtitles: bool = False,
    settings: SimulationSettings | None = None,
    data_set: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Simulated:
    """Write a data set with simulated features to `out/name`, or to `out/data_set` if given.

    With `annotations_dir`, the videos are a random sample of all parts of the benchmark `name`. Otherwise `name` can be
    any name, and a grammar invents the captions. Videos are divided 3 : 1 : 1 into train, val and test.

    `teacher` adds the files of DL-DKD's teacher, and `subtitles` adds subtitle texts and vectors. The settings are
    stored in `simulation.json`. After an error, no files remain.

    Raises: UnknownNameError for an unknown benchmark, ConfigError for too few videos, an existing folder or conflicting
        settings, FeatureError for missing or damaged annotations.
    """
    settings = settings or SimulationSettings()
    target = Layout.at(Path(out), data_set or name)
    if target.folder.exists():
        raise ConfigError(f"{target.folder} already exists; choose another folder (out) or remove it first")
    if teacher and layout == "plain":
        raise ConfigError("the plain layout has no files for a teacher; choose the layout field or omit the teacher")
    if num_videos < len(SPLITS):
        raise ConfigError(f"num_videos is {num_videos}, expected at least {len(SPLITS)}, one per split")
    rng = np.random.default_rng(settings.seed)
    pool = invent(num_videos, rng) if annotations_dir is None else _pool(name, Path(annotations_dir))
    splits = _split_videos(pool, num_videos, rng)
    videos = _by_video(caption for split in SPLITS for caption in splits[split])
    world = _world(settings, videos, find_benchmark(name), layout)
    try:
        with whole_folder(target.folder) as temporary:
            temporary_layout = Layout(target.name, temporary)
            if annotations_dir is not None and target.name != name:
                temporary_layout.benchmark_note.write_text(f"{name}\n", encoding="utf-8")
            write_captions(temporary_layout, layout, splits)
            write_frames(temporary_layout, layout, VIDEO_FEATURES, _frames(world, videos, progress))
            write_words(temporary_layout, layout, _words(world, videos))
            if teacher:
                _write_teacher(temporary_layout, world, videos)
            if subtitles:
                passages = {video: tuple(world.passages(captions)) for video, captions in videos.items()}
                write_subtitles(temporary_layout.subtitles, passages)
                vectors = ((video, world.passage_vectors(of_video)) for video, of_video in passages.items())
                write_tables(temporary_layout.subtitle_vectors, vectors)
            source = name if annotations_dir else "grammar"
            about = {**asdict(settings), "captions": source, "num_videos": num_videos, "layout": layout}
            (temporary / SETTINGS).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        what = f"{target.folder}: cannot be written ({error})"
        raise FeatureError(f"{what}; free space or choose another folder (out)") from error
    return Simulated(
        videos={split: len(videos_of(captions)) for split, captions in splits.items()},
        captions={split: len(captions) for split, captions in splits.items()},
        folder=target.folder,
    )


def _pool(name: str, annotations_dir: Path) -> list[Annotation]:
    """Return the captions of all parts of a benchmark that have a file in the folder.

    If two parts contain the same video, only the captions in the first part are used.
    """
    benchmark = get_benchmark(name)
    parts = [part for part in benchmark.files if benchmark.find(part, annotations_dir) is not None]
    pool: list[Annotation] = []
    earlier_videos: set[str] = set()
    for part in parts or list(benchmark.files)[:1]:  # if no file exists, reading the first part raises the error
        annotations = benchmark.read_part(part, annotations_dir)
        pool += [annotation for annotation in annotations if annotation.video not in earlier_videos]
        earlier_videos.update(videos_of(annotations))
    return pool


def _split_videos(pool: list[Annotation], num_videos: int, rng: np.random.Generator) -> dict[str, list[Annotation]]:
    videos = videos_of(annotation for annotation in pool if annotation.duration_s)
    if len(videos) < num_videos:
        raise ConfigError(
            f"num_videos is {num_videos}, expected at most the {len(videos)} videos with a duration; reduce it"
        )
    chosen = [videos[index] for index in rng.permutation(len(videos))[:num_videos]]
    share = max(1, num_videos // 5)
    split_of = dict.fromkeys(chosen, "train")
    split_of.update(dict.fromkeys(chosen[-2 * share : -share], "val") | dict.fromkeys(chosen[-share:], "test"))
    by_video = _by_video(annotation for annotation in pool if annotation.text)
    return {
        split: [annotation for video in chosen if split_of[video] == split for annotation in by_video.get(video, ())]
        for split in SPLITS
    }


def _by_video(captions: Iterable[Annotation]) -> dict[str, list[Annotation]]:
    videos = defaultdict(list)
    for caption in captions:
        videos[caption.video].append(caption)
    return dict(videos)


def _world(
    settings: SimulationSettings, videos: dict[str, list[Annotation]], benchmark: Benchmark | None, layout: LayoutName
) -> World:
    # DiDeMo's annotators mark the same event, and the plain layout stores one moment per caption
    main_moments = layout == "plain" or (benchmark is not None and benchmark.several_annotators)
    return World(settings, [c for captions in videos.values() for c in captions], main_moments=main_moments)


def _frames(
    world: World, videos: Mapping[str, list[Annotation]], progress: Callable[[int, int], None] | None
) -> Iterator[tuple[str, Float[np.ndarray, "T D"]]]:
    for number, (video, captions) in enumerate(videos.items(), start=1):
        yield video, world.frames(captions)
        if progress is not None:
            progress(number, len(videos))


def _words(world: World, videos: Mapping[str, list[Annotation]]) -> Iterator[tuple[str, Float[np.ndarray, "W E"]]]:
    for captions in videos.values():
        words = world.words([caption.text for caption in captions])
        yield from zip((caption.caption_id for caption in captions), words, strict=True)


def _write_teacher(target: Layout, world: World, videos: Mapping[str, list[Annotation]]) -> None:
    write_tables(target.teacher_frames, ((video, world.teacher_frames(captions)) for video, captions in videos.items()))
    sentences = ((c.caption_id, world.teacher_sentence(c.text)) for captions in videos.values() for c in captions)
    write_tables(target.teacher_sentences, sentences)


def is_simulated(name: str, root: Path) -> bool:
    """Whether `simulate` wrote the data set."""
    return (Layout.at(root, name).folder / SETTINGS).is_file()


def open_world(name: str, root: Path) -> World:
    """Return the world that generated a simulated data set.

    Raises: FeatureError if the data set is missing or damaged.
    """
    layout = Layout.at(root, name)
    path = layout.folder / SETTINGS
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
        # data sets of older versions have fewer settings
        named = [field.name for field in fields(SimulationSettings) if field.name in about]
        settings = SimulationSettings(**{name: about[name] for name in named})
        written: LayoutName = about["layout"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        what = f"{path}: cannot be read as settings of simulated features ({error!r})"
        raise FeatureError(f"{what}; write the data set with `untrimmed data simulate`") from error
    videos = _by_video(caption for split in SPLITS for caption in read_split(name, root, split))
    return _world(settings, videos, layout.benchmark, written)
