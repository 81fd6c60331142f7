"""Measure the costs of a method at its published sizes: parameters, FLOPs, query time and memory, on random features.

As in the papers of GMMFormer, GMMFormer v2 and RAL, FLOPs count only matrix products with learned weights. A
multiplication and an addition count as two FLOPs. Products of activations, as in attention, are counted separately. Our
code avoids some products of the released programs. These products are counted too, so that layers have their published
costs.
"""

import json
import math
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from untrimmed.batches import EncodedVideos, QueryBatch, VideoBatch
from untrimmed.files import write_whole
from untrimmed.models.base import ModelConfig, RetrievalModel
from untrimmed.models.registry import create_model
from untrimmed.nn.attention import TokenAttention
from untrimmed.presets import load_preset
from untrimmed.version import __version__

UNITS = {
    "params_m": "parameters (M)",
    "flops_g": "FLOPs (G)",
    "attention_g": "FLOPs of attention (G)",
    "runtime_ms": "ms a query",
    "memory_mb": "MB of the corpus",
    "matching_g": "GFLOPs of matching",
}
SIZED_QUANTITIES = ("runtime_ms", "memory_mb", "matching_g")  # quantities that depend on the size of the corpus
LEAST_S = 0.5  # repeat a timed query for at least this many seconds


@dataclass(frozen=True)
class Flops:
    """The FLOPs of matrix products with learned weights, and the FLOPs of products of activations."""

    weights: int
    activations: int


class _Counter(TorchDispatchMode):
    """Counts the FLOPs of matrix products.

    Products with a parameter, or with a view of a parameter, are counted separately.
    """

    def __init__(self, model: RetrievalModel):
        super().__init__()
        self._storages = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
        self.weights = self.activations = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        formula = flop_registry.get(func.overloadpacket)
        if formula is not None:
            flops = formula(*args, **kwargs, out_val=out)
            tensors = [value for value in args if isinstance(value, Tensor)]
            if any(tensor.untyped_storage().data_ptr() in self._storages for tensor in tensors):
                self.weights += flops
            else:
                self.activations += flops
        return out


def published_model(method: str, overrides: Mapping[str, Any] | None = None, preset: str = "tvr") -> RetrievalModel:
    """Return a model of the method, with random weights and the sizes of a preset."""
    return create_model(method, **load_preset(method, preset, overrides).settings).eval()


def parameters(model: RetrievalModel) -> int:
    """Return the number of learned parameters."""
    return sum(parameter.numel() for parameter in model.parameters())


@torch.no_grad()
def flops(model: RetrievalModel) -> Flops:
    """Return the FLOPs of encoding one video of `max_frames` frames and one query of `max_words` words."""
    saved = _SavedMaps(model)
    with _Counter(model) as counter:
        model.encode_videos(_videos(model.config))
        model.encode_queries(_queries(model.config))
    return Flops(counter.weights + saved.finish(), counter.activations)


class _SavedMaps:
    """Counts the FLOPs that our token attention saves, because it does not project its input to keys and values."""

    def __init__(self, model: nn.Module):
        self.flops = 0
        modules = [module for module in model.modules() if isinstance(module, TokenAttention)]
        self._hooks = [module.register_forward_hook(self._count) for module in modules]

    def _count(self, module: Any, args: Any, output: Tensor) -> None:
        inputs = args[1]
        # If several tokens attend to the same rows, the rows are expanded with stride 0 along the tokens. Such rows are
        # counted once.
        rows = math.prod(size for size, step in zip(inputs.shape[:-1], inputs.stride(), strict=False) if step)
        self.flops += 2 * rows * (module.key.weight.numel() + module.value.weight.numel())

    def finish(self) -> int:
        for hook in self._hooks:
            hook.remove()
        return self.flops


@torch.no_grad()
def stored_numbers(model: RetrievalModel) -> int:
    """Return how many values are stored per video of `max_frames` frames for scoring (vectors times width)."""
    encoded = model.encode_videos(_videos(model.config))
    # `unit_attention` is not counted, because it is used for moments but not for the score
    fields = {name: tensor for name, tensor in encoded.tensors().items() if not name.endswith("unit_attention")}
    return sum(tensor.numel() for tensor in fields.values() if tensor.is_floating_point())


def megabytes_per_video(model: RetrievalModel) -> float:
    """Return the size of an encoded video in float32, in 10^6 bytes."""
    return stored_numbers(model) * 4 / 1e6


def matching_gflops(model: RetrievalModel, num_videos: int) -> float:
    """Return the GFLOPs of comparing one query vector with every stored vector of a corpus."""
    return 2 * stored_numbers(model) * num_videos / 1e9


@torch.no_grad()
def query_ms(model: RetrievalModel, num_videos: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the median time in ms from a query's word features to its 100 best videos in an encoded corpus."""
    corpus = _corpus(model, num_videos)
    queries = _queries(model.config)
    times: list[float] = []
    while sum(times[1:]) < LEAST_S:
        start = clock()
        model.score(model.encode_queries(queries), corpus).fused.topk(min(100, num_videos))
        times.append(clock() - start)
    return 1e3 * statistics.median(times[1:])  # the first query is a warm-up


@dataclass(frozen=True)
class MethodCosts:
    """Costs of methods at their published sizes. Measured times are cached in the file `times`.

    Several tables show the same times. A page that is written again shows the cached times too, because new
    measurements would give different times.
    """

    times: Path

    def measure(
        self, method: str, quantities: Sequence[str], corpus_sizes: Sequence[int]
    ) -> dict[str, tuple[float, ...]]:
        """Return the requested quantities (keys of `UNITS`).

        A quantity that depends on the corpus has one number per corpus size. Other quantities have a single number.
        """
        torch.manual_seed(0)
        model = published_model(method)
        counted = flops(model)
        figures: dict[str, tuple[float, ...]] = {
            "params_m": (parameters(model) / 1e6,),
            "flops_g": (counted.weights / 1e9,),
            "attention_g": (counted.activations / 1e9,),
            "memory_mb": tuple(size * megabytes_per_video(model) for size in corpus_sizes),
            "matching_g": tuple(matching_gflops(model, size) for size in corpus_sizes),
        }
        if "runtime_ms" in quantities:
            figures["runtime_ms"] = tuple(self._query_ms(method, model, size) for size in corpus_sizes)
        return {name: figures[name] for name in quantities}

    def _query_ms(self, method: str, model: RetrievalModel, num_videos: int) -> float:
        times = json.loads(self.times.read_text(encoding="utf-8")) if self.times.is_file() else {}
        key = f"{method}, {num_videos} videos; {conditions()}"
        if key not in times:
            self.times.parent.mkdir(parents=True, exist_ok=True)
            times[key] = query_ms(model, num_videos)
            write_whole(self.times, json.dumps(times, indent=1))
        return float(times[key])


def conditions() -> str:
    """Return a text about what times depend on: the versions of programs, and the machine."""
    versions = f"untrimmed {__version__}, torch {torch.__version__}, Python {platform.python_version()}"
    return f"{versions}, {torch.get_num_threads()} threads on a machine with {os.cpu_count()} cores"


def _videos(config: ModelConfig) -> VideoBatch:
    return VideoBatch(
        frames=torch.randn(1, config.max_frames, config.video_dim),
        frame_mask=torch.ones(1, config.max_frames, dtype=torch.bool),
        clips=torch.randn(1, config.num_clips, config.video_dim),
    )


def _queries(config: ModelConfig) -> QueryBatch:
    mask = torch.ones(1, config.max_words, dtype=torch.bool)
    return QueryBatch(words=torch.randn(1, config.max_words, config.query_dim), mask=mask)


def _corpus(model: RetrievalModel, num_videos: int) -> EncodedVideos:
    """Return `num_videos` copies of one encoded video. The copies do not share memory."""
    encoded = model.encode_videos(_videos(model.config))
    copies = {name: tensor.repeat(num_videos, *[1] * (tensor.ndim - 1)) for name, tensor in encoded.tensors().items()}
    return encoded.with_tensors(copies)
