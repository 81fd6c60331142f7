"""Records of tensors: the batches that a model takes, and the encodings that it returns.

Axes: Q queries, W words, V videos, L clips, T frames, D width of the model; E and C are the widths of word and frame
features. Masks are False for padding. All records are frozen. `to`, `select` and `cat` apply to every tensor field, so
a method can subclass `EncodedQueries` or `EncodedVideos` with more fields, and an attachment can add a record.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from untrimmed.errors import ConfigError

R = TypeVar("R", bound="Record")
E = TypeVar("E", bound="Record")
X = TypeVar("X", bound="Encoded")


@dataclass(frozen=True, kw_only=True)
class Record:
    """Tensors that share their first axis: one row per query or video."""

    @classmethod
    def of(cls: type[R], record: "Record") -> R:
        """Return the record itself, after checking that it has this class.

        Raises: ConfigError for a record of another class, for example the encodings of another method.
        """
        if not isinstance(record, cls):
            raise ConfigError(
                f"found {type(record).__name__}, expected {cls.__name__}; pass a model only its own encodings, or "
                "pass arrays to the model that untrimmed.load(RUN) returns"
            )
        return record

    def tensors(self) -> dict[str, Tensor]:
        """The tensor fields that are not None, by name."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, Tensor)}

    def with_tensors(self: R, tensors: Mapping[str, Tensor]) -> R:
        """A copy of the record with its tensors replaced by `tensors`. Keys are as in the result of `tensors()`."""
        return dataclasses.replace(self, **tensors)

    def __len__(self) -> int:
        return len(next(iter(self.tensors().values())))

    def to(self: R, device: torch.device | str, dtype: torch.dtype | None = None) -> R:
        """A copy of the record on another device. `dtype` applies to floating-point fields only."""
        moved = {
            name: value.to(device, dtype if value.is_floating_point() else None, non_blocking=True)
            for name, value in self.tensors().items()
        }
        return self.with_tensors(moved)

    def select(self: R, rows: slice | Int[Tensor, " N"]) -> R:
        """A record of the selected rows, in the order of `rows`."""
        return self.with_tensors({name: value[rows] for name, value in self.tensors().items()})

    @classmethod
    def cat(cls: type[R], records: Sequence[R]) -> R:
        """One record of all rows. Second axes of different lengths are padded with zeros (masks with False)."""
        parts = [record.tensors() for record in records]
        return records[0].with_tensors({name: _cat_padded([part[name] for part in parts]) for name in parts[0]})


def _cat_padded(tensors: Sequence[Tensor]) -> Tensor:
    if tensors[0].ndim < 2:
        return torch.cat(list(tensors))
    longest = max(tensor.shape[1] for tensor in tensors)
    return torch.cat([with_second_axis(tensor, longest) for tensor in tensors])


def with_second_axis(tensor: Tensor, length: int) -> Tensor:
    """The tensor with its second axis cut to `length`, or padded to it with zeros (or False)."""
    missing = length - tensor.shape[1]
    return F.pad(tensor, [0, 0] * (tensor.ndim - 2) + [0, missing]) if missing else tensor


@dataclass(frozen=True, kw_only=True)
class QueryBatch(Record):
    """Word features of queries, zero-padded. `teacher` contains another model's sentence vectors, for distillation."""

    words: Float[Tensor, "Q W E"]
    mask: Bool[Tensor, "Q W"]
    teacher: Float[Tensor, "Q S"] | None = None


@dataclass(frozen=True, kw_only=True)
class VideoBatch(Record):
    """Features of videos: a fixed number of clips per video, and frames that are zero-padded to the longest video.

    `teacher` contains another model's frame vectors at the same times, for distillation. `passages` contains the
    vectors of the videos' subtitles.
    """

    clips: Float[Tensor, "V L C"]
    frames: Float[Tensor, "V T C"]
    frame_mask: Bool[Tensor, "V T"]
    teacher: Float[Tensor, "V N S"] | None = None
    teacher_mask: Bool[Tensor, "V N"] | None = None
    passages: Float[Tensor, "V P E"] | None = None
    passage_mask: Bool[Tensor, "V P"] | None = None


@dataclass(frozen=True, kw_only=True)
class TrainingBatch:
    """Videos with all their queries. `video_index[q]` is the row of the video that query q describes.

    The other fields are annotations for losses, or None. `spans_s` has the start and end of each query's main moment in
    seconds (NaN without a moment), `moments` all moments of each query, and `durations_s` the lengths of videos (NaN if
    unknown). A tensor is None if the whole data set lacks the information.
    """

    queries: QueryBatch
    videos: VideoBatch
    video_index: Int[Tensor, " Q"]
    video_ids: tuple[str, ...] | None = None
    caption_ids: tuple[str, ...] | None = None
    spans_s: Float[Tensor, "Q 2"] | None = None
    durations_s: Float[Tensor, " V"] | None = None
    moments: tuple[tuple[tuple[float, float], ...], ...] | None = None

    def to(self, device: torch.device | str) -> "TrainingBatch":
        """A copy of the batch on another device."""
        tensors = {name: getattr(self, name) for name in ("video_index", "spans_s", "durations_s")}
        return dataclasses.replace(
            self,
            queries=self.queries.to(device),
            videos=self.videos.to(device),
            **{n: tensor.to(device, non_blocking=True) for n, tensor in tensors.items() if tensor is not None},
        )


@dataclass(frozen=True, kw_only=True)
class Encoded(Record):
    """The encodings of a method, and by name the encodings of each attachment."""

    attached: Mapping[str, Record] = dataclasses.field(default_factory=dict)

    def attach(self: X, name: str, record: Record) -> X:
        """A copy with the encodings of one more attachment."""
        return dataclasses.replace(self, attached={**self.attached, name: record})

    def tensors(self) -> dict[str, Tensor]:
        """All tensors by name. For a tensor of an attachment, the name begins with the attachment's name:
        `ral.words`."""
        attached = ((name, record.tensors()) for name, record in self.attached.items())
        return super().tensors() | {
            f"{name}.{key}": value for name, tensors in attached for key, value in tensors.items()
        }

    def with_tensors(self: X, tensors: Mapping[str, Tensor]) -> X:
        """A copy with all tensors replaced by `tensors`. Keys are as in the result of `tensors()`."""
        fields = {name: value for name, value in tensors.items() if "." not in name}
        attached = {
            name: record.with_tensors(
                {key.removeprefix(f"{name}."): value for key, value in tensors.items() if key.startswith(f"{name}.")}
            )
            for name, record in self.attached.items()
        }
        return dataclasses.replace(self, **fields, attached=attached)


@dataclass(frozen=True, kw_only=True)
class EncodedQueries(Encoded):
    """One vector per query, not normalised. A method with more encodings of a query defines a subclass in its file."""

    sentence: Float[Tensor, "Q D"]


@dataclass(frozen=True, kw_only=True)
class EncodedVideos(Encoded):
    """The encodings of videos that attachments and search use, for any method. Fields that a method lacks are None.

    The vectors are not normalised. `clips` have no mask. The contents of `frames` outside `frame_mask` are undefined. A
    method with more encodings defines a subclass in its file.
    """

    clips: Float[Tensor, "V L D"] | None = None
    frames: Float[Tensor, "V T D"] | None = None
    frame_mask: Bool[Tensor, "V T"] | None = None
    # set if `frames` contains only some frames; otherwise the mask determines the number
    num_frames: Int[Tensor, " V"] | None = None


def clips_of(videos: EncodedVideos) -> Float[Tensor, "V L D"]:
    """Return `videos.clips`, for retrieval methods that always set this field."""
    assert videos.clips is not None
    return videos.clips


def frames_of(videos: EncodedVideos) -> tuple[Float[Tensor, "V T D"], Bool[Tensor, "V T"]]:
    """The fields `frames` and `frame_mask`, for retrieval methods that always set these fields."""
    assert videos.frames is not None
    assert videos.frame_mask is not None
    return videos.frames, videos.frame_mask


def num_frames_of(videos: EncodedVideos) -> Int[Tensor, " V"]:
    """The number of frames of each video, including frames that `frames` omits."""
    if videos.num_frames is not None:
        return videos.num_frames
    _, mask = frames_of(videos)
    return mask.sum(dim=1)


@runtime_checkable
class Encode(Protocol):
    """Runs an encoder on batches. It chooses the device and number format, and may divide the rows among processes."""

    def __call__(self, encoder: Callable[[R], E], rows: R, /) -> E:
        """The encodings of all rows."""


def encode_here(encoder: Callable[[R], E], rows: R, /) -> E:
    """Encode all rows in this process, on the device of the rows and in the number format of the rows."""
    return encoder(rows)
