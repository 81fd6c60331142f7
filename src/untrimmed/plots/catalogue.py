"""All pictures by name: what each shows, which figures of the papers it corresponds to, and which runs it takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from torch import nn

from untrimmed.errors import ConfigError, UnknownNameError
from untrimmed.models.ral_distribution import DistributionHead
from untrimmed.nn.prototypes import PrototypeBuilder
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
from untrimmed.plots.style import COLOURS, require_suffix, save
from untrimmed.plots.sweep import draw_sweep, sweep_of
from untrimmed.plots.trained_run import TrainedRun, labels, open_trained
from untrimmed.plots.tsne import draw_embeddings, embeddings_of
from untrimmed.plots.uncertainty import draw_recall_by_uncertainty, recall_by_uncertainty_of
from untrimmed.plots.variance import draw_positioning_variances, positioning_variances_of
from untrimmed.plots.words import draw_word_confidence, word_confidence_of
from untrimmed.scores.word_max_sim import WordMaxSim

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_IN_A_SWEEP = 64


@dataclass(frozen=True)
class Picture:
    """One entry; `draw` gets the runs, and a caption id where one was asked for.

    The first run must have a part of type `part`, which the methods in `methods` have; more than `most_runs` are
    refused, and fewer than `fewest_runs`.
    """

    shows: str
    figures: str
    draw: Callable[[Sequence[TrainedRun], str | None], Figure]
    methods: str = "any method"
    part: type[nn.Module] | None = None
    fewest_runs: int = 1
    most_runs: int = len(COLOURS)
    takes_query: bool = False


RAL = "any +ral"
_of_prototypes = partial(Picture, methods="proto, any +prototypes", part=PrototypeBuilder, most_runs=1)
PICTURES: dict[str, Picture] = {
    "heatmap": Picture(
        "similarity of captions and clips over time, true and found moment",
        "GMMFormer Fig. 5, GMMFormer v2 Fig. 7",
        lambda runs, query: draw_heat_map(heat_map_of(runs, query)),
        most_runs=4,
        takes_query=True,
    ),
    "tsne": Picture(
        "captions and clips of two videos that mean alike, in the plane",
        "GMMFormer Fig. 6, GMMFormer v2 Fig. 6",
        lambda runs, query: draw_embeddings(embeddings_of(runs)),
        most_runs=4,
    ),
    "variance": Picture(
        "how far the captions of a video are spread over it",
        "GMMFormer v2 Fig. 8",
        lambda runs, query: draw_positioning_variances(positioning_variances_of(runs)),
    ),
    "prototypes": _of_prototypes(
        "what the prototypes of a video look at",
        "ProtoPRVR Fig. 4",
        lambda runs, query: draw_prototype_attention(prototype_attention_of(runs[0], query)),
        takes_query=True,
    ),
    "attendance": _of_prototypes(
        "attention inside the moment by rank of the prototype",
        "ProtoPRVR Fig. 5",
        lambda runs, query: draw_attendance(attendance_of(runs[0])),
    ),
    "matching": _of_prototypes(
        "how often each prototype is the best",
        "ProtoPRVR Fig. 6",
        lambda runs, query: draw_matching_frequency(matching_frequency_of(runs[0])),
    ),
    "moment-ratio": Picture(
        "SumR by moment length / video length",
        "GMMFormer Fig. 4, RAL Fig. 4, ProtoPRVR Fig. 7",
        lambda runs, query: draw_recall_by_ratio(recall_by_ratio_of(runs)),
    ),
    "noise": Picture(
        "SumR when a segment of noise stands before every video",
        "RAL Fig. 5",
        lambda runs, query: draw_robustness(robustness_of(runs)),
    ),
    "uncertainty": Picture(
        "R@1 by predicted uncertainty of the caption, the first run's",
        "RAL Fig. 3",
        lambda runs, query: draw_recall_by_uncertainty(recall_by_uncertainty_of(runs)),
        methods=RAL,
        part=DistributionHead,
    ),
    "words": Picture(
        "confidence of each word, and where it is seen",
        "RAL Fig. 8",
        lambda runs, query: draw_word_confidence(word_confidence_of(runs[0], query)),
        methods=RAL,
        part=WordMaxSim,
        most_runs=1,
        takes_query=True,
    ),
    "sweep": Picture(
        "SumR by the value of a weight or another setting",
        "GMMFormer v2 Fig. 5, ProtoPRVR Fig. 10",
        lambda runs, query: draw_sweep(sweep_of(runs)),
        fewest_runs=2,
        most_runs=MOST_IN_A_SWEEP,
    ),
}


def plot(
    name: str,
    folders: Sequence[Path],
    out: Path,
    *,
    query: str | None = None,
    split: str = "test",
    root: Path | None = None,
    device: str = "auto",
) -> None:
    """Draw a picture of some runs into a .png or .svg file.

    `query` is the id of the caption to show. Data sets that have moved lie at `root`. What can be refused without
    reading a model is refused first.

    Raises:
        UnknownNameError: for an unknown picture or caption.
        ConfigError: for runs that do not fit the picture or each other.
        CheckpointError: for a folder without a finished run.
        FeatureError: for features or annotations that are missing, damaged or do not fit.
    """
    picture = get_picture(name)
    require_suffix(out)
    _require_number(name, picture, len(folders))
    if query is not None and not picture.takes_query:
        shown = ", ".join(name for name, other in PICTURES.items() if other.takes_query)
        raise ConfigError(f"plot {name} shows all captions, found --query {query}; it is for {shown}")
    runs: list[TrainedRun] = []
    for folder, label in zip(folders, labels(folders), strict=True):
        run = open_trained(folder, label=label, split=split, root=root, device=device)
        if not runs:
            _require_part(name, picture, folder, run)
        runs.append(run)
    save(picture.draw(runs, query), out)


def get_picture(name: str) -> Picture:
    """The picture of that name.

    Raises: UnknownNameError when there is none.
    """
    if name not in PICTURES:
        raise UnknownNameError.among("picture", name, PICTURES)
    return PICTURES[name]


def _require_number(name: str, picture: Picture, count: int) -> None:
    if picture.fewest_runs <= count <= picture.most_runs:
        return
    if picture.fewest_runs == picture.most_runs:
        wanted = "one run"
    elif count < picture.fewest_runs:
        wanted = f"at least {picture.fewest_runs} run{'s' if picture.fewest_runs > 1 else ''}"
    else:
        wanted = f"at most {picture.most_runs} runs"
    raise ConfigError(
        f"plot {name}: found {count or 'no'} run{'s' if count != 1 else ''}, wanted {wanted}; see untrimmed plot"
    )


def _require_part(name: str, picture: Picture, folder: Path, run: TrainedRun) -> None:
    if picture.part is None or any(isinstance(module, picture.part) for module in run.model.modules()):
        return
    attached = [f"+{attachment}" for attachment in run.model.attachments]
    if any(attachment in picture.methods for attachment in attached):
        lacks = "was trained without the part that it shows; train one with that part on"
    else:
        lacks = f"has no part that it shows; plot {name} wants {picture.methods}; give such a run"
    raise ConfigError(f"{folder}: {run.model.name} {lacks}, or choose another picture (untrimmed plot lists them)")
