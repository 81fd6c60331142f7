"""The catalogue of pictures. Each picture reproduces figures of papers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path

from torch import nn

from untrimmed.errors import ConfigError, UnknownNameError
from untrimmed.models.ral_distribution import DistributionHead
from untrimmed.nn.prototypes import PrototypeBuilder
from untrimmed.plots.epochs import draw_epochs, epochs_of
from untrimmed.plots.first_ten import draw_similarity_by_rank, similarity_by_rank_of
from untrimmed.plots.heatmap import draw_heat_map, heat_map_of
from untrimmed.plots.moment_ratio import draw_recall_by_ratio, recall_by_ratio_of
from untrimmed.plots.noise import draw_robustness, robustness_of
from untrimmed.plots.prototypes import (
    attendance_of,
    draw_attendance,
    draw_matching_frequency,
    draw_prototype_attention,
    matching_frequency_of,
    prototype_attention_of,
)
from untrimmed.plots.style import COLOURS, Figure, require_suffix, save
from untrimmed.plots.sweep import draw_sweep, sweep_of
from untrimmed.plots.top import MOST_CAPTIONS, draw_top, top_of
from untrimmed.plots.trained_run import TrainedRun, labels, open_trained
from untrimmed.plots.tsne import draw_captions, draw_embeddings, embeddings_of, random_captions_of
from untrimmed.plots.uncertainty import draw_recall_by_uncertainty, recall_by_uncertainty_of
from untrimmed.plots.variance import draw_positioning_variances, positioning_variances_of
from untrimmed.plots.words import draw_word_confidence, word_confidence_of
from untrimmed.scores.word_max_sim import WordMaxSim

MOST_WITH_SEEDS = 64


@dataclass(frozen=True, kw_only=True)
class PlotOptions:
    """The captions, files and seed of a picture. Fields have the names of the options of `untrimmed plot`."""

    query: tuple[str, ...] = ()  # ids of captions
    videos: Path | None = None  # folder with video files
    seed: int | None = None
    moment_ratio: tuple[float, float] | None = None

    @property
    def caption(self) -> str | None:
        """The id of the first caption, or None for the default caption of the picture."""
        return self.query[0] if self.query else None

    @property
    def changed(self) -> list[str]:
        """The names of the fields that differ from their defaults."""
        return [field.name for field in fields(self) if getattr(self, field.name) != field.default]


@dataclass(frozen=True)
class Picture:
    """One kind of picture. `draw` is called with the runs and the options.

    The picture accepts `fewest_runs` to `most_runs` runs, at most `most_queries` captions, and only the options whose
    names are in `options`. If `part` is set, the model of the first run must contain a module of this type. `methods`
    names the methods that have such a module.
    """

    description: str
    figures: str  # figures of papers that the picture reproduces
    draw: Callable[[Sequence[TrainedRun], PlotOptions], Figure]
    methods: str = "any method"
    part: type[nn.Module] | None = None
    fewest_runs: int = 1
    most_runs: int = len(COLOURS)
    options: frozenset[str] = frozenset()
    most_queries: int = 1


QUERY = frozenset({"query"})
RAL = "any +ral"
_of_prototypes = partial(Picture, methods="proto, any +prototypes", part=PrototypeBuilder, most_runs=1)
PICTURES: dict[str, Picture] = {
    "heatmap": Picture(
        "similarity of a video's captions and its clips over time, with true and predicted moments",
        "GMMFormer Fig. 5, GMMFormer v2 Fig. 7",
        lambda runs, options: draw_heat_map(heat_map_of(runs, options.caption)),
        most_runs=4,
        options=QUERY,
    ),
    "top": Picture(
        "the top-ranked videos of captions: relevance over time, best moment, and frames if there are video files",
        "GMMFormer Fig. 7, GMMFormer v2 Fig. 9, RAL Figs. 7, 12, 13, ProtoPRVR Figs. 8, 9, JSG Fig. 3",
        lambda runs, options: draw_top(top_of(runs, options.query, options.videos)),
        most_runs=4,
        options=QUERY | {"videos"},
        most_queries=MOST_CAPTIONS,
    ),
    "texts": Picture(
        "captions of ten random videos in two dimensions",
        "GMMFormer Fig. 6",
        lambda runs, options: draw_captions(random_captions_of(runs, options.seed or 0)),
        most_runs=4,
        options=frozenset({"seed"}),
    ),
    "tsne": Picture(
        "captions and clips of two similar videos in two dimensions",
        "GMMFormer v2 Fig. 6",
        lambda runs, options: draw_embeddings(embeddings_of(runs)),
        most_runs=4,
    ),
    "variance": Picture(
        "variance of the best positions of a video's captions",
        "GMMFormer v2 Fig. 8",
        lambda runs, options: draw_positioning_variances(positioning_variances_of(runs)),
        most_runs=MOST_WITH_SEEDS,
    ),
    "prototypes": _of_prototypes(
        "attention of each prototype over a video",
        "ProtoPRVR Fig. 4",
        lambda runs, options: draw_prototype_attention(prototype_attention_of(runs[0], options.caption)),
        options=QUERY,
    ),
    "attendance": _of_prototypes(
        "attention inside the moment, by rank of the prototype",
        "ProtoPRVR Fig. 5",
        lambda runs, options: draw_attendance(attendance_of(runs[0])),
    ),
    "matching": _of_prototypes(
        "how often each prototype is the best match for a caption",
        "ProtoPRVR Fig. 6",
        lambda runs, options: draw_matching_frequency(matching_frequency_of(runs[0])),
    ),
    "moment-ratio": Picture(
        "SumR by moment length / video length",
        "GMMFormer Fig. 4, RAL Fig. 4, ProtoPRVR Fig. 7",
        lambda runs, options: draw_recall_by_ratio(recall_by_ratio_of(runs)),
        most_runs=MOST_WITH_SEEDS,
    ),
    "noise": Picture(
        "SumR if noise is added before every video",
        "RAL Fig. 5",
        lambda runs, options: draw_robustness(robustness_of(runs)),
        most_runs=MOST_WITH_SEEDS,
    ),
    "uncertainty": Picture(
        "R@1 by the uncertainty that the first run predicts for captions",
        "RAL Fig. 3",
        lambda runs, options: draw_recall_by_uncertainty(recall_by_uncertainty_of(runs, options.moment_ratio)),
        options=frozenset({"moment_ratio"}),
        methods=RAL,
        part=DistributionHead,
        most_runs=MOST_WITH_SEEDS,
    ),
    "words": Picture(
        "confidence of each word, its similarity over time, and the video's rank with learned and equal confidences",
        "RAL Fig. 8",
        lambda runs, options: draw_word_confidence(word_confidence_of(runs[0], options.caption)),
        methods=RAL,
        part=WordMaxSim,
        most_runs=1,
        options=QUERY,
    ),
    "first-ten": Picture(
        "cosine of captions with their ten top-ranked videos",
        "RAL Fig. 6",
        lambda runs, options: draw_similarity_by_rank(similarity_by_rank_of(runs)),
        most_runs=MOST_WITH_SEEDS,
    ),
    "epochs": Picture(
        "SumR after every epoch, and RAL's uncertainty of queries and videos",
        "RAL Fig. 10",
        lambda runs, options: draw_epochs(epochs_of(runs)),
        most_runs=MOST_WITH_SEEDS,
    ),
    "sweep": Picture(
        "SumR by the value of one setting",
        "GMMFormer v2 Fig. 5, ProtoPRVR Fig. 10, RAL Fig. 11",
        lambda runs, options: draw_sweep(sweep_of(runs)),
        fewest_runs=2,
        most_runs=MOST_WITH_SEEDS,
    ),
}


DEFAULT_OPTIONS = PlotOptions()


def plot(
    name: str,
    folders: Sequence[Path],
    out: Path,
    options: PlotOptions = DEFAULT_OPTIONS,
    *,
    split: str = "test",
    root: Path | None = None,
    device: str = "auto",
) -> None:
    """Draw a picture of runs into a .png or .svg file.

    `root` is the new folder of data sets that have moved since training. Arguments are checked before any model is
    read.

    Raises:
        UnknownNameError: for an unknown picture or caption.
        ConfigError: for runs that the picture does not support, or that have different splits.
        CheckpointError: for a folder without a finished run.
        FeatureError: for missing or damaged features or annotations, or features that do not fit the model.
    """
    picture = get_picture(name)
    require_suffix(out)
    _require_number(name, picture, len(folders))
    _require_options(name, picture, options)
    runs: list[TrainedRun] = []
    for folder, label in zip(folders, labels(folders), strict=True):
        run = open_trained(folder, label=label, split=split, root=root, device=device)
        if not runs:
            _require_part(name, picture, folder, run)
        runs.append(run)
    save(picture.draw(runs, options), out)


def get_picture(name: str) -> Picture:
    """Return the picture with this name; raises UnknownNameError if there is none."""
    if name not in PICTURES:
        raise UnknownNameError.among("picture", name, PICTURES)
    return PICTURES[name]


def _require_options(name: str, picture: Picture, options: PlotOptions) -> None:
    for field in options.changed:
        if field not in picture.options:
            names = ", ".join(key for key, entry in PICTURES.items() if field in entry.options)
            raise ConfigError(f"plot {name}: does not use --{field.replace('_', '-')}, which is for {names}; remove it")
    if (count := len(options.query)) > (most := picture.most_queries):
        raise ConfigError(f"plot {name}: found --query {count} times, expected at most {most}; remove some")


def _require_number(name: str, picture: Picture, count: int) -> None:
    if picture.fewest_runs <= count <= picture.most_runs:
        return
    if picture.fewest_runs == picture.most_runs:
        expected = "one run"
    elif count < picture.fewest_runs:
        expected = f"at least {picture.fewest_runs} run{'s' if picture.fewest_runs > 1 else ''}"
    else:
        expected = f"at most {picture.most_runs} runs"
    raise ConfigError(
        f"plot {name}: found {count or 'no'} run{'s' if count != 1 else ''}, expected {expected}; see untrimmed plot"
    )


def _require_part(name: str, picture: Picture, folder: Path, run: TrainedRun) -> None:
    if picture.part is None or any(isinstance(module, picture.part) for module in run.model.modules()):
        return
    attached = [f"+{attachment}" for attachment in run.model.attachments]
    if any(attachment in picture.methods for attachment in attached):
        problem = f"was trained without the module that plot {name} shows; enable this module and train again"
    else:
        problem = f"has no module that plot {name} shows, expected {picture.methods}; give such a run"
    raise ConfigError(f"{folder}: {run.model.name} {problem}, or choose another picture (untrimmed plot lists them)")
