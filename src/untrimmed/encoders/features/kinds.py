"""Names of encoders that are made of benchmark networks, such as:

    resnet152+i3d=/weights/i3d.pt+roberta          TVR: two networks for pictures and one for words
    slowfast=sf.pyth#sha256=6b1a...+clip=clip-b16   the file must have this SHA-256

docs/data.md lists the rate, size and normalisation of each kind, with sources.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from untrimmed.errors import ConfigError, UnknownNameError

CLIP = "clip"
ROBERTA = "roberta"
DEFAULT_CLIP = "clip-l14"


@dataclass(frozen=True)
class Kind:
    """A kind of network that benchmarks use for their features.

    Attributes:
        width: The width of vectors with the usual weights.
        weights: The default weights: a hub id or the name of an encoder. None if no maintained source offers them in a
            safe format; then the user must name a file.
        fps: The number of vectors per second of video; 0 for a network that encodes words.
    """

    name: str
    width: int
    weights: str | None
    fps: float
    note: str


_KINDS = (
    Kind("resnet152", 2048, "timm/resnet152.tv_in1k", 2 / 3, "pictures: pool5, the maximum of the frames of 1.5 s"),
    Kind("i3d", 1024, None, 2 / 3, "motion: RGB I3D, the mean over 1.5 s"),
    Kind("slowfast", 2304, None, 1 / 2, "motion: SlowFast 8x8 R50, 2 s"),
    Kind(CLIP, 768, DEFAULT_CLIP, 3.0, "pictures and words: any CLIP"),
    Kind(ROBERTA, 768, "FacebookAI/roberta-base", 0.0, "words: any RoBERTa"),
)
KINDS: Mapping[str, Kind] = MappingProxyType({kind.name: kind for kind in _KINDS})
_START = re.compile(rf"\+(?=(?:{'|'.join(KINDS)})(?:[=+#]|$))")
_PART = re.compile(rf"({'|'.join(KINDS)})(?:=(.+?))?(?:#sha256=(.*))?", re.DOTALL)
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class NetworkSpec:
    """One network of an encoder: its kind, its weights (None: the kind's default), and their required SHA-256."""

    kind: str
    weights: str | None = None
    sha256: str | None = None

    def __str__(self) -> str:
        weights = "" if self.weights is None else f"={self.weights}"
        return self.kind + weights + ("" if self.sha256 is None else f"#sha256={self.sha256}")


@dataclass(frozen=True)
class FeatureSpec:
    """The networks of an encoder, in the order in which their vectors are concatenated. `str` gives its name."""

    parts: tuple[NetworkSpec, ...]

    def __str__(self) -> str:
        return "+".join(map(str, self.parts))

    @property
    def pictures(self) -> tuple[NetworkSpec, ...]:
        """The networks that encode frames."""
        return tuple(part for part in self.parts if KINDS[part.kind].fps > 0)

    @property
    def words(self) -> NetworkSpec:
        """The network that encodes words: RoBERTa, or CLIP if the name contains CLIP but not RoBERTa."""
        by_kind = {part.kind: part for part in self.parts}
        return by_kind.get(ROBERTA) or by_kind.get(CLIP) or NetworkSpec(ROBERTA)

    @property
    def is_clip(self) -> bool:
        """Whether CLIP is the only network. Then frames and sentences can be compared without training."""
        return [part.kind for part in self.parts] == [CLIP]

    @property
    def fps(self) -> float:
        """The default number of vectors per second of video: the smallest default of the networks for frames."""
        return min(KINDS[part.kind].fps for part in self.pictures)


def is_feature_name(name: str) -> bool:
    """Whether a name belongs to an encoder made of the benchmarks' networks.

    >>> is_feature_name("i3d=weights.pt+roberta"), is_feature_name("clip-b32"), is_feature_name("./clip")
    (True, False, False)
    """
    return re.match(rf"(?:{'|'.join(KINDS)})(?:[=+#]|$)", name) is not None


def read_spec(name: str) -> FeatureSpec:
    """Return the networks in the name of an encoder.

    >>> [part.kind for part in read_spec("resnet152+i3d=a+b.pt+roberta").parts]
    ['resnet152', 'i3d', 'roberta']

    Raises:
        UnknownNameError: A kind is unknown.
        ConfigError: A SHA-256 is malformed, a kind is named twice, or no network encodes frames.
    """
    return join_parts(_START.split(name))


def join_parts(names: Sequence[str]) -> FeatureSpec:
    """Return the encoder made of these networks, each named `KIND`, `KIND=WEIGHTS` or `KIND=WEIGHTS#sha256=HASH`.

    Raises:
        UnknownNameError: A kind is unknown.
        ConfigError: A SHA-256 is malformed, a kind is named twice, or no network encodes frames.
    """
    parts = []
    for name in names:
        match = _PART.fullmatch(name)
        if match is None:
            raise UnknownNameError.among("kind of features", name.partition("=")[0].partition("#")[0], KINDS)
        if match[3] is not None and not _SHA256.fullmatch(match[3]):
            raise ConfigError(f"{name}: sha256 is {match[3]!r}, expected 64 digits in lower-case hexadecimal")
        parts.append(NetworkSpec(match[1], match[2], match[3]))
    kinds = [part.kind for part in parts]
    if repeated := sorted({kind for kind in kinds if kinds.count(kind) > 1}):
        raise ConfigError(f"{repeated[0]} is named {kinds.count(repeated[0])} times, expected once; remove one")
    spec = FeatureSpec(tuple(parts))
    if not spec.pictures:
        raise ConfigError(f"{spec} encodes words only; add a kind for the frames, such as resnet152, i3d or clip")
    return spec


def feature_name(encoder: str) -> str:
    """Return the name under which a data set stores the features of an encoder.

    >>> feature_name("resnet152+i3d=/weights/i3d.pt+roberta"), feature_name("openai/clip-vit-large-patch14")
    ('resnet152_i3d', 'clip-vit-large-patch14')
    """
    if not is_feature_name(encoder):
        return Path(encoder).name
    return "_".join(part.kind for part in read_spec(encoder).pictures)
