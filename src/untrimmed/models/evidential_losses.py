"""The two evidential losses of Holmes (arXiv 2605.06083), which can be added to other methods too.

The authors released these losses only with Holmes. With other methods, `evidence` uses the cosines of all queries and
videos, and `transport` uses the clips that the method compares with sentences. For MS-SL, `transport` uses only the
shortest clips, because longer clips overlap. On each data set, the losses have the same weights as in Holmes.
"""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from untrimmed.errors import ConfigError
from untrimmed.losses.evidence import between_videos
from untrimmed.losses.transport import inside_videos
from untrimmed.models.attachment import AttachmentConfig, Carrier, StepLoss, TrainingStep
from untrimmed.models.registry import register


@register("evidence")
class EvidenceLoss(StepLoss):
    """Holmes' evidential loss between videos (arXiv 2605.06083), which estimates how certain a query's match is."""

    second_pass: ClassVar[bool] = False  # the loss reads the same scores as the InfoNCE and triplet losses

    @dataclass(frozen=True, kw_only=True)
    class Config(AttachmentConfig):
        """Settings of the loss.

        From epoch `warmup_epoch` on (counted from 0), labels of queries that match several videos are smoothed.
        """

        temperature: float = 0.05  # divides the cosines before they are converted to evidence
        division_bound: float = 0.3  # the argument `bound` of `losses.evidence.divide`
        smoothing: float = 0.2
        warmup_epoch: int = 20

        def __post_init__(self) -> None:
            _require_above_zero("evidence", temperature=self.temperature)
            for name in ("division_bound", "smoothing"):
                if not 0 <= getattr(self, name) <= 1:
                    raise ConfigError(f"evidence.{name} is {getattr(self, name)}, expected a share between 0 and 1")

    config: Config

    def step_term(self, model: Carrier, step: TrainingStep) -> Float[Tensor, ""]:
        """Return the sum of one loss per branch and one loss for the combination of all branches."""
        c = self.config
        branches = model.score(step.queries, step.videos).branches
        return between_videos(
            [score.value for score in branches.values()],
            step.batch.video_index,
            temperature=c.temperature,
            bound=c.division_bound,
            smoothing=c.smoothing,
            divides=step.epoch >= c.warmup_epoch,
        )


@register("transport")
class TransportLoss(StepLoss):
    """Holmes' evidential loss within a video (arXiv 2605.06083), which learns which clips belong to which query."""

    reads_clips: ClassVar[bool] = True

    @dataclass(frozen=True, kw_only=True)
    class Config(AttachmentConfig):
        """Settings of the loss. `regularisation` and `iterations` are parameters of optimal transport.

        The loss is 0 before epoch `warmup_epoch` (counted from 0).
        """

        temperature: float = 0.06  # divides the cosines before they are converted to evidence
        regularisation: float = 0.1
        iterations: int = 50
        warmup_epoch: int = 20

        def __post_init__(self) -> None:
            _require_above_zero(
                "transport",
                temperature=self.temperature,
                regularisation=self.regularisation,
                iterations=self.iterations,
            )

        @property
        def first_epoch(self) -> int:
            """The first epoch in which this loss is not 0."""
            return self.warmup_epoch

    config: Config

    def step_term(self, model: Carrier, step: TrainingStep) -> Float[Tensor, ""]:
        """Return the loss between clips and queries. The queries come from a second pass with different dropout."""
        c = self.config
        sentence = step.queries.sentence
        if step.epoch < c.warmup_epoch:
            return sentence.new_zeros(())
        return inside_videos(
            sentence,
            model.base_clips(step.videos),
            step.batch.video_index,
            temperature=c.temperature,
            regularisation=c.regularisation,
            iterations=c.iterations,
        )


def _require_above_zero(loss: str, **values: float) -> None:
    for name, value in values.items():
        if not value > 0:
            raise ConfigError(f"{loss}.{name} is {value}, expected more than 0")
