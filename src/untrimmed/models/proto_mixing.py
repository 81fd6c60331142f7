"""Join two videos of a batch into one, for the attention guidance of ProtoPRVR (section 3.4)."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from untrimmed.batches import VideoBatch


class Pairing(NamedTuple):
    """The two joined videos of each query, and whether the query's video is the first part of the joined video."""

    mixed: Int[Tensor, " N"]
    is_first: Bool[Tensor, " N"]


def pairing(video_index: Int[Tensor, " Q"], shift: int, num_videos: int) -> Pairing:
    """Return the joined videos of each query.

    Joined video i is video i followed by video (i + `shift`) modulo `num_videos`.

    >>> pairing(torch.tensor([0, 2]), 1, 3)
    Pairing(mixed=tensor([0, 2, 2, 1]), is_first=tensor([ True,  True, False, False]))
    """
    mixed = torch.cat([video_index, (video_index - shift) % num_videos])
    return Pairing(mixed, torch.arange(len(mixed), device=mixed.device) < len(video_index))


def first_part(length: int) -> int:
    """Return the number of rows of a joined sequence that belong to the first video."""
    return (length + 1) // 2


def joined_videos(videos: VideoBatch, shift: int, *, max_frames: int) -> VideoBatch:
    """Return joined videos. Joined video i is video i followed by video i + `shift`, both at double speed."""
    num_clips = videos.clips.shape[1]
    all_clips = torch.full((len(videos),), num_clips, device=videos.clips.device)
    clips = _joined(videos.clips, all_clips, shift, num_clips)
    frames = _joined(videos.frames, videos.frame_mask.sum(dim=1), shift, max_frames)
    return VideoBatch(clips=clips, frames=frames, frame_mask=frames.new_ones(frames.shape[:2], dtype=torch.bool))


def _joined(rows: Float[Tensor, "V T C"], lengths: Int[Tensor, " V"], shift: int, count: int) -> Float[Tensor, "V N C"]:
    first = first_part(count)
    second = played_faster(rows, lengths, count - first).roll(-shift, dims=0)
    return torch.cat([played_faster(rows, lengths, first), second], dim=1)


def played_faster(rows: Float[Tensor, "V T C"], lengths: Int[Tensor, " V"], count: int) -> Float[Tensor, "V N C"]:
    """Divide the real rows of each sequence into `count` equal segments, and return the normalised mean of each.

    If a sequence has fewer than `count` rows, some rows are used several times. As in `data.resampling.normalise`, a
    small constant is added to the norm.
    """
    share = torch.arange(count + 1, device=rows.device, dtype=torch.float64) / count
    bounds = (share * lengths[:, None]).round().long()
    start = torch.minimum(bounds[:, :-1], lengths[:, None] - 1)
    end = torch.maximum(bounds[:, 1:], start + 1)
    place = torch.arange(rows.shape[1], device=rows.device)
    inside = ((place >= start[..., None]) & (place < end[..., None])).to(rows)
    means = (inside / inside.sum(dim=-1, keepdim=True)) @ rows
    return means / (means.norm(dim=-1, keepdim=True) + 1e-5)
