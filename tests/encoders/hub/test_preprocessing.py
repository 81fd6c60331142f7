import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.tiny_models import CLIP_MEAN, CLIP_STD
from untrimmed.encoders.hub.preprocessing import FramePipeline, ProcessorPipeline, create_pipeline

CLIP = {
    "image_processor_type": "CLIPImageProcessor",
    "size": {"shortest_edge": 48},
    "crop_size": {"height": 40, "width": 44},
    "resample": 3,
    "image_mean": CLIP_MEAN,
    "image_std": CLIP_STD,
}
SIGLIP = {"image_processor_type": "SiglipImageProcessor", "size": {"height": 48, "width": 56}, "resample": 3}
PLAIN = {"SigLIP": SIGLIP, "SigLIP 2": {**SIGLIP, "resample": 2}, "CLIP": CLIP}
PLAIN["no resize"] = {**SIGLIP, "do_resize": False}
PLAIN["no normalisation"] = {**SIGLIP, "do_normalize": False}
PLAIN["one mean"] = {**SIGLIP, "image_mean": [0.1, 0.2, 0.3], "image_std": [0.3, 0.4, 0.5], "rescale_factor": 1 / 127}


def load_processor(folder: Path, settings: dict[str, Any]) -> Any:
    from transformers import AutoImageProcessor

    (folder / "preprocessor_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return AutoImageProcessor.from_pretrained(folder)


def image_inputs(pixel_values: Any, pixel_attention_mask: Any = None, spatial_shapes: Any = None) -> None:
    """A function with the signature of a model's function for images."""


def random_frames(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).integers(0, 256, shape, dtype=np.uint8)


def smooth_frames(count: int, height: int, width: int) -> np.ndarray:
    """Smooth frames like photographs.

    For portrait frames, Pillow makes its passes in another order, which is visible only on noise.
    """
    rows, columns = np.linspace(0, 3, height)[:, None], np.linspace(0, 5, width)[None, :]
    waves = [np.sin(rows * (1 + index) + columns + channel) for index in range(count) for channel in range(3)]
    return (np.stack(waves).reshape(count, 3, height, width).transpose(0, 2, 3, 1) * 100 + 127).astype(np.uint8)


@pytest.mark.parametrize("size", [(48, 84), (48, 48), (97, 131), (30, 50), (84, 48), (131, 97)])
@pytest.mark.parametrize("kind", PLAIN)
def test_a_stack_equals_the_processor_image_by_image(tmp_path, kind, size):
    processor = load_processor(tmp_path, PLAIN[kind])
    pipeline, _ = create_pipeline(processor, image_inputs, side=32)
    assert isinstance(pipeline, FramePipeline)
    portrait = size[0] > size[1]
    frames = smooth_frames(3, *size) if portrait else random_frames(3, *size, 3)
    ours = pipeline(frames)["pixel_values"]
    for frame, mine in zip(frames, ours, strict=True):
        theirs = processor(images=frame, return_tensors="pt", input_data_format="channels_last")["pixel_values"][0]
        levels = ((mine - theirs).abs() / pipeline.scale[:, None, None]).numpy()
        assert levels.max() < 2.5  # two passes of resizing, which may each round a pixel differently
        # measured 0.000 to 0.061, portrait 0.111; half a pixel of shift costs 40 on noise, 2 on the slopes
        assert levels.mean() < (0.15 if portrait else 0.1)


def test_normalising_is_exact_where_nothing_is_resized(tmp_path):
    pipeline, _ = create_pipeline(load_processor(tmp_path, {**CLIP, "do_center_crop": False}), image_inputs, side=32)
    frames = random_frames(2, 48, 60, 3)
    expected = (frames.transpose(0, 3, 1, 2) / 255 - np.array(CLIP_MEAN)[:, None, None]) / np.array(CLIP_STD)[
        :, None, None
    ]
    np.testing.assert_allclose(pipeline(frames)["pixel_values"].numpy(), expected, atol=1e-6)


def test_the_decoder_scales_to_the_side_that_the_processor_needs(tmp_path):
    sides = {kind: create_pipeline(load_processor(tmp_path, PLAIN[kind]), image_inputs, side=32)[1] for kind in PLAIN}
    assert sides["CLIP"] == 48
    assert sides["SigLIP"] == 56
    assert sides["no resize"] == 32


@pytest.mark.parametrize(
    "settings",
    [
        {"image_processor_type": "Siglip2ImageProcessor", "patch_size": 8, "max_num_patches": 36},
        {**SIGLIP, "image_processor_type": "EfficientNetImageProcessor", "rescale_offset": True},
        {**CLIP, "crop_size": {"height": 64, "width": 64}},
        {**SIGLIP, "resample": 1},
        {**SIGLIP, "resample": 0},
    ],
    ids=["patches", "offset", "padding crop", "lanczos", "nearest"],
)
def test_a_processor_with_other_steps_is_called_itself(tmp_path, settings):
    processor = load_processor(tmp_path, settings)
    pipeline, short_side = create_pipeline(processor, image_inputs, side=32)
    assert isinstance(pipeline, ProcessorPipeline)
    frames = random_frames(3, short_side, 2 * short_side, 3)
    expected = processor(images=list(frames), return_tensors="pt", input_data_format="channels_last")
    for name, value in pipeline(frames).items():
        torch.testing.assert_close(value, expected[name], rtol=0, atol=0)


def test_native_shapes_need_the_side_of_a_square_with_as_many_patches(tmp_path):
    settings = {"image_processor_type": "Siglip2ImageProcessor", "patch_size": 8, "max_num_patches": 36}
    assert create_pipeline(load_processor(tmp_path, settings), image_inputs, side=32)[1] == 48


def test_the_vectorised_pipeline_is_not_used_if_the_probe_disagrees(tmp_path, monkeypatch):
    processor = load_processor(tmp_path, SIGLIP)
    processor.image_mean = [0.4, 0.4, 0.4]  # the settings now differ from what the frozen call below does
    honest = type(processor).__call__
    monkeypatch.setattr(
        type(processor), "__call__", lambda self, **inputs: honest(self, **inputs, image_mean=[0.5] * 3)
    )
    assert isinstance(create_pipeline(processor, image_inputs, side=32)[0], ProcessorPipeline)


def test_read_only_frames_are_accepted_and_unchanged(tmp_path):
    pipeline, _ = create_pipeline(load_processor(tmp_path, SIGLIP), image_inputs, side=32)
    frames = random_frames(1, 48, 56, 3)
    original = frames.copy()
    frames.flags.writeable = False
    pipeline(frames)
    np.testing.assert_array_equal(frames, original)
