"""Settings of training and features: the `train` and `features` sections of a preset."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from untrimmed.config import Checked, reference_of, to_plain
from untrimmed.errors import ConfigError, shown_value

# a name, or a function or class (in files: MODULE:NAME or FILE.py:NAME)
Choice = str | Callable[..., Any]
_LOWER_IS_BETTER = ("median_rank", "mean_rank")


@dataclass(frozen=True, kw_only=True)
class TrainSettings(metaclass=Checked):
    """How a method is trained. Defaults are the released values of MS-SL, GMMFormer and GMMFormer v2.

    Several settings accept a custom function or class. In files and on the command line, write MODULE:NAME or
    FILE.py:NAME. `optimizer_settings` and the other `..._settings` are passed to this function or class as further
    arguments.

    Batches:

    - `batch_of`: what a batch contains. "videos": videos with all their captions. "captions": captions, each with its
      own copy of its video, so that captions of one video are negatives of each other (JSG's event variant).
    - `sampler`: selects the rows of each batch of an epoch: "shuffle" or a custom function (`training/sampling.py`).
    - `prepare_batch`: changes each batch before its step, for example to add hard negatives (`training/sampling.py`).
    - `hard_negatives_from_epoch`: from this epoch on, negatives are drawn from the `hard_pool` candidates with the
      highest scores. Before this epoch, they are drawn from all candidates.

    Updates:

    - `optimizer`: "BertAdam", a class of torch.optim such as "AdamW", or a custom class. The class is called with the
      parameter groups and `lr`.
    - `schedule`: "warmup_linear", "constant", a class of torch.optim.lr_scheduler such as "CosineAnnealingLR", or a
      custom schedule (`training/schedule.py`). During `warmup_share` of all updates, the learning rate rises.
    - `learning_rates`: {pattern: learning rate} for parameters whose names match a pattern such as
      "attachments.ral.*".
    - `accumulate`: batches per update. The gradient is the mean of the batches' gradients.
    - `clip_norm`: maximum norm of the gradient, over all parameters together. BertAdam also clips the gradient of each
      tensor separately.
    - `average`: validate and store averaged weights instead of the latest weights. "ema" is an exponential moving
      average, "swa" is a mean with equal weights. A custom function is called with the average, the new weights and
      the number of averaged updates. Averaging starts in `average_from_epoch`.

    End of an epoch:

    - `select_by`: the metric on the validation split that selects the best epoch. The value is a metric of videos
      ("SumR", "R@1", "mAP", ...), a metric of moments ("event SumR", "R@10 IoU=0.5", ...), or a custom function that is
      called with a `Validation`. Higher results are better. Of several epochs with equal results, the first is
      selected.
    - `annotators`: on DiDeMo, a moment is correct if it matches at least this number of annotations: 2 in JSG's
      released program, 1 in JSG's paper.
    - `patience`: training stops after more than this number of epochs without a new best result.
    - `epochs`: number of epochs. With 0, the model keeps its random initial weights.
    """

    learning_rate: float = 2.5e-4
    learning_rates: dict[str, float] = field(default_factory=dict)
    optimizer: Choice = "BertAdam"
    optimizer_settings: dict[str, Any] = field(default_factory=dict)
    schedule: Choice = "warmup_linear"
    schedule_settings: dict[str, Any] = field(default_factory=dict)
    warmup_share: float = 0.01
    weight_decay: float = 0.01
    clip_norm: float | None = None
    accumulate: int = 1
    average: Choice | None = None
    average_settings: dict[str, Any] = field(default_factory=dict)
    average_from_epoch: int = 0
    batch_of: Literal["videos", "captions"] = "videos"
    batch_size: int = 128
    sampler: Choice = "shuffle"
    sampler_settings: dict[str, Any] = field(default_factory=dict)
    prepare_batch: Choice | None = None
    prepare_batch_settings: dict[str, Any] = field(default_factory=dict)
    epochs: int = 100
    patience: int = 10
    select_by: Choice = "SumR"
    annotators: int = 2
    hard_negatives_from_epoch: int = 20
    hard_pool: int = 20
    eval_video_batch: int = 100
    eval_query_batch: int = 50
    seed: int = 9527

    def __post_init__(self) -> None:
        for name in ("batch_size", "hard_pool", "eval_video_batch", "eval_query_batch", "accumulate"):
            if getattr(self, name) < 1:
                raise ConfigError(f"train.{name} is {getattr(self, name)}, expected at least 1")
        for name in ("epochs", "patience", "hard_negatives_from_epoch", "average_from_epoch", "weight_decay", "seed"):
            if getattr(self, name) < 0:
                raise ConfigError(f"train.{name} is {getattr(self, name)}, expected at least 0")
        if not 1 <= self.annotators <= 4:
            raise ConfigError(f"train.annotators is {self.annotators}, expected 1 to 4, as captions have at least 4")
        if self.seed >= 2**63:
            raise ConfigError(f"train.seed is {self.seed}, expected less than 2 ** 63")
        if not math.isfinite(self.weight_decay):
            raise ConfigError(f"train.weight_decay is {self.weight_decay}, expected a finite number")
        if self.clip_norm is not None and not self.clip_norm > 0:
            raise ConfigError(f"train.clip_norm is {self.clip_norm}, expected more than 0, or null")
        if not (0 < self.learning_rate < math.inf and 0 <= self.warmup_share < 1):
            raise ConfigError(
                f"train.learning_rate {self.learning_rate} and train.warmup_share {self.warmup_share}: "
                "expected a positive rate and a share of at least 0 and below 1"
            )
        for pattern, rate in self.learning_rates.items():
            if not 0 <= rate < math.inf:
                raise ConfigError(f"train.learning_rates[{pattern!r}] is {rate}, expected a number of at least 0")
        for name in ("optimizer", "schedule", "average", "sampler", "prepare_batch", "select_by"):
            if callable(value := getattr(self, name)):
                try:
                    reference_of(value)
                except ConfigError as error:
                    raise ConfigError(f"train.{name}: {error}") from None
        for name in ("optimizer", "schedule", "average", "sampler", "prepare_batch"):
            for key, value in getattr(self, f"{name}_settings").items():
                _require_plain(value, f"train.{name}_settings.{key}")

    @property
    def selects_by(self) -> str:
        """The key of the `select_by` metric in the results of an epoch."""
        name = self.select_by if isinstance(self.select_by, str) else reference_of(self.select_by)
        return name.rpartition(":")[2]

    def selection(self, metrics: Mapping[str, float]) -> float:
        """Return the `select_by` metric; higher is better. A mean or median rank is negated."""
        value = metrics[self.selects_by]
        return -value if self.selects_by in _LOWER_IS_BETTER else value


def _require_plain(value: object, where: str) -> None:
    """Raise a ConfigError for a value that cannot be stored in a run's file."""
    try:
        json.dumps(to_plain(value))
    except TypeError:
        raise ConfigError(f"{where} is {shown_value(value)}, expected a number, a text, a list or a mapping") from None


@dataclass(frozen=True, kw_only=True)
class FeatureSettings(metaclass=Checked):
    """How features are prepared for a method. The sizes of features are not here, but in the method's configuration.

    - `fixed_frames`: give every video exactly `max_frames` rows (JSG).
    - `teacher`: add CLIP vectors of DL-DKD's teacher to training batches. The value names the rule that makes the
      numbers of teacher frames and student frames equal.
    - `sort_by`: sort the videos of a training batch by number of frames or of captions (DL-DKD), in descending order.
    - `dtype`: number format of packed features. float16 takes half the space, with errors of at most 5e-4.
    """

    fixed_frames: bool = False
    teacher: Literal["conference", "later"] | None = None
    sort_by: Literal["frames", "captions"] = "frames"
    dtype: Literal["float32", "float16"] = "float32"
