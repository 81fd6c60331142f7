"""Captions and clips of a few videos in the plane, by t-SNE: whether captions of a video fall on one point."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int

from untrimmed.data.dataset import RetrievalDataset
from untrimmed.errors import ConfigError, FeatureError
from untrimmed.plots.style import BLACK, COLOURS, GREY, MARKERS, Axes, Figure, new_panels, short, styled
from untrimmed.plots.timeline import courses, parts
from untrimmed.plots.trained_run import TrainedRun, require_same_split

NUM_VIDEOS = 2
NUM_DRAWN = 10  # videos whose captions alone are shown
SEED = 0


@dataclass(frozen=True)
class Embedded:
    """Captions and clips of one model in the plane; `matched` says which clips are the best of a caption."""

    label: str
    queries: Float[np.ndarray, "Q 2"]
    query_video: Int[np.ndarray, " Q"]
    clips: Float[np.ndarray, "N 2"]
    clip_video: Int[np.ndarray, " N"]
    matched: Bool[np.ndarray, " N"]


@dataclass(frozen=True)
class Embeddings:
    """The same videos to every model."""

    video_ids: tuple[str, ...]
    by_run: tuple[Embedded, ...]


def closest_videos(
    sentence: Float[np.ndarray, "Q D"], video_index: Int[np.ndarray, " Q"], count: int
) -> Int[np.ndarray, " V"]:
    """The videos whose captions mean most alike: the closest pair of mean caption vectors with at least two captions.

    Further ones are those closest to the ones already there. Fewer when there are not so many.

    >>> closest_videos(np.eye(3)[[0, 0, 1, 1, 1, 2, 0, 0]], np.array([0, 0, 1, 1, 2, 2, 3, 3]), 2).tolist()
    [0, 3]
    """
    videos, counts = np.unique(video_index, return_counts=True)
    videos = videos[counts > 1]
    means = np.array([sentence[video_index == video].mean(axis=0) for video in videos])
    means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-12)
    cosine = means @ means.T
    np.fill_diagonal(cosine, -np.inf)
    chosen = [int(place) for place in np.unravel_index(cosine.argmax(), cosine.shape)]
    while len(chosen) < min(count, len(videos)):
        near = cosine[chosen].mean(axis=0)
        near[chosen] = -np.inf
        chosen.append(int(near.argmax()))
    return np.sort(videos[chosen[:count]])


def embeddings_of(runs: Sequence[TrainedRun]) -> Embeddings:
    """The two videos that mean most alike to the first run, as each run encodes them.

    Raises: FeatureError without two videos of two captions, ConfigError when scikit-learn is not installed or a method
    keeps neither frames nor clips.
    """
    require_same_split(runs)
    dataset = runs[0].dataset
    _with_several_captions(dataset)
    videos = closest_videos(runs[0].all_queries.sentence.cpu().numpy(), dataset.video_index, NUM_VIDEOS)
    return Embeddings(
        tuple(dataset.video_ids[video] for video in videos), tuple(_embedded(run, videos) for run in runs)
    )


def _embedded(run: TrainedRun, videos: Int[np.ndarray, " V"]) -> Embedded:
    captions, query_video = run.captions_of(videos)
    queries = run.queries(captions)
    encoded = run.videos(videos)
    sentence = F.normalize(queries.sentence, dim=-1).cpu().numpy()
    units, mask = parts(run.model, encoded)
    clips = [
        F.normalize(units[v] if mask is None else units[v][mask[v]], dim=-1).cpu().numpy() for v in range(len(videos))
    ]
    matched = [np.zeros(len(own), dtype=bool) for own in clips]
    for own, course in zip(matched, courses(run.model, queries, encoded, query_video), strict=True):
        own[course.similarity.argmax(axis=1)] = True
    clip_video = np.repeat(np.arange(len(videos)), [len(own) for own in clips])
    plane = in_the_plane(np.concatenate([sentence, *clips]))
    return Embedded(
        run.label, plane[: len(captions)], query_video, plane[len(captions) :], clip_video, np.concatenate(matched)
    )


@dataclass(frozen=True)
class Captions:
    """Captions of some videos in the plane, by run; `video` is the place of each one's video in `video_ids`."""

    video_ids: tuple[str, ...]
    video: Int[np.ndarray, " Q"]
    by_run: dict[str, Float[np.ndarray, "Q 2"]]


def captions_of_some(runs: Sequence[TrainedRun], seed: int = 0) -> Captions:
    """The captions of ten videos drawn at random among those with several, as each run encodes them (GMMFormer Fig. 6).

    Raises: FeatureError without two videos of two captions, ConfigError when scikit-learn is not installed.
    """
    require_same_split(runs)
    dataset = runs[0].dataset
    several = _with_several_captions(dataset)
    videos = np.sort(np.random.default_rng(seed).permutation(several)[:NUM_DRAWN])
    captions, video = runs[0].captions_of(videos)
    by_run = {
        run.label: in_the_plane(F.normalize(run.queries(captions).sentence, dim=-1).float().cpu().numpy())
        for run in runs
    }
    return Captions(tuple(dataset.video_ids[v] for v in videos), video, by_run)


def _with_several_captions(dataset: RetrievalDataset) -> Int[np.ndarray, " V"]:
    several = np.flatnonzero(np.bincount(dataset.video_index) > 1)
    if len(several) < NUM_VIDEOS:
        raise FeatureError(
            f"{dataset.name}, split {dataset.split}: {len(several)} videos have two captions, wanted {NUM_VIDEOS}"
        )
    return several


def in_the_plane(vectors: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N 2"]:
    """t-SNE of unit vectors, without approximation, from a fixed seed.

    Raises: ConfigError when scikit-learn is not installed.
    """
    try:
        from sklearn.manifold import TSNE
    except ImportError as error:
        raise ConfigError(f"t-SNE needs scikit-learn ({error}); run: pip install 'untrimmed[plot]'") from error
    perplexity = min(20.0, (len(vectors) - 1) / 3)
    tsne = TSNE(perplexity=perplexity, init="random", method="exact", random_state=SEED, learning_rate="auto")
    return tsne.fit_transform(vectors.astype(np.float64))


@styled
def draw_embeddings(data: Embeddings) -> Figure:
    """One panel a run: clips as dots, filled where a caption meets them, captions as large marks of the same colour."""
    from matplotlib.lines import Line2D

    figure, panels = new_panels(len(data.by_run), rest_in=0.45, beside_in=1.75, alone_in=2.6, sharey=False)
    for axes, own in zip(panels, data.by_run, strict=True):
        _draw_points(axes, own)
        axes.set_title(own.label)
    handles = [
        Line2D([], [], color=COLOURS[v], marker=MARKERS[v], linestyle="", label=short(name, 24))
        for v, name in enumerate(data.video_ids)
    ]
    handles += [
        Line2D([], [], color=GREY, marker="*", markersize=8, markeredgecolor=BLACK, linestyle="", label="caption"),
        Line2D([], [], color=GREY, marker="o", linestyle="", label="clip, best of a caption"),
        Line2D([], [], color=GREY, marker="o", fillstyle="none", linestyle="", label="other clip"),
    ]
    figure.legend(handles=handles, loc="outside upper left", ncols=2, handletextpad=0.3, columnspacing=1)
    return figure


def _draw_points(axes: Axes, own: Embedded) -> None:
    for video in np.unique(own.clip_video):
        colour = COLOURS[video]
        of_video = own.clip_video == video
        for matched in (False, True):
            x, y = own.clips[of_video & (own.matched == matched)].T
            axes.plot(x, y, MARKERS[video], color=colour, fillstyle="full" if matched else "none", markeredgewidth=0.8)
        x, y = own.queries[own.query_video == video].T
        axes.plot(x, y, "*", color=colour, markersize=7, markeredgecolor=BLACK, markeredgewidth=0.6)
    _frame(axes)


def _frame(axes: Axes) -> None:
    """A frame without ticks: distances in the plane have no unit."""
    axes.set(xticks=[], yticks=[], xlabel="t-SNE 1 (no unit)", ylabel="t-SNE 2 (no unit)")
    for spine in axes.spines.values():
        spine.set_visible(True)


@styled
def draw_captions(data: Captions) -> Figure:
    """One panel a run: a colour and a mark for each video, lines from its captions to their middle."""
    figure, panels = new_panels(len(data.by_run), rest_in=0.3, beside_in=1.75, alone_in=2.6, sharey=False)
    for axes, (label, points) in zip(panels, data.by_run.items(), strict=True):
        for video in range(len(data.video_ids)):
            own = points[data.video == video]
            colour = COLOURS[video % len(COLOURS)]
            marker = MARKERS[(video + video // len(COLOURS)) % len(MARKERS)]
            middle = own.mean(axis=0)
            for x, y in own:
                axes.plot([x, middle[0]], [y, middle[1]], color=colour, linewidth=0.5, alpha=0.6)
            axes.plot(*own.T, marker, color=colour, markersize=4.5, markeredgecolor="white", markeredgewidth=0.4)
        axes.set_title(label)
        _frame(axes)
    figure.supxlabel(f"captions of {len(data.video_ids)} videos; a colour and a mark for each video", fontsize=7.5)
    return figure
