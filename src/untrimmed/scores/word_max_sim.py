"""A video by its best frame for each word, the words weighed by learned confidences (RAL, section 3.3)."""

from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from untrimmed.scores.max_sim import Similarity, cosines, products
from untrimmed.scores.score import Score

Confidences = Literal["released", "paper", "even"]
MASKED_LOGIT = -1e10
SIMILARITIES_AT_A_TIME = 2**25  # words times frames held at once: 128 MB


class WordMaxSim(nn.Module):
    """Confidence-aware set-to-set alignment (RAL Eq. 11-12).

    `released`: confidences are a softmax over the words, read from normalised words for cosines and from raw words for
    dot products. `paper` (Eq. 12): what the perceptron says, read from raw words; nothing keeps it positive or makes it
    sum to 1. `even`: the mean over words, whatever was learned (Fig. 8c).
    """

    def __init__(self, dim: int, confidences: Confidences = "released"):
        super().__init__()
        self.confidences = confidences
        self.hidden = nn.Linear(dim, dim)
        self.confidence = nn.Linear(dim, 1)

    def weights(
        self, words: Float[Tensor, "Q W D"], mask: Bool[Tensor, "Q W"], similarity: Similarity = "cosine"
    ) -> Float[Tensor, "Q W"]:
        """How much each word counts; sums to 1 over real words except for `paper`, 0 at padding."""
        if self.confidences == "even":
            return mask / mask.sum(dim=1, keepdim=True).clamp_min(1).to(words.dtype)
        if self.confidences == "released" and similarity == "cosine":
            words = F.normalize(words, dim=-1)
        logits = self.confidence(self.hidden(words).relu())[..., 0]
        if self.confidences == "paper":
            return logits.masked_fill(~mask, 0)
        return logits.masked_fill(~mask, MASKED_LOGIT).softmax(dim=-1)

    def forward(
        self,
        words: Float[Tensor, "Q W D"],
        word_mask: Bool[Tensor, "Q W"],
        frames: Float[Tensor, "V T D"],
        frame_mask: Bool[Tensor, "V T"],
        *,
        similarity: Similarity = "cosine",
        zero_floor: Bool[Tensor, " V"] | None = None,
    ) -> Score:
        """The weighted sum of each word's best similarity; `best` is the best frame of the most confident word.

        `zero_floor` marks videos in which no word scores below 0 (see `max_sim`).
        """
        confidence = self.weights(words, word_mask, similarity)
        value, best = word_maxima(words[word_mask], frames, frame_mask, similarity=similarity)
        if zero_floor is not None:
            value = torch.where(zero_floor & (value < 0), torch.zeros_like(value), value)
        weighted = value * confidence[word_mask][:, None]
        query = torch.arange(len(words), device=words.device)[:, None].expand_as(word_mask)[word_mask]
        total = value.new_zeros(len(words), len(frames)).index_add(0, query, weighted)
        return Score(total, best[_row_of_top_word(confidence, word_mask)])


def _row_of_top_word(confidence: Float[Tensor, "Q W"], mask: Bool[Tensor, "Q W"]) -> Int[Tensor, " Q"]:
    """Where the most confident word of each query stands among all real words of the batch."""
    row = mask.flatten().cumsum(0).view_as(mask) - 1
    return row.gather(1, confidence.argmax(dim=1, keepdim=True))[:, 0]


def word_maxima(
    words: Float[Tensor, "N D"],
    frames: Float[Tensor, "V T D"],
    mask: Bool[Tensor, "V T"],
    *,
    similarity: Similarity = "cosine",
) -> tuple[Float[Tensor, "N V"], Int[Tensor, "N V"]]:
    """The similarity of each word with its best frame in each video, and which frame that is; padding never wins."""
    needs_gradient = torch.is_grad_enabled() and (words.requires_grad or frames.requires_grad)
    if similarity == "cosine" and not needs_gradient:
        return _best_frames(words, frames, mask, cosines)
    if similarity == "cosine":
        words, frames = F.normalize(words, dim=-1), F.normalize(frames, dim=-1)
    value, best = _BestFrames.apply(words, frames, mask)
    return value, best


def _best_frames(
    words: Float[Tensor, "N D"],
    frames: Float[Tensor, "V T D"],
    mask: Bool[Tensor, "V T"],
    similarities: Callable[[Tensor, Tensor], Tensor],
) -> tuple[Float[Tensor, "N V"], Int[Tensor, "N V"]]:
    """`word_maxima` by these similarities, some videos at a time."""
    at_once = max(1, SIMILARITIES_AT_A_TIME // max(1, len(words) * frames.shape[1]))
    maxima = [
        similarities(words, part).masked_fill_(~real, -torch.inf).max(dim=-1)
        for part, real in zip(frames.split(at_once), mask.split(at_once), strict=True)
    ]
    value, best = (torch.cat(parts, dim=1) for parts in zip(*maxima, strict=True))
    return value, best


class _BestFrames(torch.autograd.Function):
    """Maxima of dot products.

    Only one frame in T gets a gradient from a word, so the backward pass sums the rows that won: T times less work than
    through the dense similarities, which are never kept.
    """

    @staticmethod
    def forward(ctx: Any, words: Tensor, frames: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        value, best = _best_frames(words, frames, mask, products)
        ctx.save_for_backward(words, frames, best)
        ctx.mark_non_differentiable(best)
        return value, best

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        words, frames, best = ctx.saved_tensors
        weight = gradients[0].to(words.dtype).flatten()
        num_videos, length = frames.shape[:2]
        frame = (best + torch.arange(num_videos, device=best.device) * length).flatten()  # for each word and video
        word = torch.arange(len(words), device=best.device).repeat_interleave(num_videos)
        of_words = of_frames = None
        if ctx.needs_input_grad[0]:
            of_words = _weighted_sums(frames.flatten(0, 1), frame, weight, word, len(words))
        if ctx.needs_input_grad[1]:
            order = frame.argsort()
            of_frames = _weighted_sums(words, word[order], weight[order], frame[order], num_videos * length)
            of_frames = of_frames.view_as(frames)
        return of_words, of_frames, None


def _weighted_sums(
    rows: Float[Tensor, "R D"],
    row: Int[Tensor, " P"],
    weight: Float[Tensor, " P"],
    target: Int[Tensor, " P"],
    num_targets: int,
) -> Float[Tensor, "S D"]:
    """For each target the weighted sum of the rows that go to it; `target` must ascend."""
    count = torch.bincount(target, minlength=num_targets)
    return F.embedding_bag(row, rows, count.cumsum(0) - count, mode="sum", per_sample_weights=weight)
