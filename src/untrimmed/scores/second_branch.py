"""The branch beside the clips: a video by its best frame (GMMFormer v2) or by one pooled vector (GMMFormer)."""

from typing import Literal

from jaxtyping import Float
from torch import Tensor

from untrimmed.batches import EncodedVideos, required
from untrimmed.scores.max_sim import Padding, Similarity, max_sim, vector_sim, zero_floor
from untrimmed.scores.score import Score

SecondBranch = Literal["frame", "video"]


def second_branch_sim(
    query: Float[Tensor, "Q D"],
    videos: EncodedVideos,
    *,
    max_frames: int,
    padding: Padding,
    similarity: Similarity = "cosine",
) -> Score:
    """The score by the one vector if the videos have one, else by the best frame.

    `padding` says whether a video with fewer than `max_frames` frames scores at least 0 (see `max_sim`).
    """
    if videos.video is not None:
        return vector_sim(query, videos.video, similarity=similarity)
    frames, mask = required(videos, "frames"), required(videos, "frame_mask")
    floor = zero_floor(mask, max_frames, padding)
    return max_sim(query, frames, mask, similarity=similarity, zero_floor=floor)
