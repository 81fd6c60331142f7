"""Networks that turn the frames of a clip into a vector. Each has its own frame rate, frame size and normalisation."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Float32, UInt8
from torch import Tensor
from torch.nn import functional

from untrimmed.encoders.features.i3d import I3D
from untrimmed.encoders.features.kinds import NetworkSpec
from untrimmed.encoders.features.resnet import ResNet
from untrimmed.encoders.features.slowfast import NUM_FRAMES, SlowFast
from untrimmed.encoders.features.weights import WeightFiles, read_state
from untrimmed.encoders.hub.encoder import TransformersEncoder
from untrimmed.encoders.hub.preprocessing import FramePipeline

SHORT_SIDE = 256  # frames are scaled to this shorter side in pixels before a network crops them
_RESNET_FPS = Fraction(3)  # the frame rate of the released TVR features
_I3D_FPS = Fraction(25)  # the frame rate of I3D's training (Carreira and Zisserman 2017)
_PICTURES_AT_ONCE = 32


class ClipNetwork(Protocol):
    """A network that makes one vector of width `dim` from the frames of a clip."""

    @property
    def dim(self) -> int:
        """The width of the network's vectors."""
        ...

    def rate(self, fps: Fraction) -> Fraction:
        """Return how many frames per second (at least `fps`) the network needs for `fps` vectors per second."""
        ...

    def prepare(self, frames: UInt8[np.ndarray, "T Y X 3"]) -> Tensor:
        """Convert frames to the input of the network, one row per frame."""
        ...

    def encode(self, clips: Sequence[Tensor]) -> Float32[np.ndarray, "N D"]:
        """Return one vector for each clip. A clip has at least one row."""
        ...


class PictureNetwork:
    """ResNet at three frames per second or more. The vector of a clip is the maximum over its frames."""

    def __init__(self, network: ResNet, device: torch.device, dtype: torch.dtype):
        self.dim = network.dim
        self._network = network.eval().to(device=device, dtype=dtype)
        self._device = device
        self._dtype = dtype
        self._pipeline = _pipeline(224, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))

    def rate(self, fps: Fraction) -> Fraction:
        """The number of frames per second that the network reads; see `ClipNetwork`."""
        return max(_RESNET_FPS, fps)

    def prepare(self, frames: UInt8[np.ndarray, "T Y X 3"]) -> Tensor:
        """Convert frames to the input of the network; see `ClipNetwork`."""
        return self._pipeline(frames)["pixel_values"]

    @torch.inference_mode()
    def encode(self, clips: Sequence[Tensor]) -> Float32[np.ndarray, "N D"]:
        """Return one vector for each clip; see `ClipNetwork`."""
        batches = torch.cat(list(clips)).split(_PICTURES_AT_ONCE)
        rows = torch.cat([self._network(batch.to(self._device, self._dtype)).float().cpu() for batch in batches])
        vectors = [part.amax(dim=0) for part in rows.split([len(clip) for clip in clips])]
        return torch.stack(vectors).numpy()


class MotionNetwork:
    """I3D or SlowFast. A clip has either a fixed frame rate or a fixed number of frames."""

    def __init__(
        self,
        network: I3D | SlowFast,
        pipeline: FramePipeline,
        device: torch.device,
        dtype: torch.dtype,
        *,
        frames_per_s: Fraction | None = None,
        frames_per_clip: int = 1,
    ):
        self.dim = network.dim
        self._network = network.eval().to(device=device, dtype=dtype)
        self._device = device
        self._dtype = dtype
        self._pipeline = pipeline
        self._frames_per_s = frames_per_s
        self._frames_per_clip = frames_per_clip

    def rate(self, fps: Fraction) -> Fraction:
        """The number of frames per second that the network reads; see `ClipNetwork`."""
        return self._frames_per_clip * fps if self._frames_per_s is None else max(self._frames_per_s, fps)

    def prepare(self, frames: UInt8[np.ndarray, "T Y X 3"]) -> Tensor:
        """Convert frames to the input of the network; see `ClipNetwork`."""
        return self._pipeline(frames)["pixel_values"]

    @torch.inference_mode()
    def encode(self, clips: Sequence[Tensor]) -> Float32[np.ndarray, "N D"]:
        """Return one vector for each clip.

        If the last clip of a video has too few frames, its last frame is repeated.
        """
        vectors = []
        for clip in clips:
            num_missing = max(0, self._frames_per_clip - len(clip))
            whole = torch.cat([clip, clip[-1:].expand(num_missing, *clip.shape[1:])])
            vectors.append(self._network(whole.to(self._device, self._dtype)).float().cpu())
        return torch.stack(vectors).numpy()


class ClipPictures:
    """CLIP. The vector of a clip is the vector of its first frame."""

    def __init__(self, encoder: TransformersEncoder):
        self.dim = encoder.frame_dim
        self._encoder = encoder

    def rate(self, fps: Fraction) -> Fraction:
        """The number of frames per second that the network reads; see `ClipNetwork`."""
        return fps

    def prepare(self, frames: UInt8[np.ndarray, "T Y X 3"]) -> Tensor:
        """Convert frames to the input of the network; see `ClipNetwork`."""
        return torch.from_numpy(np.array(frames))

    def encode(self, clips: Sequence[Tensor]) -> Float32[np.ndarray, "N D"]:
        """Return one vector for each clip; see `ClipNetwork`."""
        return np.concatenate([self._encoder.encode_frames(clip[:1].numpy()) for clip in clips])


def load_network(part: NetworkSpec, weights: WeightFiles, device: torch.device, dtype: torch.dtype) -> ClipNetwork:
    """Return a ResNet, I3D or SlowFast with these weights. `part` selects the kind.

    Raises:
        EncoderError: The weights cannot be read, or do not fit the network.
    """
    state = read_state(weights)
    if part.kind == "resnet152":
        return PictureNetwork(ResNet(state, name=weights.name), device, dtype)
    if part.kind == "i3d":
        pipeline = _pipeline(224, (0.5,) * 3, (0.5,) * 3)
        return MotionNetwork(I3D(state, name=weights.name), pipeline, device, dtype, frames_per_s=_I3D_FPS)
    pipeline = _pipeline(256, (0.45,) * 3, (0.225,) * 3)
    network = SlowFast(state, name=weights.name)
    return MotionNetwork(network, pipeline, device, dtype, frames_per_clip=NUM_FRAMES)


def unit(rows: Float32[np.ndarray, "N D"]) -> Float32[np.ndarray, "N D"]:
    """Scale rows to length 1. A zero row stays zero."""
    return functional.normalize(torch.from_numpy(rows), dim=-1).numpy()


def _pipeline(crop: int, mean: Sequence[float], deviation: Sequence[float]) -> FramePipeline:
    """Return a pipeline that resizes the shorter side to `SHORT_SIDE`, takes the central square, and normalises pixels.

    `mean` and `deviation` are for pixel values between 0 and 1.
    """
    mean_of, deviation_of = torch.tensor(mean), torch.tensor(deviation)
    return FramePipeline(SHORT_SIDE, "bilinear", (crop, crop), 1 / (255 * deviation_of), -mean_of / deviation_of)
