"""Compare HLFormer with its released program (golden cases)."""

import math
from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from untrimmed.batches import EncodedQueries, EncodedVideos, clips_of, frames_of
from untrimmed.losses.draws import Draws
from untrimmed.losses.partial_order import aperture, exterior_angle
from untrimmed.models.partial_order import PartialOrder
from untrimmed.models.two_branches import TwoBranchModel
from untrimmed.nn.tower import lengthened
from untrimmed.parity.case import Arrays, Case
from untrimmed.parity.compare import Rules, Tolerance
from untrimmed.parity.gmmformer import ConsolidatedParity
from untrimmed.parity.lorentz import hyperbolic_maps, lorentz_attention
from untrimmed.parity.registry import parity_of
from untrimmed.parity.retrieval import Tap

COLLINEAR = 0.01  # angles whose sine is below this limit are compared by their cosine


@parity_of("hlformer")
class HLFormerParity(ConsolidatedParity):
    """The golden cases of HLFormer, which extends GMMFormer v2.

    Each block has Euclidean layers and layers in Lorentz space. The token that determines the weights of the layers is
    the mean of the layers' outputs. The additional loss `partial_order` moves captions into the cones of their videos
    in hyperbolic space.
    """

    model_name = "hlformer"
    terms: ClassVar[tuple[str, ...]] = ("clip_nce", "frame_nce", "query_diversity", "partial_order")

    def own_kinds(self) -> dict[str, Callable[[Case], Mapping[str, Any]]]:
        """Return the functions for cases without a network: hyperbolic formulas, and one block in Lorentz space."""
        return {"hyperbolic-maps": hyperbolic_maps, "lorentz-attention": lorentz_attention}

    def rules(self, case: Case) -> Rules:
        """Return the tolerances.

        Single formulas have the tolerances of the golden data's README, or smaller tolerances. Three are large:

        - Curvature 0.1: the gradient of the curvature is 15, but it is a sum of terms of size 1e5 that nearly cancel.
          The relative error of this sum in single precision is 3e-4.
        - Points near the origin: the cosine of an angle is a difference of numbers that agree in five digits. Recorded
          angles differ from double precision by up to 5e-4, and recorded gradients by 3e-3. AVX2 and AVX-512 add
          numbers in different orders, which changes angles by 7e-5 and gradients by 4e-4.
        - Layers in Lorentz space: rounding changes gradients by 7e-6, and the README allows 1.5e-5.
        """
        if case.kind == "hyperbolic-maps":
            return (
                (r"expected/c0\.1\.grad_curvature", Tolerance(1e-3)),
                (r"expected/c(0\.1|3\.5)\.angle", Tolerance(2e-4)),
                (r"expected/c(0\.1|3\.5)\.loss", Tolerance(1e-5)),
                (r"expected/c(0\.1|3\.5)\.grad_(text|video)", Tolerance(1e-3)),
                (r"expected/.*grad_curvature", Tolerance(1e-4)),
                (r"expected/.*grad.*", Tolerance(5e-5)),
                (r"expected/.*angle", Tolerance(1e-5)),
                (r"expected/", Tolerance(2e-6)),
            )
        if case.kind == "lorentz-attention":
            return ((r"expected/", Tolerance(1e-5, 1e-5)),)
        return [(r"grads/.*h_attns", Tolerance(5e-6, 1e-5)), *super().rules(case)]

    def settings(self, case: Case) -> dict[str, Any]:
        """Return window widths of Euclidean and Lorentz layers, the initial curvature, and the Lorentz dimension."""
        widths = (math.inf, *(2.0**k for k in range(1, case.setting("attention_num") // 2)))
        values = super().settings(case) | {"gaussian_widths": widths, "lorentz_widths": widths}
        values["losses"] |= {"partial_order": {"curvature": case.setting("curv_init")}}
        return values | {"lorentz_dim": case.setting("lorentz_dim")}

    def taps(self, model: TwoBranchModel) -> list[Tap]:
        """List the modules whose outputs are compared: the modules of `ConsolidatedParity`, all layers, and tokens."""
        taps = super().taps(model)
        for theirs, ours in self.blocks:
            for place, (kind, layers) in enumerate((("e_attns", "first"), ("h_attns", "second"))):
                count = len((model.config.gaussian_widths, getattr(model.config, "lorentz_widths", ()))[place])
                taps += [Tap(f"{theirs}.{kind}.{k}", f"{ours}.layers.{layers}", itemgetter(k)) for k in range(count)]
            taps.append(Tap(f"{theirs}.mean_token", f"{ours}.layers", lambda outputs: outputs.mean(dim=(0, 2))))
        return taps

    def encodings(self, model: TwoBranchModel, queries: EncodedQueries, videos: EncodedVideos) -> dict[str, Tensor]:
        """Return encodings, points in hyperbolic space, and the logits of the poolings that produce these points."""
        loss = _loss(model)
        hierarchy = loss.hierarchy(queries, videos)
        assert loss.frame_pooling is not None
        assert loss.clip_pooling is not None
        frames = lengthened(*frames_of(videos), model.config.max_frames)[0]
        return super().encodings(model, queries, videos) | {
            "query_hyperbolic": hierarchy.text,
            "video_hyperbolic": hierarchy.video,
            "curvature": hierarchy.curvature,
            "mid.modular_vector_mapping_2": loss.frame_pooling.score(frames),
            "mid.modular_vector_mapping_3": loss.clip_pooling.score(clips_of(videos)),
        }

    def loss_arrays(
        self, case: Case, model: TwoBranchModel, scores: dict[str, Tensor], terms: dict[str, Tensor], draws: Draws
    ) -> dict[str, Tensor]:
        """Return all losses, each caption's angle, and the aperture of its video's cone."""
        index = case.training_batch().video_index
        curvature = scores["curvature"]
        video = scores["video_hyperbolic"][index]
        return super().loss_arrays(case, model, scores, terms, draws) | {
            "pop": terms["partial_order"],
            "pop_angle": exterior_angle(video, scores["query_hyperbolic"], curvature),
            "pop_aperture": aperture(video, curvature, radius=_loss(model).config.radius),
        }

    def align(
        self, case: Case, name: str, ours: np.ndarray, theirs: np.ndarray, exact: Arrays
    ) -> tuple[np.ndarray, np.ndarray]:
        """Transform both arrays of a single formula before they are compared.

        Values above 1 are compared by relative difference. Angles near 0 and pi are compared by their cosine, because
        near these angles a small rounding error of the cosine is a large error of the angle.
        """
        if case.kind != "hyperbolic-maps" or ours.shape != theirs.shape:
            return super().align(case, name, ours, theirs, exact)
        if name.endswith(".angle"):
            is_collinear = np.sin(theirs) < COLLINEAR
            return np.where(is_collinear, np.cos(ours), ours), np.where(is_collinear, np.cos(theirs), theirs)
        scale = np.maximum(1, np.abs(theirs))
        return np.asarray(ours / scale), np.asarray(theirs / scale)

    def _row_mask(self, case: Case, name: str) -> np.ndarray | None:
        """Return the mask of the rows to compare, or None for all rows.

        Padding of frames is also compared, because the token is a mean over frames and padding.
        """
        if name.startswith(("expected/mid.frame", "expected/mid.modular_vector_mapping_")):
            return None
        return super()._row_mask(case, name)


def _loss(model: TwoBranchModel) -> PartialOrder:
    loss = model.attachments["partial_order"]
    assert isinstance(loss, PartialOrder)
    return loss
