"""All pictures by name: what each shows, which figures of the papers it corresponds to, and which runs it takes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path

from torch import nn

from untrimmed.errors import ConfigError, UnknownNameError
from untrimmed.models.ral_distribution import DistributionHead
from untrimmed.nn.prototypes import PrototypeBuilder
from untrimmed.plots.epochs import draw_epochs, epochs_of
from untrimmed.plots.first_ten import draw_similarity_by_place, similarity_by_place_of
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
from untrimmed.plots.tsne import captions_of_some, draw_captions, draw_embeddings, embeddings_of
from untrimmed.plots.uncertainty import draw_recall_by_uncertainty, recall_by_uncertainty_of
from untrimmed.plots.variance import draw_positioning_variances, positioning_variances_of
from untrimmed.plots.words import draw_word_confidence, word_confidence_of
from untrimmed.scores.word_max_sim import WordMaxSim

MOST_IN_A_SWEEP = 64


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a picture shows of its runs, as far as it `takes` that; fields are named as the options of the command."""

    query: tuple[str, ...] = ()  # captions by their ids
    videos: Path | None = None  # a folder with video files
    seed: int | None = None
    moment_ratio: tuple[float, float] | None = None

    @property
    def caption(self) -> str | None:
        """The one caption that is asked for, if any."""
        return self.query[0] if self.query else None

    @property
    def given(self) -> list[str]:
        """The names of the fields that ask for something."""
        return [field.name for field in fields(self) if getattr(self, field.name) != field.default]


@dataclass(frozen=True)
class Picture:
    """One entry; `draw` gets the runs and what was asked, of which the picture `takes` some.

    The first run must have a part of type `part`, which the methods in `methods` have; more than `most_runs` are
    refused, and fewer than `fewest_runs`, and more than `most_queries` captions.
    """

    shows: str
    figures: str
    draw: Callable[[Sequence[TrainedRun], Asked], Figure]
    methods: str = "any method"
    part: type[nn.Module] | None = None
    fewest_runs: int = 1
    most_runs: int = len(COLOURS)
    takes: frozenset[str] = frozenset()
    most_queries: int = 1


QUERY = frozenset({"query"})
RAL = "any +ral"
_of_prototypes = partial(Picture, methods="proto, any +prototypes", part=PrototypeBuilder, most_runs=1)
PICTURES: dict[str, Picture] = {
    "heatmap": Picture(
        "similarity of captions and clips over time, true and found moment",
        "GMMFormer Fig. 5, GMMFormer v2 Fig. 7",
        lambda runs, asked: draw_heat_map(heat_map_of(runs, asked.caption)),
        most_runs=4,
        takes=QUERY,
    ),
    "top": Picture(
        "the first videos of captions: relevance over time, best moment, frames where there are files",
        "GMMFormer Fig. 7, GMMFormer v2 Fig. 9, RAL Figs. 7, 12, 13, ProtoPRVR Figs. 8, 9, JSG Fig. 3",
        lambda runs, asked: draw_top(top_of(runs, asked.query, asked.videos)),
        most_runs=4,
        takes=QUERY | {"videos"},
        most_queries=MOST_CAPTIONS,
    ),
    "texts": Picture(
        "captions of ten videos drawn at random, in the plane",
        "GMMFormer Fig. 6",
        lambda runs, asked: draw_captions(captions_of_some(runs, asked.seed or 0)),
        most_runs=4,
        takes=frozenset({"seed"}),
    ),
    "tsne": Picture(
        "captions and clips of two videos that mean alike, in the plane",
        "GMMFormer v2 Fig. 6",
        lambda runs, asked: draw_embeddings(embeddings_of(runs)),
        most_runs=4,
    ),
    "variance": Picture(
        "how far the captions of a video are spread over it",
        "GMMFormer v2 Fig. 8",
        lambda runs, asked: draw_positioning_variances(positioning_variances_of(runs)),
    ),
    "prototypes": _of_prototypes(
        "what the prototypes of a video look at",
        "ProtoPRVR Fig. 4",
        lambda runs, asked: draw_prototype_attention(prototype_attention_of(runs[0], asked.caption)),
        takes=QUERY,
    ),
    "attendance": _of_prototypes(
        "attention inside the moment by rank of the prototype",
        "ProtoPRVR Fig. 5",
        lambda runs, asked: draw_attendance(attendance_of(runs[0])),
    ),
    "matching": _of_prototypes(
        "how often each prototype is the best",
        "ProtoPRVR Fig. 6",
        lambda runs, asked: draw_matching_frequency(matching_frequency_of(runs[0])),
    ),
    "moment-ratio": Picture(
        "SumR by moment length / video length",
        "GMMFormer Fig. 4, RAL Fig. 4, ProtoPRVR Fig. 7",
        lambda runs, asked: draw_recall_by_ratio(recall_by_ratio_of(runs)),
    ),
    "noise": Picture(
        "SumR when a segment of noise stands before every video",
        "RAL Fig. 5",
        lambda runs, asked: draw_robustness(robustness_of(runs)),
    ),
    "uncertainty": Picture(
        "R@1 by predicted uncertainty of the caption, the first run's",
        "RAL Fig. 3",
        lambda runs, asked: draw_recall_by_uncertainty(recall_by_uncertainty_of(runs, asked.moment_ratio)),
        takes=frozenset({"moment_ratio"}),
        methods=RAL,
        part=DistributionHead,
    ),
    "words": Picture(
        "confidence of each word, where it is seen, and the rank of its video with and without confidences",
        "RAL Fig. 8",
        lambda runs, asked: draw_word_confidence(word_confidence_of(runs[0], asked.caption)),
        methods=RAL,
        part=WordMaxSim,
        most_runs=1,
        takes=QUERY,
    ),
    "first-ten": Picture(
        "cosine of captions with their first ten videos",
        "RAL Fig. 6",
        lambda runs, asked: draw_similarity_by_place(similarity_by_place_of(runs)),
    ),
    "epochs": Picture(
        "SumR after every epoch, and of RAL the uncertainty of queries and videos",
        "RAL Fig. 10",
        lambda runs, asked: draw_epochs(epochs_of(runs)),
    ),
    "sweep": Picture(
        "SumR by the value of a weight or another setting",
        "GMMFormer v2 Fig. 5, ProtoPRVR Fig. 10, RAL Fig. 11",
        lambda runs, asked: draw_sweep(sweep_of(runs)),
        fewest_runs=2,
        most_runs=MOST_IN_A_SWEEP,
    ),
}


NOTHING_ASKED = Asked()


def plot(
    name: str,
    folders: Sequence[Path],
    out: Path,
    asked: Asked = NOTHING_ASKED,
    *,
    split: str = "test",
    root: Path | None = None,
    device: str = "auto",
) -> None:
    """Draw a picture of some runs into a .png or .svg file.

    Data sets that have moved are in `root`. Arguments are checked before any model is read.

    Raises:
        UnknownNameError: for an unknown picture or caption.
        ConfigError: for runs that do not fit the picture or each other.
        CheckpointError: for a folder without a finished run.
        FeatureError: for features or annotations that are missing, damaged or do not fit.
    """
    picture = get_picture(name)
    require_suffix(out)
    _require_number(name, picture, len(folders))
    _require_taken(name, picture, asked)
    runs: list[TrainedRun] = []
    for folder, label in zip(folders, labels(folders), strict=True):
        run = open_trained(folder, label=label, split=split, root=root, device=device)
        if not runs:
            _require_part(name, picture, folder, run)
        runs.append(run)
    save(picture.draw(runs, asked), out)


def get_picture(name: str) -> Picture:
    """Return the picture of that name. Raises UnknownNameError when there is none."""
    if name not in PICTURES:
        raise UnknownNameError.among("picture", name, PICTURES)
    return PICTURES[name]


def _require_taken(name: str, picture: Picture, asked: Asked) -> None:
    for field in asked.given:
        if field not in picture.takes:
            takers = ", ".join(other for other, known in PICTURES.items() if field in known.takes)
            raise ConfigError(f"plot {name} takes no --{field.replace('_', '-')}; it is for {takers}")
    if len(asked.query) > picture.most_queries:
        raise ConfigError(f"plot {name}: found {len(asked.query)} times --query, wanted at most {picture.most_queries}")


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
