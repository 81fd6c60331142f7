"""Pictures of the captions and clips of a few videos in two dimensions, computed by t-SNE."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int

from untrimmed.data.dataset import RetrievalDataset
from untrimmed.data.resampling import unit_rows
from untrimmed.errors import ConfigError, FeatureError, install_advice
from untrimmed.plots.style import BLACK, COLOURS, GREY, MARKERS, Axes, Figure, new_panels, short, styled
from untrimmed.plots.timeline import part_similarities, parts
from untrimmed.plots.trained_run import TrainedRun, require_same_split

NUM_VIDEOS = 2
NUM_RANDOM = 10  # number of random videos in the picture that shows only captions
SEED = 0


@dataclass(frozen=True)
class Embedded:
    """Captions and clips in two dimensions, encoded by one model. `matched` marks the best clip of each caption."""

    label: str
    queries: Float[np.ndarray, "Q 2"]
    query_video: Int[np.ndarray, " Q"]
    clips: Float[np.ndarray, "N 2"]
    clip_video: Int[np.ndarray, " N"]
    matched: Bool[np.ndarray, " N"]


@dataclass(frozen=True)
class Embeddings:
    """Captions and clips of the same videos, encoded by every model."""

    video_ids: tuple[str, ...]
    by_run: tuple[Embedded, ...]


def closest_videos(
    sentence: Float[np.ndarray, "Q D"], video_index: Int[np.ndarray, " Q"], count: int
) -> Int[np.ndarray, " V"]:
    """Return at most `count` videos with similar captions, in ascending order.

    Only videos with two or more captions are chosen. The first two videos are the pair with the most similar mean
    caption vectors. Further videos are added one by one: always the video that is most similar, on average, to the
    chosen videos.

    >>> closest_videos(np.eye(3)[[0, 0, 1, 1, 1, 2, 0, 0]], np.array([0, 0, 1, 1, 2, 2, 3, 3]), 2).tolist()
    [0, 3]
    """
    videos, counts = np.unique(video_index, return_counts=True)
    videos = videos[counts > 1]
    means = unit_rows(np.array([sentence[video_index == video].mean(axis=0) for video in videos]))
    cosine = means @ means.T
    np.fill_diagonal(cosine, -np.inf)
    closest = [int(place) for place in np.unravel_index(cosine.argmax(), cosine.shape)]
    while len(closest) < min(count, len(videos)):
        mean_cosine = cosine[closest].mean(axis=0)
        mean_cosine[closest] = -np.inf
        closest.append(int(mean_cosine.argmax()))
    return np.sort(videos[closest[:count]])


def embeddings_of(runs: Sequence[TrainedRun]) -> Embeddings:
    """Return the captions and clips of two videos, encoded by each run.

    These are the two videos with the most similar captions according to the first run.

    Raises: FeatureError unless at least two videos have two captions, ConfigError if scikit-learn is not installed or
        for a method that keeps neither frames nor clips.
    """
    require_same_split(runs)
    dataset = runs[0].dataset
    _multi_caption_videos(dataset)
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
    matched = [np.zeros(len(rows), dtype=bool) for rows in clips]
    similarities = part_similarities(run.model, queries, encoded, query_video)
    for is_best, similarity in zip(matched, similarities, strict=True):
        is_best[similarity.values.argmax(axis=1)] = True
    clip_video = np.repeat(np.arange(len(videos)), [len(rows) for rows in clips])
    plane = in_two_dimensions(np.concatenate([sentence, *clips]))
    return Embedded(
        run.label, plane[: len(captions)], query_video, plane[len(captions) :], clip_video, np.concatenate(matched)
    )


@dataclass(frozen=True)
class Captions:
    """Captions in two dimensions, by label of the run. `video` is the index in `video_ids` of each caption's video."""

    video_ids: tuple[str, ...]
    video: Int[np.ndarray, " Q"]
    by_run: dict[str, Float[np.ndarray, "Q 2"]]


def random_captions_of(runs: Sequence[TrainedRun], seed: int = 0) -> Captions:
    """Return the captions of ten random videos, encoded by each run (GMMFormer Fig. 6).

    Only videos with several captions are chosen.

    Raises: FeatureError unless at least two videos have two captions, ConfigError if scikit-learn is not installed.
    """
    require_same_split(runs)
    dataset = runs[0].dataset
    candidates = _multi_caption_videos(dataset)
    videos = np.sort(np.random.default_rng(seed).permutation(candidates)[:NUM_RANDOM])
    captions, video = runs[0].captions_of(videos)
    by_run = {
        run.label: in_two_dimensions(F.normalize(run.queries(captions).sentence, dim=-1).float().cpu().numpy())
        for run in runs
    }
    return Captions(tuple(dataset.video_ids[v] for v in videos), video, by_run)


def _multi_caption_videos(dataset: RetrievalDataset) -> Int[np.ndarray, " V"]:
    videos = np.flatnonzero(np.bincount(dataset.video_index) > 1)
    if len(videos) < NUM_VIDEOS:
        problem = f"{len(videos)} videos have two captions or more, expected at least {NUM_VIDEOS}"
        raise FeatureError(f"{dataset.name}, split {dataset.split}: {problem}; choose another split")
    return videos


def in_two_dimensions(vectors: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N 2"]:
    """Map unit vectors to two dimensions by exact t-SNE with a fixed seed.

    Raises: ConfigError if scikit-learn is not installed.
    """
    try:
        from sklearn.manifold import TSNE
    except ImportError as error:
        raise ConfigError(f"t-SNE needs scikit-learn ({error}); {install_advice('plot')}") from error
    perplexity = min(20.0, (len(vectors) - 1) / 3)
    tsne = TSNE(perplexity=perplexity, init="random", method="exact", random_state=SEED, learning_rate="auto")
    return tsne.fit_transform(vectors.astype(np.float64))


@styled
def draw_embeddings(data: Embeddings) -> Figure:
    """Draw one panel per run, with captions as stars and clips as markers.

    The marker of a clip is filled if the clip is the best clip of a caption.
    """
    from matplotlib.lines import Line2D

    figure, panels = new_panels(len(data.by_run), rest_in=0.45, beside_in=1.75, alone_in=2.6, sharey=False)
    for axes, embedded in zip(panels, data.by_run, strict=True):
        _draw_points(axes, embedded)
        axes.set_title(embedded.label)
    handles = [
        Line2D([], [], color=COLOURS[v], marker=MARKERS[v], linestyle="", label=short(name, 24))
        for v, name in enumerate(data.video_ids)
    ]
    handles += [
        Line2D([], [], color=GREY, marker="*", markersize=8, markeredgecolor=BLACK, linestyle="", label="caption"),
        Line2D([], [], color=GREY, marker="o", linestyle="", label="best-matching clip"),
        Line2D([], [], color=GREY, marker="o", fillstyle="none", linestyle="", label="other clip"),
    ]
    figure.legend(handles=handles, loc="outside upper left", ncols=2, handletextpad=0.3, columnspacing=1)
    return figure


def _draw_points(axes: Axes, embedded: Embedded) -> None:
    for video in np.unique(embedded.clip_video):
        colour = COLOURS[video]
        of_video = embedded.clip_video == video
        for matched in (False, True):
            x, y = embedded.clips[of_video & (embedded.matched == matched)].T
            axes.plot(x, y, MARKERS[video], color=colour, fillstyle="full" if matched else "none", markeredgewidth=0.8)
        x, y = embedded.queries[embedded.query_video == video].T
        axes.plot(x, y, "*", color=colour, markersize=7, markeredgecolor=BLACK, markeredgewidth=0.6)
    _frame(axes)


def _frame(axes: Axes) -> None:
    """Draw the frame of a panel without ticks, because t-SNE coordinates have no unit."""
    axes.set(xticks=[], yticks=[], xlabel="t-SNE 1", ylabel="t-SNE 2")
    for spine in axes.spines.values():
        spine.set_visible(True)


@styled
def draw_captions(data: Captions) -> Figure:
    """Draw one panel per run. Each video has a colour and a marker. Lines connect its captions with their mean."""
    figure, panels = new_panels(len(data.by_run), rest_in=0.3, beside_in=1.75, alone_in=2.6, sharey=False)
    for axes, (label, points) in zip(panels, data.by_run.items(), strict=True):
        for video in range(len(data.video_ids)):
            captions = points[data.video == video]
            colour = COLOURS[video % len(COLOURS)]
            marker = MARKERS[(video + video // len(COLOURS)) % len(MARKERS)]
            middle = captions.mean(axis=0)
            for x, y in captions:
                axes.plot([x, middle[0]], [y, middle[1]], color=colour, linewidth=0.5, alpha=0.6)
            axes.plot(*captions.T, marker, color=colour, markersize=4.5, markeredgecolor="white", markeredgewidth=0.4)
        axes.set_title(label)
        _frame(axes)
    figure.supxlabel(f"captions of {len(data.video_ids)} videos, one colour and marker per video", fontsize=7.5)
    return figure
