"""A picture of a caption's words: RAL's confidence in each word, and each word's similarity with the video's frames."""

from dataclasses import dataclass, replace

import numpy as np
import torch.nn.functional as F
from jaxtyping import Float

from untrimmed.batches import frames_of
from untrimmed.data.annotations import Span
from untrimmed.models.ral import RALQueries
from untrimmed.plots.style import BLUE, GREY, HEAT, Figure, mark_moments, new_figure, short, styled
from untrimmed.plots.trained_run import TrainedRun
from untrimmed.running.loaded import with_settings
from untrimmed.running.top import top_videos


@dataclass(frozen=True)
class WordConfidence:
    """The words of a caption, their confidences, and their cosines with the frames of the video.

    The confidences sum to 1, as in the released program.
    """

    video_id: str
    duration_s: float
    truth_s: tuple[Span, ...]
    words: tuple[str, ...]
    confidence: Float[np.ndarray, " W"]
    similarity: Float[np.ndarray, "W T"]
    rank: int  # rank of the correct video with these confidences
    even_rank: int  # rank of the correct video if all words have equal confidences


def word_names(text: str, num_rows: int) -> tuple[str, ...]:
    """Return the words of a caption, or numbers if the number of words differs from the number of feature rows.

    >>> word_names("A dog, running.", 3), word_names("A dog, running.", 5)
    (('A', 'dog', 'running'), ('1', '2', '3', '4', '5'))
    """
    words = [word for word in (part.strip(".,;:!?\"'()") for part in text.split()) if word]
    return tuple(words) if len(words) == num_rows else tuple(str(number) for number in range(1, num_rows + 1))


def word_confidence_of(run: TrainedRun, caption_id: str | None) -> WordConfidence:
    """Return the words of a caption with confidences and cosines (RAL Fig. 8).

    Raises: FeatureError for a video without a duration.
    """
    dataset = run.dataset
    row = run.caption(caption_id)
    video = int(dataset.video_index[row])
    duration_s = run.duration_s(video)
    queries = run.queries(np.array([row]))
    encoded = run.videos(np.array([video]))
    attached = RALQueries.of(queries.attached["ral"])
    frames, mask = frames_of(encoded)
    assert attached.word_weights is not None, "the run has CSA: the picture requires its WordMaxSim"
    real = attached.word_mask[0]
    words = F.normalize(attached.words[0][real], dim=-1)
    real_frames = F.normalize(frames[0][mask[0]], dim=-1)
    return WordConfidence(
        dataset.video_ids[video],
        duration_s,
        dataset.moments[row],
        word_names(dataset.texts[row], len(words)),
        attached.word_weights[0][real].cpu().numpy(),
        (words @ real_frames.T).cpu().numpy(),
        *(top_videos(model, np.array([row]), 1)[0].rank for model in (run, with_even_confidences(run))),
    )


def with_even_confidences(run: TrainedRun) -> TrainedRun:
    """Return a copy of the run whose model gives all words of a caption equal confidences (RAL Fig. 8c)."""
    return replace(run, model=with_settings(run.model, {"model.ral.confidences": "even"}))


@styled
def draw_word_confidence(data: WordConfidence) -> Figure:
    """Draw one row per word: its cosine with each frame, and its confidence. Dotted boxes are annotated moments."""
    num = len(data.words)
    figure = new_figure(1.0 + 0.16 * num)
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=[2.5, 1])
    picture = left.imshow(
        data.similarity, cmap=HEAT, aspect="auto", extent=(0, data.duration_s, num, 0), interpolation="nearest"
    )
    mark_moments(left, data.truth_s, 0, num)
    left.set_yticks(np.arange(num) + 0.5, [short(word, 14) for word in data.words])
    left.set_xlabel(f"time in {short(data.video_id, 20)} (s)\ndotted: ground truth")
    right.barh(np.arange(num) + 0.5, 100 * data.confidence, 0.75, color=BLUE)
    right.axvline(100 / num, color=GREY, linestyle="--", linewidth=1)
    right.set_xlabel("confidence (%)\ndashed: equal")
    for axes in (left, right):
        axes.tick_params(left=False)
    bar = figure.colorbar(picture, ax=left, location="top", aspect=30, pad=0.02, label="word-frame cosine similarity")
    bar.outline.set_visible(False)
    ranks = f"rank of the correct video: {data.rank:,}; with equal confidences: {data.even_rank:,}"
    figure.supxlabel(ranks, fontsize=7.5)
    return figure
