"""JSG's gaze in training (section 3.4): proposals around a focus (a time in the video), and the rest of the video."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from untrimmed.moments.gaussian_proposals import Pooling, SideNegatives, pooling_weights, side_windows, time_grid
from untrimmed.scores.max_sim import max_sim
from untrimmed.scores.score import Score, required_best


@dataclass(frozen=True)
class Gaze:
    """The gaze of each query at its own video.

    - `proposals` are vectors that are pooled around the query's `focus`, one per width.
    - Column m of `cosine` and `dot` compares all queries with the proposals of query m. `cosine.best` is the index of
      the best width.
    - `left`, `right` and `whole` are each query's cosines with the part of the video before the best proposal, with the
      part after this proposal, and with the whole video.
    """

    focus: Float[Tensor, " Q"]
    widths: Float[Tensor, " M"]
    proposals: Float[Tensor, "Q M D"]
    cosine: Score
    dot: Float[Tensor, "Q Q"]
    left: Float[Tensor, " Q"]
    right: Float[Tensor, " Q"]
    whole: Float[Tensor, " Q"]


def look_closely(
    query: Float[Tensor, "Q D"],
    frames: Float[Tensor, "Q T D"],
    *,
    focus: Float[Tensor, " Q"],
    widths: Float[Tensor, " M"],
    pooling: Pooling,
    sides: SideNegatives,
) -> Gaze:
    """Return the comparison of every query with the proposals around the focus of every query.

    Row q of `frames` contains the frames of query q's own video.
    """
    grid = time_grid(frames.shape[1], pooling, frames.device)
    center, width = torch.broadcast_tensors(focus[:, None], widths)
    proposals = pooling_weights(center, width, grid, pooling=pooling).to(frames.dtype) @ frames
    cosine = max_sim(query, proposals)
    windows = side_windows(focus, widths[required_best(cosine).diagonal()], sides)
    weights = pooling_weights(windows.center, windows.width, grid, scale=windows.scale, pooling=pooling)
    left, right = (weights.to(frames.dtype) @ frames).unbind(dim=1)
    return Gaze(
        focus=focus,
        widths=widths,
        proposals=proposals,
        cosine=cosine,
        dot=max_sim(query, proposals, similarity="dot").value,
        left=_cosine(query, left),
        right=_cosine(query, right),
        whole=_cosine(query, frames.mean(dim=1)),
    )


def _cosine(query: Float[Tensor, "Q D"], video: Float[Tensor, "Q D"]) -> Float[Tensor, " Q"]:
    return (F.normalize(query, dim=-1) * F.normalize(video, dim=-1)).sum(dim=-1)
