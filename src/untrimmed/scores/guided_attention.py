"""Pool frames by attention to the clip that matches the sentence best (MS-SL, and a branch of JSG)."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from untrimmed.scores.score import Score

MASKED_LOGIT = -1e9


class GuidedAttention(nn.Module):
    """Pools the frames of a video by attention. The attention query (the guide) is one of the video's clips.

    As in the authors' programs, a logit is the dot product of a mapped frame and the guide, which is not mapped. The
    logits are not divided by sqrt(D).
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
        """Return one pooled vector per guide, for each sequence of frames.

        If there are fewer guides than frames, the linear maps are applied to guides instead of frames, which is faster:
        g . (K f) = (g K) . f.
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
        """Return the pooled frames of each query's own video. The guide is the query's key clip in this video."""
        query_mask = None if mask is None else mask[video_index]
        return self(frames[video_index], query_mask, clips[video_index, key_clip][:, None])[:, 0]

    def of_all_pairs(
        self,
        frames: Float[Tensor, "V T D"],
        mask: Bool[Tensor, "V T"] | None,
        clips: Float[Tensor, "V P D"],
        key_clip: Int[Tensor, "Q V"],
    ) -> Float[Tensor, "V Q D"]:
        """Return the pooled frames of every video for every query. The guide is the query's key clip in the video.

        A pooled vector depends only on the video and the clip. If there are more queries than clips, one vector per
        clip is computed and reused.
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
        """Return the cosine of each query with the pooled frames of each video. `best` is the key clip of the pair."""
        if key_clip.shape[0] > clips.shape[1]:
            # compute the cosines for all clips, then select, which avoids an array [V, Q, D]
            vectors = F.normalize(self(frames, mask, clips), dim=-1)
            cosines = torch.einsum("qd,vpd->qvp", F.normalize(query, dim=-1), vectors)
            return Score(cosines.gather(2, key_clip[..., None])[..., 0], key_clip)
        vectors = F.normalize(self.of_all_pairs(frames, mask, clips, key_clip), dim=-1)
        return Score(torch.einsum("qd,vqd->qv", F.normalize(query, dim=-1), vectors), key_clip)


def _attention(logits: Float[Tensor, "N G T"], mask: Bool[Tensor, "N T"] | None) -> Float[Tensor, "N G T"]:
    if mask is not None:
        logits = logits.masked_fill(~mask[:, None], MASKED_LOGIT)
    return logits.softmax(dim=-1)


def _rows(x: Float[Tensor, "V P D"], index: Int[Tensor, "V G"]) -> Float[Tensor, "V G D"]:
    return x.gather(1, index[..., None].expand(-1, -1, x.shape[-1]))
