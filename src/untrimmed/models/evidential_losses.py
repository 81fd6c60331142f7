"""The two evidential losses of Holmes, which attach to other methods too (arXiv 2605.06083).

Its authors released them with Holmes alone. On other methods `evidence` reads the cosines that rank, all queries with
all videos (for MS-SL and JSG too, whose own losses meet each query's own video alone), and `transport` the clips that
are compared with sentences (MS-SL: its units, since longer clips overlap). Weights are those of the same data set.
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
class Evidence(StepLoss):
    """The evidential loss between videos of Holmes (arXiv 2605.06083): how sure a query is of its own."""

    second_pass: ClassVar[bool] = False  # it reads the scores that InfoNCE and triplet read

    @dataclass(frozen=True, kw_only=True)
    class Config(AttachmentConfig):
        """From epoch `warmup_epoch` on (counted from 0) queries that fit several videos have their labels smoothed."""

        temperature: float = 0.05  # of evidence
        division_bound: float = 0.3  # an uncertainty above 1 - this, a cosine below it, sets a query apart in any case
        smoothing: float = 0.2
        warmup_epoch: int = 20

        def __post_init__(self) -> None:
            _require_above_zero("evidence", temperature=self.temperature)
            for name in ("division_bound", "smoothing"):
                if not 0 <= getattr(self, name) <= 1:
                    raise ConfigError(f"evidence.{name} is {getattr(self, name)}, wanted a share between 0 and 1")

    config: Config

    def step_term(self, model: Carrier, step: TrainingStep) -> Float[Tensor, ""]:
        """Of all branches of the score by themselves, and together."""
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
class Transport(StepLoss):
    """The evidential loss inside a video of Holmes (arXiv 2605.06083): which clips belong to which of its queries."""

    reads_clips: ClassVar[bool] = True

    @dataclass(frozen=True, kw_only=True)
    class Config(AttachmentConfig):
        """0 before epoch `warmup_epoch`, counted from 0; `regularisation` and `iterations` are the transport's."""

        temperature: float = 0.06  # of evidence
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
            """The epoch of the first transport."""
            return self.warmup_epoch

    config: Config

    def step_term(self, model: Carrier, step: TrainingStep) -> Float[Tensor, ""]:
        """Of the second pass of the queries and the clips."""
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
            raise ConfigError(f"{loss}.{name} is {value}, wanted more than 0")
