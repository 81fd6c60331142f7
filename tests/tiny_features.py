"""Narrow networks of the benchmarks' features with random weights, under the names of their published state dicts."""

from pathlib import Path

import torch

from tests.tiny_models import TEXT, save_bpe_tokenizer

RESNET_DIM = 8
I3D_DIM = 12
SLOWFAST_DIM = 8 + 4
WORD_DIM = TEXT["hidden_size"]
MIXED = ("3b", "3c", "4b", "4c", "4d", "4e", "4f", "5b", "5c")


class _Weights:
    """Random maps and norms by name."""

    def __init__(self, seed):
        self.state = {}
        self._random = torch.Generator().manual_seed(seed)

    def add_map(self, key, *shape):
        fan_in = torch.tensor(shape[1:]).prod()
        self.state[f"{key}.weight"] = torch.randn(shape, generator=self._random) * (2 / fan_in) ** 0.5

    def add_norm(self, key, width):
        for name, low in (("weight", 0.5), ("bias", 0.0), ("running_mean", 0.0), ("running_var", 0.5)):
            self.state[f"{key}.{name}"] = low + torch.rand(width, generator=self._random)
        self.state[f"{key}.num_batches_tracked"] = torch.tensor(0)

    def add_unit(self, key, rows, columns, *size):
        self.add_map(f"{key}.conv3d", rows, columns, *size)
        self.add_norm(f"{key}.bn", rows)


def resnet_state(seed=0, blocks=(3, 8, 36, 3)):
    weights = _Weights(seed)
    weights.add_map("conv1", 4, 3, 7, 7)
    weights.add_norm("bn1", 4)
    width = 4
    for stage, count in enumerate(blocks, start=1):
        for block in range(count):
            key = f"layer{stage}.{block}"
            shapes = [(2, width, 1, 1), (2, 2, 3, 3), (RESNET_DIM, 2, 1, 1)]
            for number, shape in enumerate(shapes, start=1):
                weights.add_map(f"{key}.conv{number}", *shape)
                weights.add_norm(f"{key}.bn{number}", shape[0])
            if block == 0:
                weights.add_map(f"{key}.downsample.0", RESNET_DIM, width, 1, 1)
                weights.add_norm(f"{key}.downsample.1", RESNET_DIM)
            width = RESNET_DIM
    weights.state |= {"fc.weight": torch.zeros(5, RESNET_DIM), "fc.bias": torch.zeros(5)}
    return weights.state


def i3d_state(seed=1, colours=3):
    weights = _Weights(seed)
    weights.add_unit("Conv3d_1a_7x7", 2, colours, 7, 7, 7)
    weights.add_unit("Conv3d_2b_1x1", 2, 2, 1, 1, 1)
    weights.add_unit("Conv3d_2c_3x3", 4, 2, 3, 3, 3)
    width = 4
    for block in MIXED:
        key = f"Mixed_{block}"
        weights.add_unit(f"{key}.b0", 3, width, 1, 1, 1)
        for branch in ("b1", "b2"):
            weights.add_unit(f"{key}.{branch}a", 2, width, 1, 1, 1)
            weights.add_unit(f"{key}.{branch}b", 3, 2, 3, 3, 3)
        weights.add_unit(f"{key}.b3b", 3, width, 1, 1, 1)
        width = I3D_DIM
    return weights.state | {
        "logits.conv3d.weight": torch.zeros(5, I3D_DIM, 1, 1, 1),
        "logits.conv3d.bias": torch.zeros(5),
    }


def slowfast_state(seed=2, blocks=(3, 4, 6, 3)):
    """SlowFast with PyTorchVideo's names: a slow path of width 8 and a fast one of width 4."""
    weights = _Weights(seed)
    slow_width, fast_width, fused = 4, 2, 4
    for path, (width, time) in enumerate(((slow_width, 1), (fast_width, 5))):
        weights.add_map(f"blocks.0.multipathway_blocks.{path}.conv", width, 3, time, 7, 7)
        weights.add_norm(f"blocks.0.multipathway_blocks.{path}.norm", width)
    for stage, count in enumerate(blocks):
        weights.add_map(f"blocks.{stage}.multipathway_fusion.conv_fast_to_slow", fused, fast_width, 7, 1, 1)
        weights.add_norm(f"blocks.{stage}.multipathway_fusion.norm", fused)
        inputs = slow_width + fused, fast_width
        slow_width, fast_width = 8, 4
        for path, width in enumerate((slow_width, fast_width)):
            time = 3 if path == 1 or stage > 1 else 1
            for block in range(count):
                key = f"blocks.{stage + 1}.multipathway_blocks.{path}.res_blocks.{block}"
                columns = inputs[path] if block == 0 else width
                shapes = {"a": (2, columns, time, 1, 1), "b": (2, 2, 1, 3, 3), "c": (width, 2, 1, 1, 1)}
                for letter, shape in shapes.items():
                    weights.add_map(f"{key}.branch2.conv_{letter}", *shape)
                    weights.add_norm(f"{key}.branch2.norm_{letter}", shape[0])
                if block == 0:
                    weights.add_map(f"{key}.branch1_conv", width, columns, 1, 1, 1)
                    weights.add_norm(f"{key}.branch1_norm", width)
    classifier = {"blocks.6.proj.weight": torch.zeros(5, SLOWFAST_DIM), "blocks.6.proj.bias": torch.zeros(5)}
    return weights.state | classifier


def save_networks(folder: Path) -> dict[str, Path]:
    """One file per network, in the formats in which they are published."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    paths = {
        "resnet152": folder / "resnet.safetensors",
        "i3d": folder / "i3d.pt",
        "slowfast": folder / "slow+fast.pyth",
    }
    save_file(resnet_state(), paths["resnet152"])
    torch.save(i3d_state(), paths["i3d"])
    torch.save({"model_state": slowfast_state()}, paths["slowfast"])
    return paths


def save_roberta(folder: Path, *, seed: int = 0) -> Path:
    """RoBERTa without a pooler, like the language models on the hub."""
    from transformers import RobertaConfig, RobertaForMaskedLM

    size = save_bpe_tokenizer(folder, "PreTrainedTokenizerFast", length=100, lower_case=False)
    torch.manual_seed(seed)
    config = RobertaConfig(vocab_size=size, max_position_embeddings=16, pad_token_id=0, **TEXT)
    RobertaForMaskedLM(config).eval().save_pretrained(folder, safe_serialization=True)
    return folder
