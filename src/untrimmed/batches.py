"""The values that flow, with tensors inside: batches into a model, encodings out of it.

Axis legend as in `types.py`: Q queries, W words, V videos, L clips, T frames, D width; E and C are the widths of word
and frame features. Masks are True where something is real. All records are frozen; `to`, `select` and `cat` treat
every tensor alike, so that a method may extend `EncodedQueries` or `EncodedVideos` with fields of its own, and an
attachment keep a record beside them, and the index and the evaluation still handle them.
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
        """The record, which must be of this class: how a method takes batches, and encodings as its own.

        Raises: ConfigError for another, for instance encodings of another method.
        """
        if not isinstance(record, cls):
            what = f"found {type(record).__name__}, wanted {cls.__name__}"
            raise ConfigError(f"{what}: of another model? An untrimmed.load(RUN) takes arrays, and what it encoded")
        return record

    def tensors(self) -> dict[str, Tensor]:
        """The tensor fields that are set, by name."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, Tensor)}

    def with_tensors(self: R, tensors: Mapping[str, Tensor]) -> R:
        """The same record with other tensors under the names that `tensors` gives its own."""
        return dataclasses.replace(self, **tensors)

    def __len__(self) -> int:
        return len(next(iter(self.tensors().values())))

    def to(self: R, device: torch.device | str, dtype: torch.dtype | None = None) -> R:
        """The same record on another device; `dtype` applies to floating-point fields only."""
        moved = {
            name: value.to(device, dtype if value.is_floating_point() else None, non_blocking=True)
            for name, value in self.tensors().items()
        }
        return self.with_tensors(moved)

    def select(self: R, rows: slice | Int[Tensor, " N"]) -> R:
        """The record of some rows, in the given order."""
        return self.with_tensors({name: value[rows] for name, value in self.tensors().items()})

    @classmethod
    def cat(cls: type[R], records: Sequence[R]) -> R:
        """The rows of all records; second axes of different length are padded with zeros (False in masks)."""
        parts = [record.tensors() for record in records]
        return records[0].with_tensors({name: _cat_padded([part[name] for part in parts]) for name in parts[0]})


def _cat_padded(tensors: Sequence[Tensor]) -> Tensor:
    if tensors[0].ndim < 2:
        return torch.cat(list(tensors))
    longest = max(tensor.shape[1] for tensor in tensors)
    return torch.cat([with_second_axis(tensor, longest) for tensor in tensors])


def with_second_axis(tensor: Tensor, length: int) -> Tensor:
    """The tensor with a second axis of that length: padded with zeros (False), or cut."""
    missing = length - tensor.shape[1]
    return F.pad(tensor, [0, 0] * (tensor.ndim - 2) + [0, missing]) if missing else tensor


@dataclass(frozen=True, kw_only=True)
class QueryBatch(Record):
    """Word features of queries, zero-padded; `teacher` holds sentence vectors of another model, for distillation."""

    words: Float[Tensor, "Q W E"]
    mask: Bool[Tensor, "Q W"]
    teacher: Float[Tensor, "Q S"] | None = None


@dataclass(frozen=True, kw_only=True)
class VideoBatch(Record):
    """Features of videos: segment means (`clips`, always complete) and frames, zero-padded to the longest.

    `teacher` holds frame vectors of another model at the same time points, for distillation.
    """

    clips: Float[Tensor, "V L C"]
    frames: Float[Tensor, "V T C"]
    frame_mask: Bool[Tensor, "V T"]
    teacher: Float[Tensor, "V N S"] | None = None
    teacher_mask: Bool[Tensor, "V N"] | None = None


@dataclass(frozen=True, kw_only=True)
class TrainingBatch:
    """Videos with all their queries; `video_index[q]` is the row of the video that query q describes."""

    queries: QueryBatch
    videos: VideoBatch
    video_index: Int[Tensor, " Q"]

    def to(self, device: torch.device | str) -> "TrainingBatch":
        """The same batch on another device."""
        return TrainingBatch(
            queries=self.queries.to(device),
            videos=self.videos.to(device),
            video_index=self.video_index.to(device, non_blocking=True),
        )


@dataclass(frozen=True, kw_only=True)
class Encoded(Record):
    """Encodings of a method, and beside them those of what is attached to it, by the attachment's name."""

    attached: Mapping[str, Record] = dataclasses.field(default_factory=dict)

    def attach(self: X, name: str, record: Record) -> X:
        """The same encodings with those of an attachment beside them."""
        return dataclasses.replace(self, attached={**self.attached, name: record})

    def tensors(self) -> dict[str, Tensor]:
        """All tensors by name; those of an attachment behind its name and a dot: `ral.words`."""
        parts = ((name, part.tensors()) for name, part in self.attached.items())
        return super().tensors() | {f"{name}.{key}": value for name, part in parts for key, value in part.items()}

    def with_tensors(self: X, tensors: Mapping[str, Tensor]) -> X:
        """The same encodings with other tensors under the names that `tensors` gives them."""
        own = {name: value for name, value in tensors.items() if "." not in name}
        attached = {
            name: part.with_tensors(
                {key.removeprefix(f"{name}."): value for key, value in tensors.items() if key.startswith(f"{name}.")}
            )
            for name, part in self.attached.items()
        }
        return dataclasses.replace(self, **own, attached=attached)


@dataclass(frozen=True, kw_only=True)
class EncodedQueries(Encoded):
    """One vector a query, not normalised. A method that says more of a query subclasses, beside its class."""

    sentence: Float[Tensor, "Q D"]


@dataclass(frozen=True, kw_only=True)
class EncodedVideos(Encoded):
    """What attachments and search may find of videos whatever the method; what it does not produce stays None.

    Not normalised. `clips` have no mask; rows of `frames` that the mask excludes mean nothing. A method that keeps more
    subclasses, beside its class, and gives what it always produces a type without None.
    """

    clips: Float[Tensor, "V L D"] | None = None
    frames: Float[Tensor, "V T D"] | None = None
    frame_mask: Bool[Tensor, "V T"] | None = None
    num_frames: Int[Tensor, " V"] | None = None  # where `frames` are some of them; else the mask tells


def clips_of(videos: EncodedVideos) -> Float[Tensor, "V L D"]:
    """The clips of videos, where the model keeps them for certain."""
    assert videos.clips is not None
    return videos.clips


def frames_of(videos: EncodedVideos) -> tuple[Float[Tensor, "V T D"], Bool[Tensor, "V T"]]:
    """The frames of videos and their mask, where the model keeps them for certain."""
    assert videos.frames is not None
    assert videos.frame_mask is not None
    return videos.frames, videos.frame_mask


def num_frames_of(videos: EncodedVideos) -> Int[Tensor, " V"]:
    """How many frames each video has, all of them counted."""
    if videos.num_frames is not None:
        return videos.num_frames
    _, mask = frames_of(videos)
    return mask.sum(dim=1)


@runtime_checkable
class Encode(Protocol):
    """How batches go through an encoder: on which device, in which number format, shared among which processes."""

    def __call__(self, encoder: Callable[[R], E], rows: R, /) -> E:
        """The encodings of all rows."""


def encode_here(encoder: Callable[[R], E], rows: R, /) -> E:
    """The encodings where the rows are, in their own number format, by this process alone."""
    return encoder(rows)
