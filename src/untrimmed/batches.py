"""The values that flow, with tensors inside: batches into a model, encodings out of it.

Axis legend as in `types.py`: Q queries, W words, V videos, L clips, T frames, D width; E and C are the widths of word
and frame features. Masks are True where something is real. All records are frozen; `to`, `select` and `cat` treat
every tensor field alike, so that a method may extend `EncodedQueries` or `EncodedVideos` with fields of its own and
the index and the evaluation still handle them.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

R = TypeVar("R", bound="Record")
E = TypeVar("E", bound="Record")


@dataclass(frozen=True, kw_only=True)
class Record:
    """Tensors that share their first axis: one row per query or video."""

    def tensors(self) -> dict[str, Tensor]:
        """The tensor fields that are set, by name."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, Tensor)}

    def __len__(self) -> int:
        return len(next(iter(self.tensors().values())))

    def to(self: R, device: torch.device | str, dtype: torch.dtype | None = None) -> R:
        """The same record on another device; `dtype` applies to floating-point fields only."""
        moved = {
            name: value.to(device, dtype if value.is_floating_point() else None, non_blocking=True)
            for name, value in self.tensors().items()
        }
        return dataclasses.replace(self, **moved)

    def select(self: R, rows: slice | Int[Tensor, " N"]) -> R:
        """The record of some rows, in the given order."""
        return dataclasses.replace(self, **{name: value[rows] for name, value in self.tensors().items()})

    @classmethod
    def cat(cls: type[R], records: Sequence[R]) -> R:
        """The rows of all records; second axes of different length are padded with zeros (False in masks)."""
        first = records[0]
        joined = {name: _cat_padded([record.tensors()[name] for record in records]) for name in first.tensors()}
        return dataclasses.replace(first, **joined)


def _cat_padded(tensors: Sequence[Tensor]) -> Tensor:
    if tensors[0].ndim < 2:
        return torch.cat(list(tensors))
    longest = max(tensor.shape[1] for tensor in tensors)
    return torch.cat([_pad_second_axis(tensor, longest) for tensor in tensors])


def _pad_second_axis(tensor: Tensor, length: int) -> Tensor:
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
class EncodedQueries(Record):
    """One vector a query, not normalised, and what else a model says of it; fields that it does not produce stay None.

    `words` are contextual word vectors, those that the mask excludes mean nothing; `word_weights` say how much each
    word counts in a score by words (they sum to 1); `uncertainty` is larger the less a query says, on a method's own
    scale. A method or an extension that needs other fields adds them here, or subclasses.
    """

    sentence: Float[Tensor, "Q D"]
    words: Float[Tensor, "Q W D"] | None = None
    word_mask: Bool[Tensor, "Q W"] | None = None
    word_weights: Float[Tensor, "Q W"] | None = None
    uncertainty: Float[Tensor, " Q"] | None = None


@dataclass(frozen=True, kw_only=True)
class EncodedVideos(Record):
    """What a model keeps of videos, not normalised; fields that a method does not produce stay None.

    `clips` have no mask; rows of `frames` that the mask excludes mean nothing; `video` is one vector for the whole.
    Where clips are prototypes, `unit_attention` says which share of each comes from which of the video's M units.
    """

    clips: Float[Tensor, "V L D"] | None = None
    frames: Float[Tensor, "V T D"] | None = None
    frame_mask: Bool[Tensor, "V T"] | None = None
    video: Float[Tensor, "V D"] | None = None
    unit_attention: Float[Tensor, "V M K"] | None = None


@runtime_checkable
class Encode(Protocol):
    """How batches go through an encoder: on which device, in which number format, shared among which processes."""

    def __call__(self, encoder: Callable[[R], E], rows: R, /) -> E:
        """The encodings of all rows."""


def encode_here(encoder: Callable[[R], E], rows: R, /) -> E:
    """The encodings where the rows are, in their own number format, by this process alone."""
    return encoder(rows)


def required(record: Record, field: str) -> Any:
    """A field that may be None but that the caller's method always sets."""
    value = getattr(record, field)
    assert value is not None, f"{type(record).__name__} has no {field}"
    return value
