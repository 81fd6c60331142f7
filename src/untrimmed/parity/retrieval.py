"""Compute the arrays of golden cases that run a network: forward pass, losses, updates, dropout, evaluation."""

import re
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from untrimmed.batches import EncodedQueries, EncodedVideos, TrainingBatch
from untrimmed.errors import FeatureError
from untrimmed.losses.draws import Draws
from untrimmed.losses.nce import nce_of_queries, nce_of_videos
from untrimmed.losses.total import total_loss
from untrimmed.losses.triplet import (
    negative_queries,
    negative_videos,
    num_foreign_queries,
    triplet_of_queries,
    triplet_of_videos,
)
from untrimmed.models.base import RetrievalModel
from untrimmed.models.registry import create_model
from untrimmed.models.released import UNUSED, as_tensors, export_released, import_released
from untrimmed.parity.case import Arrays, Case
from untrimmed.parity.compare import RAW_SCORES, RULES, Rules, Tolerance
from untrimmed.parity.data_cases import DATA_CASES, metric_values, toy_dataset
from untrimmed.parity.draws import RecordedDraws
from untrimmed.parity.registry import MethodParity
from untrimmed.presets.settings import TrainSettings
from untrimmed.running.batches import query_batches
from untrimmed.running.opened import OpenedModel
from untrimmed.training.optim import BertAdam, parameter_groups, tensor_norms, warmup_linear

M = TypeVar("M", bound=RetrievalModel)
# if a gradient is smaller than this in double precision, its true value is 0
NULL_GRADIENT = 1e-12
SIZES = {
    "video_dim": "visual_dim",
    "query_dim": "text_dim",
    "num_heads": "n_heads",
    "max_frames": "max_ctx_l",
    "max_words": "max_desc_l",
    "input_dropout": "input_drop",
    "dropout": "drop",
    "margin": "margin",
}
WITH_CLIPS = SIZES | {"dim": "hidden_size", "num_clips": "map_size"}


@dataclass(frozen=True)
class Tap:
    """A module whose output is compared: its released name and our name. `pick` selects the part to compare."""

    theirs: str
    ours: str
    pick: Callable[[Tensor], Tensor] = lambda output: output


class Scaling(nn.Module):
    """Replaces a dropout layer and multiplies by a constant.

    The comparison then fails if a dropout layer is at another position than in the released program.
    """

    def __init__(self, factor: float):
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        """Return the input multiplied by the constant."""
        return x * self.factor


class RetrievalParity(MethodParity, Generic[M]):
    """Computes the arrays of cases that run a trainable method's network.

    Each method has a subclass that translates the released program's settings and array names.
    """

    model_name: ClassVar[str]
    shared_settings: ClassVar[Mapping[str, str]] = WITH_CLIPS | {  # {our name of a setting: its released name}
        "clip_weight": "clip_scale_w",
        "frame_weight": "frame_scale_w",
    }
    probe_sign: ClassVar[int] = -1  # a dropout layer of probability p is replaced by the factor 1 + probe_sign * p
    recorded_ranks: ClassVar[dict[str, str]] = {
        f"{side} {branch}": f"rank_neg_{name}_{branch}"
        for branch in ("clip", "frame")
        for side, name in (("candidate", "video_for_query"), ("foreign", "query_for_video"))
    }

    def produce(self, case: Case) -> Arrays:
        """Return our arrays by `file/array`; raises FeatureError for an unknown kind of case."""
        case = self.common(case)
        networks = {
            "forward": self._network,
            "loss": self._network,
            "dropout-probe": self._network,
            "optim": self._optim,
            "eval-pipeline": self._evaluation,
        }
        kinds: dict[str, Callable[[Case], Mapping[str, Any]]] = {**networks, **DATA_CASES, **self.own_kinds()}
        matches = [kind for kind in kinds if case.kind == kind or case.kind.startswith(f"{kind}-")]
        if not matches:
            raise FeatureError(f"{case.folder}: unknown kind {case.kind!r}; known: {', '.join(sorted(kinds))}")
        make = kinds[max(matches, key=len)]
        return dict(make(case)) if make in networks.values() else expected(make(case))

    def common(self, case: Case) -> Case:
        """Return the case with a kind that other methods also have. A subclass removes the prefix of its own kinds."""
        return case

    def own_kinds(self) -> dict[str, Callable[[Case], Mapping[str, Any]]]:
        """Return {kind: function} for the kinds of cases that only this method has."""
        return {}

    def rules(self, case: Case) -> Rules:
        """Return the tolerances. After eight optimizer steps, the tolerances of scores are larger.

        The optimizer divides a gradient by the square root of its mean square. If the true gradient of a tensor is zero
        (the golden data list these tensors), the computed gradient is a rounding error. The division scales this error
        up to normal size, so that each update may change the tensor by up to the learning rate. The tolerance of the
        final weights is therefore the sum of the learning rates.
        """
        rates = sum_of_rates(case)
        noise = [
            (f"{file}/{re.escape(name)}", Tolerance(limit))
            for name in case.config.get("null_gradient_tensors", [])
            for file, limit in (("weights_final", rates), ("grads", 1e-5))
        ]
        after_updates = [
            (r"expected/(clip|frame|fused|train_frame)_scores", Tolerance(5e-6)),
            (RAW_SCORES, Tolerance(5e-5, roundings=20)),
        ]
        return [*noise, *(after_updates if is_updated(case) else []), *RULES]

    def exact(self, case: Case) -> Arrays:
        """Return our arrays in double precision. The result is empty if the case runs no network."""
        return self.produce(replace(case, precision=torch.float64)) if case.has_network else {}

    def widest(self, case: Case) -> float:
        """Return the largest factor by which rounding may raise a tolerance: 2, or 10 after optimizer updates.

        BertAdam divides a gradient by its root mean square plus 1e-6. If both are near 1e-6, a rounding error of 1e-8
        in the gradient changes the weight by up to a hundredth of the learning rate. After eight updates these changes
        are visible in scores and encodings.
        """
        return 10.0 if is_updated(case) else 2.0

    @abstractmethod
    def settings(self, case: Case) -> dict[str, Any]:
        """Return the settings of our model that are not in `shared_settings`."""

    @abstractmethod
    def loss_weights(self, case: Case) -> dict[str, float]:
        """Return the weight that each loss term has in the total of the released program."""

    def taps(self, model: M) -> list[Tap]:
        """List the modules whose outputs are compared. The list is empty if cases record no intermediate results."""
        return []

    @abstractmethod
    def encodings(self, model: M, queries: EncodedQueries, videos: EncodedVideos) -> dict[str, Tensor]:
        """Return the encodings of queries and videos by their recorded names."""

    @abstractmethod
    def scores(
        self, model: M, queries: EncodedQueries, videos: EncodedVideos, batch: TrainingBatch
    ) -> dict[str, Tensor]:
        """Return arrays of scores by recorded name."""

    @abstractmethod
    def loss_arrays(
        self, case: Case, model: M, scores: dict[str, Tensor], terms: dict[str, Tensor], draws: Draws
    ) -> dict[str, Tensor]:
        """Return loss terms, their parts, and the chosen negatives, by recorded name."""

    def model(self, case: Case) -> M:
        """Return the model of a case with the recorded weights."""
        shared = {ours: case.setting(theirs) for ours, theirs in self.shared_settings.items()}
        model = create_model(self.name_of(case), **(shared | self.settings(case)))
        import_released(model, model.released_names(), as_tensors(case.weights))
        return cast(M, model.to(case.precision))

    def name_of(self, case: Case) -> str:
        """Return the name of the case's model."""
        return self.model_name

    def epoch(self, case: Case, step: int = 0) -> int:
        """Return the epoch in which a step of the case is computed. Some losses depend on the epoch."""
        return 0

    def watched(self, case: Case, model: M, batch: TrainingBatch, step: int) -> dict[str, Tensor]:
        """Return the additional values, by name, that a case of optimizer updates recorded at this step."""
        return {}

    def draws(self, case: Case) -> Draws:
        """Return draws that replay the negatives of the case."""
        return RecordedDraws(case, self.recorded_ranks)

    def _network(self, case: Case) -> Arrays:
        model = self.model(case)
        batch = case.training_batch()
        if case.kind.startswith("dropout-probe"):
            replace_dropout(model, lambda p: Scaling(1 + self.probe_sign * p))
        model.train(not case.kind.startswith("forward"))
        with ExitStack() as stack:
            tapped = _listen(model, self.taps(model), stack)
            queries = model.encode_queries(batch.queries)
            videos = model.encode_videos(batch.videos)
        scores = self.scores(model, queries, videos, batch)
        tensors = {f"mid.{name}": tensor for name, tensor in tapped.items()}
        tensors |= self.encodings(model, queries, videos) | scores
        if "total" not in case.expected:
            return expected(tensors)
        draws = self.draws(case)
        terms = model(batch, draws=draws, epoch=self.epoch(case))
        total = total_loss(terms, self.loss_weights(case))
        tensors |= self.loss_arrays(case, model, scores | tensors, terms, draws) | {"total": total}
        total.backward()
        gradients = export_released(model.released_names(), _gradients(model))
        return expected(tensors) | {f"grads/{name}": g.numpy() for name, g in gradients.items()}

    def _optim(self, case: Case) -> Arrays:
        model = self.model(case).train()
        batch = case.training_batch()
        weights = self.loss_weights(case)
        draws = self.draws(case)
        schedule = {"total_steps": case.setting("t_total"), "warmup_share": case.setting("lr_warmup_proportion")}
        optimizer = BertAdam(parameter_groups(model, case.config.get("wd", 0.01)), lr=case.setting("lr"))
        losses = []
        term_values = []
        norms = []
        null: Arrays = {}
        watched: dict[str, list[Tensor]] = {}
        num_steps = number_of_steps(case)
        for step in range(num_steps):
            optimizer.zero_grad()
            for name, value in self.watched(case, model, batch, step).items():
                watched.setdefault(name, []).append(value)
            terms = model(batch, draws=draws, epoch=self.epoch(case, step))
            total = total_loss(terms, weights)
            total.backward()
            gradients = export_released(model.released_names(), _gradients(model))
            losses.append(total.item())
            term_values.append([terms[name].item() for name in self.loss_weights(case)])
            norms.append([_norm(gradients.get(name)) for name in case.config.get("parameter_order", [])])
            for name, gradient in gradients.items():
                rounded = (gradient != 0) & (gradient.abs() < NULL_GRADIENT)
                null[name] = null.get(name, False) | rounded.numpy()
            for group in optimizer.param_groups:
                group["lr"] = case.setting("lr") * warmup_linear(step, **schedule)
            optimizer.step()
        model.eval()
        queries = model.encode_queries(batch.queries)
        videos = model.encode_videos(batch.videos)
        num_factors = len(case.expected.get("lr_multiplier_all", losses))
        factors = [warmup_linear(step, **schedule) for step in range(num_factors)]
        arrays = self.encodings(model, queries, videos) | self.scores(model, queries, videos, batch)
        results = (
            arrays
            | {name: torch.stack(values) for name, values in watched.items()}
            | {
                "loss_per_step": losses,
                "loss_terms_per_step": term_values,
                "grad_norm_per_step_and_tensor": norms,
                "lr_multiplier_per_step": factors[:num_steps],
                "lr_multiplier_all": factors,
            }
        )
        final = {
            f"weights_final/{name}": t.numpy()
            for name, t in export_released(model.released_names(), model.state_dict()).items()
        }
        # The released program has tensors that it never reads or changes. Our model does not have these tensors, so
        # their recorded initial values are copied.
        unread = {name for name, slot in model.released_names().items() if slot is UNUSED}
        final |= {f"weights_final/{name}": array for name, array in case.weights.items() if name in unread}
        return expected(results) | final | {f"null_gradient/{name}": null[name] for name in null}

    def _evaluation(self, case: Case) -> Arrays:
        """Return the results of a validation on the case's toy data set. Rows are captions in the released order."""
        model = self.model(case).eval()
        dataset = toy_dataset(case, case.config.get("eval_split", "val"))

        def encode(encoder: Callable[[Any], Any], rows: Any, /) -> Any:
            return encoder(rows.to("cpu", case.precision))

        train = TrainSettings(
            eval_video_batch=case.setting("eval_context_bsz"), eval_query_batch=case.setting("eval_query_bsz")
        )
        opened = OpenedModel(model=model, dataset=dataset, train=train, encode=encode, order="released")
        scored = opened.score()
        rows = np.concatenate(query_batches(dataset, train.eval_query_batch, "released"))
        truth = dataset.video_index[rows]
        results: dict[str, Any] = {
            "query_caption_ids": np.array(dataset.caption_ids)[rows],
            "video_order": np.array(dataset.video_ids),
            "gt_video_index": truth,
            "metrics": metric_values(case, scored.fused[rows], truth),
        }
        for name, scores in ({"fused": scored.fused} | scored.branches).items():
            results |= {f"{name}_scores": scores[rows], f"metrics_{name}": metric_values(case, scores[rows], truth)}
        queries = opened.all_queries.select(torch.from_numpy(rows))
        videos = EncodedVideos.cat([encoded for _, encoded in opened.all_videos()])
        return expected(results | self.encodings(model, queries, videos))

    def align(
        self, case: Case, name: str, ours: np.ndarray, theirs: np.ndarray, exact: Arrays
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return both arrays without rows of padding, which the released programs compute but never use.

        Final weights whose exact gradient is zero are also left out, because rounding alone moves them. They are
        kept if ours and theirs differ by more than the sum of the learning rates.
        """
        null = exact.get(name.replace("weights_final/", "null_gradient/")) if "weights_final/" in name else None
        if null is not None and ours.shape == theirs.shape == null.shape:
            compared = ~null | (np.abs(ours - theirs) > sum_of_rates(case))
            return ours[compared], theirs[compared]
        mask = self._row_mask(case, name)
        if mask is None or ours.shape[0] != theirs.shape[0] or ours.ndim != theirs.ndim:
            return ours, theirs
        return ours[:, : mask.shape[1]][mask], theirs[:, : mask.shape[1]][mask]

    def _row_mask(self, case: Case, name: str) -> np.ndarray | None:
        if not case.batch or "text_mask" not in case.batch or "_token" in name or name.endswith(".layer2"):
            return None
        if name.startswith(("expected/mid.frame", "expected/mid.modular_vector_mapping_2")):
            return case.batch["videos_mask"] > 0
        if name.startswith(("expected/mid.query", "expected/mid.modular_vector_mapping")):
            return case.batch["text_mask"] > 0
        return None


def number_of_steps(case: Case) -> int:
    """Return the number of optimizer updates: the number of recorded losses, otherwise the setting `n_steps`."""
    recorded = case.expected.get("loss_per_step")
    return case.setting("n_steps") if recorded is None else len(recorded)


def sum_of_rates(case: Case) -> float:
    """Return the sum of the learning rates of all optimizer updates, or 0 for a case without updates."""
    if not {"lr", "t_total", "lr_warmup_proportion"} <= case.config.keys():
        return 0.0
    schedule = {"total_steps": case.config["t_total"], "warmup_share": case.config["lr_warmup_proportion"]}
    return case.config["lr"] * sum(warmup_linear(step, **schedule) for step in range(number_of_steps(case)))


def is_updated(case: Case) -> bool:
    """Whether the case records a network after optimizer updates."""
    return "optim" in case.kind.split("-")


def branch_losses(
    branch: str, cosine: Tensor, dot: Tensor, video_index: Tensor, draws: Draws, margin: float
) -> dict[str, Tensor]:
    """Return a branch's InfoNCE and triplet losses in both directions, and the chosen negatives, by recorded name."""
    video_ranks = draws.foreign_ranks(branch, num_foreign_queries(video_index, cosine.shape[1]))
    query_ranks = draws.candidate_ranks(branch, *cosine.shape)
    return {
        f"nce_{branch}_t2v": nce_of_queries(dot, video_index),
        f"nce_{branch}_v2t": nce_of_videos(dot, video_index),
        f"triplet_{branch}_v2t": triplet_of_videos(cosine, video_index, video_ranks, margin=margin),
        f"triplet_{branch}_t2v": triplet_of_queries(cosine, video_index, query_ranks, margin=margin),
        f"neg_query_for_video_{branch}": negative_queries(cosine, video_index, video_ranks),
        f"neg_video_for_query_{branch}": negative_videos(cosine, video_index, query_ranks),
    }


def _listen(model: nn.Module, taps: list[Tap], stack: ExitStack) -> dict[str, Tensor]:
    """Return a dictionary that receives the outputs of the modules in `taps`, until the stack is closed."""
    outputs: dict[str, Tensor] = {}
    for tap in taps:

        def keep(module: nn.Module, inputs: object, output: Tensor, tap: Tap = tap) -> None:
            outputs[tap.theirs] = tap.pick(output)

        handle = model.get_submodule(tap.ours).register_forward_hook(keep)
        stack.callback(handle.remove)
    return outputs


def replace_dropout(model: nn.Module, replacement: Callable[[float], nn.Module]) -> None:
    """Replace every dropout layer with probability p by the module that `replacement(p)` returns."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.Dropout):
                setattr(module, name, replacement(child.p))


def _gradients(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def _norm(gradient: Tensor | None) -> float:
    """Return the norm of a gradient, or 0 if it is None, as recorded."""
    return 0.0 if gradient is None else float(tensor_norms(gradient, 0))


def expected(arrays: Mapping[str, Any]) -> Arrays:
    """Return NumPy arrays whose names begin with `expected/`."""
    return {
        f"expected/{name}": array.detach().numpy() if isinstance(array, Tensor) else np.asarray(array)
        for name, array in arrays.items()
    }
