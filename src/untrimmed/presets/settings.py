"""How a method is trained: what the presets' `train` and `features` sections may hold."""

import math
from dataclasses import dataclass
from typing import Literal

from untrimmed.config import Checked
from untrimmed.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class TrainSettings(metaclass=Checked):
    """Defaults are the released values of MS-SL, GMMFormer and GMMFormer v2.

    `batch_of`: an epoch goes through the videos, each with all its captions, or through the captions, each with its
    video, so that captions of one video are negatives of each other (JSG's event variant). The first
    `hard_negatives_from_epoch` epochs draw negatives from all, later ones from the `hard_pool` best-scoring. The epoch
    kept is the first with the highest `select_by` on the validation split: SumR of videos, or that of moments, of which
    one is right on DiDeMo if it meets `annotators` of the four or more: 2 as released, 1 in JSG's paper. Training stops
    once more than `patience` epochs in a row bring no new best. Without an epoch the model stays as it was drawn.
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
                raise ConfigError(f"train.{name} is {getattr(self, name)}, wanted at least 1")
        for name in ("epochs", "patience", "hard_negatives_from_epoch", "weight_decay", "seed"):
            if getattr(self, name) < 0:
                raise ConfigError(f"train.{name} is {getattr(self, name)}, wanted at least 0")
        if not 1 <= self.annotators <= 4:
            raise ConfigError(f"train.annotators is {self.annotators}, wanted 1 to 4: no caption is sure of more")
        if self.seed >= 2**63:
            raise ConfigError(f"train.seed is {self.seed}, wanted less than 2 ** 63")
        if not math.isfinite(self.weight_decay):
            raise ConfigError(f"train.weight_decay is {self.weight_decay}, wanted a finite number")
        if not (0 < self.learning_rate < math.inf and 0 < self.warmup_share < 1):
            raise ConfigError(
                f"train.learning_rate {self.learning_rate} and train.warmup_share {self.warmup_share}: "
                "wanted a positive rate and a share between 0 and 1"
            )


@dataclass(frozen=True, kw_only=True)
class FeatureSettings(metaclass=Checked):
    """What a method wants of the features beyond the sizes in its configuration.

    `fixed_frames`: every video has exactly `max_frames` rows (JSG). `teacher`: add DL-DKD's CLIP vectors to training
    batches, lengths matched by that rule. `sort_by`: the videos of a training batch stand with most frames first, or
    with most captions (DL-DKD). `dtype`: how features are packed; float16 takes half the space, to within 5e-4.
    """

    fixed_frames: bool = False
    teacher: Literal["conference", "later"] | None = None
    sort_by: Literal["frames", "captions"] = "frames"
    dtype: Literal["float32", "float16"] = "float32"
