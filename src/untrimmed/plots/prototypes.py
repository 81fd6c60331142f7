"""Pictures of ProtoPRVR's prototypes: attention over a video and inside moments, and the number of best matches."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int

from untrimmed.batches import EncodedQueries, EncodedVideos, clips_of
from untrimmed.data.annotations import Span
from untrimmed.errors import ConfigError, FeatureError
from untrimmed.models.proto import Proto, ProtoVideos
from untrimmed.models.prototype_clips import PrototypeShares
from untrimmed.plots.style import (
    BLACK,
    BLUE,
    GREY,
    HEAT,
    ORANGE,
    Figure,
    legend_above,
    mark_moments,
    new_figure,
    short,
    styled,
)
from untrimmed.plots.trained_run import TrainedRun
from untrimmed.scores.score import required_best

MARGIN = 1 / 20  # moments are extended on each side by this share of their length, as in the paper


@dataclass(frozen=True)
class PrototypeAttention:
    """Attention of each prototype over M equal parts of a video. Rows are sorted by similarity to a caption.

    `prototype` is the index of each row's prototype, and `similarity` is the prototype's cosine with the caption.
    """

    video_id: str
    duration_s: float
    caption: str
    truth_s: tuple[Span, ...]
    attention: Float[np.ndarray, "K M"]
    prototype: Int[np.ndarray, " K"]
    similarity: Float[np.ndarray, " K"]


@dataclass(frozen=True)
class Attendance:
    """The share of attention inside moments, by rank of the prototype.

    `by_chance` is the share for uniform attention.
    """

    inside: Float[np.ndarray, " K"]
    by_chance: float
    num_captions: int


def _attention(run: TrainedRun, encoded: EncodedVideos) -> Float[np.ndarray, "V K M"]:
    attached = encoded.attached.get("prototypes")
    attention = (ProtoVideos.of(encoded) if attached is None else PrototypeShares.of(attached)).unit_attention
    if attention is None:
        raise ConfigError(
            f"{run.label}: the model does not keep its prototypes' attention; train it with model.keep_attention=true"
        )
    return attention.transpose(1, 2).cpu().numpy()


def _similarities(run: TrainedRun, queries: EncodedQueries, encoded: EncodedVideos) -> Float[np.ndarray, "Q V K"]:
    return run.model.similarity(queries, clips_of(encoded)).cpu().numpy()


def prototype_attention_of(run: TrainedRun, caption_id: str | None) -> PrototypeAttention:
    """Return the attention of all prototypes over a caption's video.

    Raises: FeatureError for a video without a duration, ConfigError for a model that does not keep attention.
    """
    dataset = run.dataset
    row = run.caption(caption_id)
    video = int(dataset.video_index[row])
    duration_s = run.duration_s(video)
    encoded = run.videos(np.array([video]))
    cosine = _similarities(run, run.queries(np.array([row])), encoded)[0, 0]
    order = np.argsort(-cosine, kind="stable")
    return PrototypeAttention(
        dataset.video_ids[video],
        duration_s,
        dataset.texts[row],
        dataset.moments[row],
        _attention(run, encoded)[0][order],
        order,
        cosine[order],
    )


def covered(span_s: Span, duration_s: float, num_parts: int) -> Float[np.ndarray, " M"]:
    """Divide a video into equal parts, and return the share of each part that a span covers.

    As in the paper, the span is first extended on each side by 1/20 of its length.

    >>> covered((0.0, 10.0), 42.0, 4).tolist()
    [1.0, 0.0, 0.0, 0.0]
    """
    start_s, end_s = span_s
    start_s, end_s = start_s - MARGIN * (end_s - start_s), end_s + MARGIN * (end_s - start_s)
    edges = np.linspace(0, duration_s, num_parts + 1)
    overlap = np.minimum(edges[1:], end_s) - np.maximum(edges[:-1], start_s)
    return overlap.clip(min=0) / np.diff(edges)


def inside_by_rank(
    attention: Float[np.ndarray, "K M"], similarity: Float[np.ndarray, " K"], inside: Float[np.ndarray, " M"]
) -> Float[np.ndarray, " K"]:
    """Return each prototype's share of attention inside the moment, with the most similar prototype first.

    >>> inside_by_rank(np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([0.3, 0.7]), np.array([0.0, 1.0])).tolist()
    [0.8, 0.1]
    """
    return (attention @ inside)[np.argsort(-similarity, kind="stable")]


def attendance_of(run: TrainedRun) -> Attendance:
    """Return the share of attention inside the moment, as a mean over all captions with a moment (ProtoPRVR Fig. 5).

    Raises: FeatureError if no caption has a moment, ConfigError for a model that does not keep attention.
    """
    dataset = run.dataset
    located = np.flatnonzero(np.isfinite(dataset.moment_ratios))
    if not len(located):
        raise FeatureError(f"{dataset.name}, split {dataset.split}: no caption has an annotated moment")
    shares = []
    chance = []
    for rows, encoded in run.all_videos():
        attention = _attention(run, encoded)
        for row in located[np.isin(dataset.video_index[located], rows)]:
            video = int(np.searchsorted(rows, dataset.video_index[row]))
            moment = dataset.annotations[row].main_moment
            duration_s = dataset.annotations[row].duration_s
            assert moment is not None
            assert duration_s is not None
            inside = covered(moment, duration_s, attention.shape[2])
            query = run.all_queries.select(slice(int(row), int(row) + 1))
            similarity = _similarities(run, query, encoded.select(slice(video, video + 1)))[0, 0]
            shares.append(inside_by_rank(attention[video], similarity, inside))
            chance.append(inside.mean())
    return Attendance(np.mean(shares, axis=0), float(np.mean(chance)), len(shares))


def matching_frequency_of(run: TrainedRun) -> dict[str, Int[np.ndarray, " K"]]:
    """Return {branch: for each prototype, the number of captions that match it best} (ProtoPRVR Fig. 6)."""
    branches = ("clip", "frame") if isinstance(run.model, Proto) else ("clip",)
    counts: dict[str, np.ndarray] = {}
    for rows, encoded in run.all_videos():
        captions, videos = run.captions_of(rows)
        with torch.no_grad():
            scores = run.model.score(run.all_queries.select(torch.from_numpy(captions)), encoded)
        local = torch.from_numpy(videos)[:, None]
        for branch in branches:
            best = required_best(scores[branch]).cpu().gather(1, local)[:, 0].numpy()
            counts[branch] = counts.get(branch, 0) + np.bincount(best, minlength=clips_of(encoded).shape[1])
    return counts


@styled
def draw_prototype_attention(data: PrototypeAttention) -> Figure:
    """Draw one row per prototype, with the most similar prototype first. Dotted outlines mark annotated moments."""
    num = len(data.attention)
    figure = new_figure(2.9)
    axes = figure.subplots()
    picture = axes.imshow(
        100 * data.attention, cmap=HEAT, vmin=0, aspect="auto", extent=(0, data.duration_s, num + 0.5, 0.5)
    )
    mark_moments(axes, data.truth_s, 0.5, num)
    axes.set_xlabel(f"time in {short(data.video_id, 30)} (s)")
    axes.set_ylabel("prototype rank (caption similarity)")
    step = next(step for step in (10, 5, 1) if num >= 2 * step or step == 1)
    axes.set_yticks([1, *range(max(step, 2), num + 1, step)])
    figure.suptitle(f"{short(data.caption, 66)}\ndotted: ground truth", x=0.02, ha="left", fontsize=7.5)
    figure.colorbar(picture, ax=axes, pad=0.02, label="attention (%)").outline.set_visible(False)
    return figure


@styled
def draw_attendance(data: Attendance) -> Figure:
    """Draw one bar per rank, and a line for uniform attention."""
    figure = new_figure(2.0)
    axes = figure.subplots()
    axes.bar(np.arange(1, len(data.inside) + 1), 100 * data.inside, color=BLUE, width=0.8)
    axes.axhline(100 * data.by_chance, color=BLACK, linestyle="--", linewidth=1, label="uniform attention")
    axes.set(xlim=(0.3, len(data.inside) + 0.7), xlabel="prototype rank (caption similarity)")
    axes.set_ylabel("attention inside\nthe moment (%)")
    axes.text(1, 1.03, f"{data.num_captions:,} captions", ha="right", transform=axes.transAxes, color=GREY)
    legend_above(axes)
    return figure


@styled
def draw_matching_frequency(data: Mapping[str, Int[np.ndarray, " K"]]) -> Figure:
    """Draw one panel per branch, with one bar per prototype and a line for uniform use."""
    figure = new_figure(0.45 + 1.35 * len(data))
    all_axes = figure.subplots(len(data), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (branch, counts), colour in zip(all_axes, data.items(), (BLUE, ORANGE), strict=False):
        axes.bar(np.arange(1, len(counts) + 1), counts, color=colour, width=0.8)
        axes.axhline(counts.mean(), color=BLACK, linestyle="--", linewidth=1, label="uniform use")
        axes.set(xlim=(0.3, len(counts) + 0.7), ylabel="number of captions")
        used = f"{branch} prototypes: {np.count_nonzero(counts)} of {len(counts)} used"
        axes.text(1, 1.04, used, ha="right", transform=axes.transAxes, color=GREY)
    legend_above(all_axes[0])
    all_axes[-1].set_xlabel("prototype index")
    return figure
