"""Cases of sizes that nobody recorded, against the descriptions written down in NumPy (`written_down.py`)."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.parity.written_down import DreamPRVR, HLFormer, Holmes
from untrimmed.models.registry import create_model
from untrimmed.models.released import UNUSED, export_released
from untrimmed.parity.case import load_case
from untrimmed.parity.dreamprvr import DreamPRVRParity
from untrimmed.parity.hlformer import HLFormerParity
from untrimmed.parity.holmes import HolmesParity
from untrimmed.parity.registry import MethodParity, run_case

CASES = Path(__file__).parent / "cases"
PLAIN = {"hlformer": HLFormer, "dreamprvr": DreamPRVR, "holmes": Holmes}
PARITY: dict[str, type[MethodParity]] = {
    "hlformer": HLFormerParity,
    "dreamprvr": DreamPRVRParity,
    "holmes": HolmesParity,
}
SIZES = {"visual_dim": 10, "text_dim": 7, "max_ctx_l": 24, "max_desc_l": 6, "drop": 0.0, "input_drop": 0.0}
FORMS = [  # what differs from the recorded cases, frames of each video, captions of each
    ("hlformer", {"hidden_size": 12, "n_heads": 2, "lorentz_dim": 7, "attention_num": 6}, [24, 9, 2], [1, 3, 2]),
    ("hlformer", {"hidden_size": 8, "n_heads": 4, "lorentz_dim": 15, "attention_num": 2, "curv_init": 3}, [5], [2]),
    ("dreamprvr", {"hidden_size": 12, "n_heads": 2, "num_registers": 3, "timesteps": 4}, [20, 9, 1], [1, 3, 2]),
    (
        "dreamprvr",
        {"hidden_size": 8, "n_heads": 4, "num_registers": 1, "attention_num": 5, "num_diffusion_layers": 1},
        [24, 3],
        [2, 2],
    ),
    ("holmes", {"hidden_size": 12, "n_heads": 2, "smooth_beta": 0.4, "pot_scale": 0.2}, [24, 9, 2, 1], [1, 3, 2, 5]),
    ("holmes", {"hidden_size": 8, "n_heads": 4, "warmup_end": False}, [7, 3], [1, 4]),
]
NAMES = [f"{method}-{len(frames)}-videos" for method, _, frames, _ in FORMS]


def drawn_weights(method, config, rng):
    """Numbers far from where training begins, by released name, of the shapes that the sizes ask for."""
    sizes = {"dim": config["hidden_size"], "num_heads": config["n_heads"], "video_dim": config["visual_dim"]}
    sizes |= {"query_dim": config["text_dim"], "max_frames": config["max_ctx_l"], "max_words": config["max_desc_l"]}
    if method == "hlformer":
        widths = [2.0**k for k in range(config["attention_num"] // 2)]
        sizes |= {"lorentz_dim": config["lorentz_dim"], "gaussian_widths": widths, "lorentz_widths": widths}
    if method == "dreamprvr":
        sizes["gaussian_widths"] = [2.0**k for k in range(config["attention_num"])]
        sizes["registers"] = {
            "num_registers": config["num_registers"],
            "num_steps": config["timesteps"],
            "num_layers": config["num_diffusion_layers"],
        }
    model = create_model(method, **sizes)
    names = model.released_names()
    shapes = {name: tensor.shape for name, tensor in export_released(names, model.state_dict()).items()}
    shapes |= {name: (1, 1, sizes["dim"]) for name, slot in names.items() if slot is UNUSED and name == "weight_token"}
    return {name: drawn(name, shape, rng).astype(np.float32) for name, shape in shapes.items()}


def drawn(name, shape, rng):
    if name.endswith("lorentz_multiattention.scale"):
        return rng.uniform(2, 4, shape)
    if not shape:  # scales in Lorentz space, curvature
        return rng.uniform(-1, -0.1, shape)
    is_gain = name.endswith("weight") and len(shape) == 1
    return rng.standard_normal(shape) / np.sqrt(shape[-1]) * (0.2 if is_gain else 1.0) + is_gain


def drawn_batch(config, frames, captions, rng):
    num_queries, words = sum(captions), rng.integers(1, config["max_desc_l"] + 1, sum(captions))
    text_mask = (np.arange(words.max()) < words[:, None]).astype(np.float32)
    mask = (np.arange(max(frames)) < np.array(frames)[:, None]).astype(np.float32)
    normal = lambda *shape: rng.standard_normal(shape).astype(np.float32)  # noqa: E731
    batch = {
        "clip_video_features": normal(len(frames), config["map_size"], config["visual_dim"]),
        "frame_video_features": normal(len(frames), max(frames), config["visual_dim"]) * mask[..., None],
        "videos_mask": mask,
        "text_feat": normal(num_queries, words.max(), config["text_dim"]) * text_mask[..., None],
        "text_mask": text_mask,
        "text_labels": np.repeat(np.arange(len(frames)), captions),
    }
    if "num_registers" in config:
        for of in ("alpha", "beta"):
            batch[f"noise_{of}"] = normal(len(frames), config["num_registers"], config["hidden_size"])
    return batch


def made_case(folder, method, changed, frames, captions, kind):
    """A folder as `python -m untrimmed.parity` takes it, with what NumPy makes of it; the network in NumPy."""
    rng = np.random.default_rng(len(frames))
    config = json.loads((CASES / method / "loss" / "config.json").read_text()) | SIZES | changed | {"case": kind}
    config["loss_factor"] = [0.3, 0.7, 0.01, 0.5, 0.25, 2.0][: len(config["loss_factor"])]  # every term counts
    weights, batch = drawn_weights(method, config, rng), drawn_batch(config, frames, captions, rng)
    plain = PLAIN[method](weights, config, batch)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    np.savez(folder / "weights.npz", **weights)
    np.savez(folder / "batch.npz", **batch)
    made = plain.expected() if kind == "forward-masked" else plain.expected() | plain.losses()
    np.savez(folder / "expected.npz", **{name: np.asarray(array, np.float32) for name, array in made.items()})
    return folder, plain


@pytest.mark.parametrize("form", FORMS, ids=NAMES)
def test_a_network_gives_what_its_description_gives_on_other_sizes(form, tmp_path):
    folder, _ = made_case(tmp_path / form[0] / "case", *form, "forward-masked")
    results = run_case(folder)
    assert len(results) >= 8
    assert [str(result) for result in results if not result.passed] == []


@pytest.mark.parametrize("form", [form for form in FORMS if len(form[2]) > 1], ids=lambda form: form[0])
def test_losses_and_their_gradients_are_those_of_the_description(form, tmp_path):
    """All gradients at once, along a direction, by which the total of the description changes."""
    folder, plain = made_case(tmp_path / form[0] / "case", *form, "loss")
    results = run_case(folder)
    assert [str(result) for result in results if not result.passed] == []

    made = PARITY[form[0]]().produce(replace(load_case(folder), precision=torch.float64))
    gradients = {name.removeprefix("grads/"): array for name, array in made.items() if name.startswith("grads/")}
    rng = np.random.default_rng(0)
    way = {name: rng.standard_normal(array.shape) for name, array in gradients.items()}
    along = sum((gradients[name] * way[name]).sum() for name in way)
    totals = []
    for step in (1e-7, -1e-7):
        moved = {name: array + step * way.get(name, 0.0) for name, array in plain.weights.items()}
        elsewhere = type(plain)(moved, plain.config, plain.batch | {"text_labels": plain.index}, plain.kept)
        totals.append(elsewhere.losses()["total"])
    assert along == pytest.approx((totals[0] - totals[1]) / 2e-7, rel=1e-6)
