"""Run by tests of `torch.compile` in a new process without shape checks, which would be compiled too."""

from typing import Any

import torch

from tests.retrieval_world import SIZES
from untrimmed.batches import QueryBatch, VideoBatch
from untrimmed.models.base import RetrievalModel
from untrimmed.models.registry import create_model
from untrimmed.running.encoding import Encoding

CPU = torch.device("cpu")


def batch_of(num_videos: int, length: int, num_words: int) -> tuple[QueryBatch, VideoBatch]:
    """A batch of videos, and two more queries than videos. The first of each has no padding."""
    masks = []
    for count, longest in ((num_videos + 2, num_words), (num_videos, length)):
        lengths = torch.cat([torch.tensor([longest]), torch.randint(1, longest + 1, (count - 1,))])
        masks.append(torch.arange(longest) < lengths[:, None])
    words, frames = (
        torch.randn(*mask.shape, width) * mask[..., None] for mask, width in zip(masks, (6, 5), strict=True)
    )
    clips = torch.randn(num_videos, 32, 5)
    return QueryBatch(words=words, mask=masks[0]), VideoBatch(clips=clips, frames=frames, frame_mask=masks[1])


def outcome(model: RetrievalModel, encoding: Encoding, queries: QueryBatch, videos: VideoBatch) -> list[torch.Tensor]:
    """All encodings without padding, and the gradients of all parameters."""
    encoded = encoding(model.encode_queries, queries), encoding(model.encode_videos, videos)
    rows = [tensor for record in encoded for name, tensor in record.tensors().items() if tensor.is_floating_point()]
    rows = [tensor[videos.frame_mask] if tensor.shape[:2] == videos.frame_mask.shape else tensor for tensor in rows]
    gradients = torch.autograd.grad(sum(x.sin().sum() for x in rows), list(model.parameters()), allow_unused=True)
    return [*rows, *(gradient for gradient in gradients if gradient is not None)]


def compile_without_compiler(missing: str) -> None:
    """Encode with a compiler that cannot work, because g++ or Triton is missing."""
    from torch._inductor.exc import TritonMissing

    compile_ = torch.compile

    def fail(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        raise TritonMissing(None) if missing == "Triton" else RuntimeError("no g++\nin any folder")

    torch.compile = lambda encoder, **given: compile_(encoder, backend=fail, **given)
    Encoding(CPU, compiled=True)(create_model("ms_sl", **SIZES).encode_queries, batch_of(2, 3, 3)[0])


def compare(method: str) -> dict[str, Any]:
    """Compare compiled with plain encodings and gradients for several batch sizes, and count the compiled graphs."""
    graphs: list[torch.fx.GraphModule] = []
    compile_ = torch.compile

    def keep(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    torch.compile = lambda encoder, **given: compile_(encoder, backend=keep, fullgraph=True, **given)
    torch.manual_seed(0)
    model = create_model(method, **SIZES, init_std=0.3, dropout=0.0, input_dropout=0.0)
    plain, compiled = Encoding(CPU), Encoding(CPU, compiled=True)
    worst = 0.0
    for sizes in ((4, 9, 3), (5, 7, 4), (3, 8, 2)):
        queries, videos = batch_of(*sizes)
        for ours, theirs in zip(*(outcome(model, way, queries, videos) for way in (compiled, plain)), strict=True):
            # Gradients that are 0 but for rounding (of biases of keys) are compared to those that are not.
            worst = max(worst, float((ours - theirs).detach().abs().max() / theirs.detach().abs().max().clamp_min(0.1)))
    num_graphs = len(graphs)
    with torch.no_grad():
        compiled(model.encode_queries, queries)
    return {
        "worst": worst,
        "graphs": num_graphs,
        "without gradients": len(graphs) - num_graphs,
        "operations": {getattr(node.target, "__name__", "") for graph in graphs for node in graph.graph.nodes},
    }
