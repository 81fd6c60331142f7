"""Prepare batches of frames for a model. A `transformers` image processor would prepare them one by one.

The processor's settings (resize, centre crop, scale, mean and deviation) are read once. Torch has Pillow's resize
filters, but rounds differently: in a reduced landscape frame, 1 value in 100 differs by 1 grey level of 255, rarely by
2; in portrait frames of noise, 1 value in 4 differs by 1.

Some processors do more (SigLIP 2's NaFlex patches, padding, a filter that torch lacks). A probe image detects such
processors, and they are called directly.
"""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor
from torch.nn import functional

# Pillow's filter numbers and torch's names for the same filters
_MODES = {2: "bilinear", 3: "bicubic"}
# largest difference on the probe image, in grey levels; rounding causes 2, a wrong step causes tens
_PROBE_LEVELS = 2.5


@dataclass(frozen=True)
class FramePipeline:
    """Resizes, crops and normalises frames with the settings of an image processor.

    `resize` is (height, width) or the shorter side in pixels; None does not resize. A pixel value p in [0, 255] becomes
    p * `scale` + `shift`.
    """

    resize: tuple[int, int] | int | None
    mode: str
    crop: tuple[int, int] | None
    scale: Float[Tensor, " 3"]
    shift: Float[Tensor, " 3"]

    def __call__(self, frames: UInt8[np.ndarray, "T Y X 3"]) -> dict[str, Tensor]:
        """Return the model's input `pixel_values` [T, 3, height, width] (float32, on the CPU)."""
        # copied, because the caller's array may be read-only
        pixels = torch.from_numpy(np.array(frames)).permute(0, 3, 1, 2)
        size = self._resized(pixels.shape[2], pixels.shape[3])
        if size != tuple(pixels.shape[2:]):
            pixels = functional.interpolate(pixels, size=size, mode=self.mode, antialias=True, align_corners=False)
        if self.crop is not None:
            top, left = (pixels.shape[2] - self.crop[0]) // 2, (pixels.shape[3] - self.crop[1]) // 2
            pixels = pixels[:, :, top : top + self.crop[0], left : left + self.crop[1]]
        values = pixels.to(torch.float32) * self.scale[:, None, None] + self.shift[:, None, None]
        return {"pixel_values": values.contiguous()}

    def _resized(self, height: int, width: int) -> tuple[int, int]:
        """Return the size after resizing. The longer side is rounded down, as in the processors."""
        if self.resize is None:
            return height, width
        if isinstance(self.resize, tuple):
            return self.resize
        short = self.resize
        if width <= height:
            return int(short * height / width), short
        return short, int(short * width / height)


@dataclass(frozen=True)
class ProcessorPipeline:
    """Calls the image processor itself, for processors that do more than resize, crop and normalise."""

    processor: Callable[..., Mapping[str, Any]]
    inputs: frozenset[str]

    def __call__(self, frames: UInt8[np.ndarray, "T Y X 3"]) -> dict[str, Tensor]:
        """Return the processor's output, without tensors that the model does not accept."""
        batch = self.processor(images=list(frames), return_tensors="pt", input_data_format="channels_last")
        return {name: value for name, value in batch.items() if name in self.inputs}


def create_pipeline(processor: Any, image_inputs: Callable[..., Any], *, side: int) -> tuple[Any, int]:
    """Return a pipeline for a processor, and the shorter side, in pixels, that frames need.

    A `FramePipeline` is returned if its output for a probe image agrees with the processor's, otherwise a
    `ProcessorPipeline`.

    Args:
        image_inputs: The model's `get_image_features`. Outputs of the processor that it does not accept are dropped.
        side: The model's image size in pixels, used if the processor has no size.
    """
    reference = ProcessorPipeline(processor, frozenset(inspect.signature(image_inputs).parameters))
    short_side = _short_side(processor, side)
    pipeline = _read_settings(processor)
    if pipeline is not None and _agree(pipeline, reference, short_side):
        return pipeline, short_side
    return reference, short_side


def _read_settings(processor: Any) -> FramePipeline | None:
    """Return a `FramePipeline` with a processor's settings, or None if it does not support them."""
    resize: tuple[int, int] | int | None = None
    mode = _MODES.get(getattr(processor, "resample", -1), "")
    if getattr(processor, "do_resize", False):
        size = _size(processor, "size")
        if set(size) == {"height", "width"}:
            resize = (size["height"], size["width"])
        elif set(size) == {"shortest_edge"}:
            resize = size["shortest_edge"]
        else:
            return None
    crop = None
    if getattr(processor, "do_center_crop", False):
        crop_size = _size(processor, "crop_size")
        crop = (crop_size.get("height", 0), crop_size.get("width", 0))
        smallest = resize if isinstance(resize, tuple) else (resize or 0, resize or 0)
        if min(crop) < 1 or crop[0] > smallest[0] or crop[1] > smallest[1]:
            return None  # the processor would pad the picture, which the pipeline does not support
    if resize is not None and not mode:
        return None
    factor = float(getattr(processor, "rescale_factor", 1.0)) if getattr(processor, "do_rescale", False) else 1.0
    mean, deviation = torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
    if getattr(processor, "do_normalize", False):
        mean = torch.tensor(processor.image_mean, dtype=torch.float64).expand(3)
        deviation = torch.tensor(processor.image_std, dtype=torch.float64).expand(3)
    return FramePipeline(resize, mode, crop, (factor / deviation).float(), (-mean / deviation).float())


def _size(processor: Any, name: str) -> dict[str, int]:
    """Return a processor's size setting without empty keys. From transformers 5 on, the setting is an object."""
    size = getattr(processor, name, None) or {}
    return {key: int(value) for key, value in dict(size).items() if value is not None}


def _short_side(processor: Any, side: int) -> int:
    """Return the largest useful shorter side, in pixels. The processor would discard the detail of larger frames."""
    if getattr(processor, "do_resize", False) and (size := _size(processor, "size")):
        return max(size.get("shortest_edge", 0), size.get("height", 0), size.get("width", 0)) or side
    patches = getattr(processor, "max_num_patches", None)
    patch = getattr(processor, "patch_size", None)
    if isinstance(patches, int) and isinstance(patch, int):
        return math.isqrt(patches) * patch  # NaFlex models divide a frame of any shape into at most this many patches
    return max(_size(processor, "crop_size").values(), default=side)


def _agree(pipeline: FramePipeline, processor: ProcessorPipeline, short_side: int) -> bool:
    """Whether pipeline and processor give the same `pixel_values`, up to rounding, for a wide image of noise."""
    probe = np.random.default_rng(0).integers(0, 256, (1, short_side + 30, 2 * short_side + 7, 3), dtype=np.uint8)
    ours, theirs = pipeline(probe), processor(probe)
    if set(theirs) != {"pixel_values"} or theirs["pixel_values"].shape != ours["pixel_values"].shape:
        return False
    difference = (ours["pixel_values"] - theirs["pixel_values"]).abs() / pipeline.scale[:, None, None]
    return bool(difference.max() <= _PROBE_LEVELS)
