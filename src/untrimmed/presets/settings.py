"""Settings of training and features: the `train` and `features` sections of a preset."""

import math
from dataclasses import dataclass
from typing import Literal

from untrimmed.config import Checked
from untrimmed.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class TrainSettings(metaclass=Checked):
    """How a method is trained. Defaults are the released values of MS-SL, GMMFormer and GMMFormer v2.

    - `batch_of`: "videos" iterates over videos with all their captions. "captions" iterates over captions, each with
      its video, so captions of one video are negatives of each other (JSG's event variant).
    - `hard_negatives_from_epoch`: earlier epochs draw negatives from all candidates, later ones from the `hard_pool`
      best-scoring.
    - `select_by`: the metric on the validation split that chooses the best epoch (the first one on a tie): SumR of
      videos or of moments. On DiDeMo a moment is right if it matches at least `annotators` annotations: 2 as released,
      1 in JSG's paper.
    - `patience`: training stops after more than this many epochs without a new best.
    - `epochs`: 0 leaves the model at its random initial weights.
    """

    learning_rate: float = 2.5e-4
    warmup_share: float = 0.01
    weight_decay: float = 0.01
    batch_of: Literal["videos", "captions"] = "videos"
    batch_size: int = 128
    epochs: int = 100
    patience: int = 10
    select_by: Literal["SumR", "event SumR"] = "SumR"
    annotators: int = 2
    hard_negatives_from_epoch: int = 20
    hard_pool: int = 20
    eval_video_batch: int = 100
    eval_query_batch: int = 50
    seed: int = 9527

    def __post_init__(self) -> None:
        for name in ("batch_size", "hard_pool", "eval_video_batch", "eval_query_batch"):
            if getattr(self, name) < 1:
                raise ConfigError(f"train.{name} is {getattr(self, name)}, expected at least 1")
        for name in ("epochs", "patience", "hard_negatives_from_epoch", "weight_decay", "seed"):
            if getattr(self, name) < 0:
                raise ConfigError(f"train.{name} is {getattr(self, name)}, expected at least 0")
        if not 1 <= self.annotators <= 4:
            raise ConfigError(f"train.annotators is {self.annotators}, expected 1 to 4, as captions have at least 4")
        if self.seed >= 2**63:
            raise ConfigError(f"train.seed is {self.seed}, expected less than 2 ** 63")
        if not math.isfinite(self.weight_decay):
            raise ConfigError(f"train.weight_decay is {self.weight_decay}, expected a finite number")
        if not (0 < self.learning_rate < math.inf and 0 < self.warmup_share < 1):
            raise ConfigError(
                f"train.learning_rate {self.learning_rate} and train.warmup_share {self.warmup_share}: "
                "expected a positive rate and a share between 0 and 1"
            )


@dataclass(frozen=True, kw_only=True)
class FeatureSettings(metaclass=Checked):
    """How features are prepared for a method, beyond the sizes in its configuration.

    - `fixed_frames`: give every video exactly `max_frames` rows (JSG).
    - `teacher`: add DL-DKD's CLIP vectors to training batches. The value names the rule that matches their length.
    - `sort_by`: sort the videos of a training batch by descending number of frames or of captions (DL-DKD).
    - `dtype`: number format of packed features. float16 takes half the space, with errors of at most 5e-4.
    """

    fixed_frames: bool = False
    teacher: Literal["conference", "later"] | None = None
    sort_by: Literal["frames", "captions"] = "frames"
    dtype: Literal["float32", "float16"] = "float32"
