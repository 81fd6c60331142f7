"""Base classes for the settings (`Config`) of methods and of attachments."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from untrimmed.config import Checked
from untrimmed.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class AttachmentConfig(metaclass=Checked):
    """The settings of an attachment, and how they change the method. All settings must have defaults."""

    # whether encoded videos must contain frames, even if only the attachment uses them
    reads_frames: ClassVar[bool] = False
    replaces_clips: ClassVar[bool] = False  # whether it replaces clips; needs a method with `has_clips`

    @property
    def provides(self) -> frozenset[str]:
        """Branches of the score that the attachment computes instead of the method."""
        return frozenset()

    @property
    def absent_terms(self) -> frozenset[str]:
        """The attachment's loss terms that are off with these settings."""
        return frozenset()

    @property
    def passages_read(self) -> int:
        """The largest number of subtitle vectors per video that the attachment reads, 0 if it reads none."""
        return 0

    @property
    def first_epoch(self) -> int:
        """The first epoch, counted from 0, in which a loss term of the attachment is not 0."""
        return 0


Losses = Mapping[str, AttachmentConfig | None]  # {name of an attached loss: settings, or None if it is off}


@dataclass(frozen=True, kw_only=True)
class ModelConfig(metaclass=Checked):
    """The settings that all methods share. The defaults come from the released programs."""

    query_dim: int  # width of a word feature
    video_dim: int  # width of a frame feature
    dim: int = 384
    num_heads: int = 4
    num_clips: int = 32  # number of clips per video
    max_frames: int = 128
    max_words: int = 30
    input_dropout: float = 0.1
    dropout: float = 0.1
    init_std: float = 0.02
    losses: Losses = field(default_factory=dict)
    separate_pass: bool = True  # attached losses use queries from a second pass with different dropout
    parts: Mapping[str, AttachmentConfig] = field(default_factory=dict)  # settings of attached parts by name
    attached: tuple[str, ...] = ()  # names of the parts and losses in the model's name

    def __post_init__(self) -> None:
        for name in ("query_dim", "video_dim", "dim", "num_heads", "num_clips", "max_frames", "max_words"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}, expected at least 1")
        for name in ("input_dropout", "dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}, expected a probability below 1")
        if self.dim % self.num_heads:
            raise ConfigError(f"dim {self.dim} is not divisible by num_heads {self.num_heads}; change one")

    @property
    def attachments(self) -> dict[str, AttachmentConfig]:
        """Settings of all attachments that are on: parts first, then losses."""
        return {**self.parts, **{name: config for name, config in self.losses.items() if config is not None}}

    @property
    def provided(self) -> frozenset[str]:
        """Branches that attachments compute. For these branches, the method computes neither scores nor losses."""
        return frozenset().union(*(config.provides for config in self.attachments.values()))

    @property
    def reads_frames(self) -> bool:
        """Whether encoded videos must contain frames, because an attachment uses frames."""
        return any(config.reads_frames for config in self.attachments.values())

    @property
    def max_passages(self) -> int:
        """The largest number of subtitle vectors per video that an attachment reads, 0 if none reads them."""
        return max((config.passages_read for config in self.attachments.values()), default=0)

    @property
    def absent_terms(self) -> frozenset[str]:
        """Loss terms that are off with these settings. Training ignores the weights of these terms in presets."""
        off = frozenset(name for name, config in self.losses.items() if config is None)
        return off.union(*(config.absent_terms for config in self.attachments.values()))
