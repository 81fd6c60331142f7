"""Score a video by the best frame of each word, with learned confidences as weights of words (RAL, section 3.3)."""

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from untrimmed.scores.max_sim import Similarity, best_rows
from untrimmed.scores.score import Score

Confidences = Literal["released", "paper", "even"]
MASKED_LOGIT = -1e10


class WordMaxSim(nn.Module):
    """Confidence-aware set-to-set alignment (RAL Eq. 11-12). A perceptron computes the confidence of each word.

    - `released`: a softmax over the words normalises the confidences. The input of the perceptron is normalised words
      for cosines, and raw words for dot products.
    - `paper` (Eq. 12): the confidences are not normalised and can be negative. The input is raw words.
    - `even`: all confidences are equal (Fig. 8c).
    """

    def __init__(self, dim: int, confidences: Confidences = "released"):
        super().__init__()
        self.confidences = confidences
        self.hidden = nn.Linear(dim, dim)
        self.confidence = nn.Linear(dim, 1)

    def weights(
        self, words: Float[Tensor, "Q W D"], mask: Bool[Tensor, "Q W"], similarity: Similarity = "cosine"
    ) -> Float[Tensor, "Q W"]:
        """Return the confidence of each word, or 0 for padding.

        The confidences of a query sum to 1, except with `paper`.
        """
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
        """Return the weighted sum of the words' best similarities. `best` is the best frame of the most confident word.

        `zero_floor` marks videos in which the similarities of words are raised to at least 0 (see `max_sim`).
        """
        confidence = self.weights(words, word_mask, similarity)
        value, best = best_rows(words[word_mask], frames, frame_mask, similarity=similarity)
        if zero_floor is not None:
            value = torch.where(zero_floor & (value < 0), torch.zeros_like(value), value)
        weighted = value * confidence[word_mask][:, None]
        query = torch.arange(len(words), device=words.device)[:, None].expand_as(word_mask)[word_mask]
        total = value.new_zeros(len(words), len(frames)).index_add(0, query, weighted)
        return Score(total, best[_row_of_top_word(confidence, word_mask)])


def _row_of_top_word(confidence: Float[Tensor, "Q W"], mask: Bool[Tensor, "Q W"]) -> Int[Tensor, " Q"]:
    """Return the index of each query's most confident word among all real words of the batch."""
    row = mask.flatten().cumsum(0).view_as(mask) - 1
    return row.gather(1, confidence.argmax(dim=1, keepdim=True))[:, 0]
