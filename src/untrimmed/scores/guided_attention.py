"""Frames pooled under the guidance of the clip that fits a query best (MS-SL, also a branch of JSG)."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from untrimmed.scores.score import Score

MASKED_LOGIT = -1e9


class GuidedAttention(nn.Module):
    """One vector for a video seen from one of its clips: frames weighted by how well they go with that clip.

    Logits are plain dot products of mapped frames with the raw clip, without 1 / sqrt(D), as released.
    """

    def __init__(self, dim: int):
        super().__init__()
        self.key = nn.Linear(dim, dim, bias=False)
        self.value = nn.Linear(dim, dim, bias=False)

    def forward(
        self,
        frames: Float[Tensor, "N T D"],
        mask: Bool[Tensor, "N T"] | None,
        guides: Float[Tensor, "N G D"],
    ) -> Float[Tensor, "N G D"]:
        """For each sequence of frames, one vector per guide.

        Both maps are linear, so fewer guides than frames are mapped in the frames' stead: g . (K f) = (g K) . f.
        """
        if guides.shape[1] < frames.shape[1]:
            weights = _attention((guides @ self.key.weight) @ frames.transpose(1, 2), mask)
            return self.value(weights @ frames)
        weights = _attention(guides @ self.key(frames).transpose(1, 2), mask)
        return weights @ self.value(frames)

    def of_positives(
        self,
        frames: Float[Tensor, "V T D"],
        mask: Bool[Tensor, "V T"] | None,
        clips: Float[Tensor, "V P D"],
        key_clip: Int[Tensor, " Q"],
        video_index: Int[Tensor, " Q"],
    ) -> Float[Tensor, "Q D"]:
        """Each query's own video seen from the query's key clip; only the positive pairs are computed."""
        own_mask = None if mask is None else mask[video_index]
        return self(frames[video_index], own_mask, clips[video_index, key_clip][:, None])[:, 0]

    def of_all_pairs(
        self,
        frames: Float[Tensor, "V T D"],
        mask: Bool[Tensor, "V T"] | None,
        clips: Float[Tensor, "V P D"],
        key_clip: Int[Tensor, "Q V"],
    ) -> Float[Tensor, "V Q D"]:
        """Every video seen from each query's key clip in it.

        The vector depends on the clip alone, so with more queries than clips all clips are computed once instead.
        """
        if key_clip.shape[0] > clips.shape[1]:
            return _rows(self(frames, mask, clips), key_clip.T)
        return self(frames, mask, _rows(clips, key_clip.T))

    def score(
        self,
        query: Float[Tensor, "Q D"],
        frames: Float[Tensor, "V T D"],
        mask: Bool[Tensor, "V T"] | None,
        clips: Float[Tensor, "V P D"],
        key_clip: Int[Tensor, "Q V"],
    ) -> Score:
        """Cosine of each query with each video seen from the key clip of that pair; `best` is that clip."""
        if key_clip.shape[0] > clips.shape[1]:
            # The cosine with every clip's vector, then one look-up: no [V, Q, D] array.
            vectors = F.normalize(self(frames, mask, clips), dim=-1)
            every = torch.einsum("qd,vpd->qvp", F.normalize(query, dim=-1), vectors)
            return Score(every.gather(2, key_clip[..., None])[..., 0], key_clip)
        vectors = F.normalize(self.of_all_pairs(frames, mask, clips, key_clip), dim=-1)
        return Score(torch.einsum("qd,vqd->qv", F.normalize(query, dim=-1), vectors), key_clip)


def _attention(logits: Float[Tensor, "N G T"], mask: Bool[Tensor, "N T"] | None) -> Float[Tensor, "N G T"]:
    if mask is not None:
        logits = logits.masked_fill(~mask[:, None], MASKED_LOGIT)
    return logits.softmax(dim=-1)


def _rows(x: Float[Tensor, "V P D"], index: Int[Tensor, "V G"]) -> Float[Tensor, "V G D"]:
    return x.gather(1, index[..., None].expand(-1, -1, x.shape[-1]))
