"""Records of tensors: the input batches and the encodings of a model.

Axes: Q queries, W words, V videos, L clips, T frames, D width of the model, E width of word features, C width of frame
features. Masks are False for padding.

All records are frozen. The methods `to`, `select` and `cat` apply to every tensor field. Therefore a method can
subclass `EncodedQueries` or `EncodedVideos` and add fields, and an attachment can add a record.
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
        """Check that `record` is an instance of this class, and return it unchanged.

        Raises: ConfigError for a record of another class, for example the encodings of another method.
        """
        if not isinstance(record, cls):
            raise ConfigError(
                f"found {type(record).__name__}, expected {cls.__name__}; pass a model only its own encodings, or "
                "pass arrays to the model that untrimmed.load(RUN) returns"
            )
        return record

    def tensors(self) -> dict[str, Tensor]:
        """Return {field name: tensor} for all tensor fields that are not None."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, Tensor)}

    def with_tensors(self: R, tensors: Mapping[str, Tensor]) -> R:
        """Return a copy of the record that contains the given tensors. Keys are the same as in `tensors()`."""
        return dataclasses.replace(self, **tensors)

    def __len__(self) -> int:
        return len(next(iter(self.tensors().values())))

    def to(self: R, device: torch.device | str, dtype: torch.dtype | None = None) -> R:
        """Return a copy of the record on another device. `dtype` applies to floating-point fields only."""
        moved = {
            name: value.to(device, dtype if value.is_floating_point() else None, non_blocking=True)
            for name, value in self.tensors().items()
        }
        return self.with_tensors(moved)

    def select(self: R, rows: slice | Int[Tensor, " N"]) -> R:
        """Return a record of the selected rows, in the order of `rows`."""
        return self.with_tensors({name: value[rows] for name, value in self.tensors().items()})

    @classmethod
    def cat(cls: type[R], records: Sequence[R]) -> R:
        """Return one record with the rows of all `records`.

        If second axes have different lengths, they are padded with zeros (masks with False).
        """
        parts = [record.tensors() for record in records]
        return records[0].with_tensors({name: _cat_padded([part[name] for part in parts]) for name in parts[0]})


def _cat_padded(tensors: Sequence[Tensor]) -> Tensor:
    if tensors[0].ndim < 2:
        return torch.cat(list(tensors))
    longest = max(tensor.shape[1] for tensor in tensors)
    return torch.cat([with_second_axis(tensor, longest) for tensor in tensors])


def with_second_axis(tensor: Tensor, length: int) -> Tensor:
    """Return the tensor with its second axis cut to `length`, or padded to `length` with zeros (or False)."""
    missing = length - tensor.shape[1]
    return F.pad(tensor, [0, 0] * (tensor.ndim - 2) + [0, missing]) if missing else tensor


@dataclass(frozen=True, kw_only=True)
class QueryBatch(Record):
    """The zero-padded word features of queries.

    `teacher` contains another model's sentence vectors, for distillation.
    """

    words: Float[Tensor, "Q W E"]
    mask: Bool[Tensor, "Q W"]
    teacher: Float[Tensor, "Q S"] | None = None


@dataclass(frozen=True, kw_only=True)
class VideoBatch(Record):
    """The features of videos: a fixed number of clips per video, and frames zero-padded to the longest video.

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

    The other fields are annotations for losses. A field is None if the data set does not have the annotation.

    - `spans_s`: start and end of each query's main moment in seconds, NaN for a query without a moment.
    - `moments`: all moments of each query.
    - `durations_s`: length of each video in seconds, NaN if unknown.
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
        """Return a copy of the batch on another device."""
        tensors = {name: getattr(self, name) for name in ("video_index", "spans_s", "durations_s")}
        return dataclasses.replace(
            self,
            queries=self.queries.to(device),
            videos=self.videos.to(device),
            **{n: tensor.to(device, non_blocking=True) for n, tensor in tensors.items() if tensor is not None},
        )


@dataclass(frozen=True, kw_only=True)
class Encoded(Record):
    """The encodings of a method. `attached` contains the encodings of each attachment by name."""

    attached: Mapping[str, Record] = dataclasses.field(default_factory=dict)

    def attach(self: X, name: str, record: Record) -> X:
        """Return a copy that also contains the encodings of the attachment `name`."""
        return dataclasses.replace(self, attached={**self.attached, name: record})

    def tensors(self) -> dict[str, Tensor]:
        """Return {name: tensor} for all tensors.

        The names of an attachment's tensors begin with the attachment's name, for example `ral.words`.
        """
        attached = ((name, record.tensors()) for name, record in self.attached.items())
        return super().tensors() | {
            f"{name}.{key}": value for name, tensors in attached for key, value in tensors.items()
        }

    def with_tensors(self: X, tensors: Mapping[str, Tensor]) -> X:
        """Return a copy that contains the given tensors. Keys are the same as in `tensors()`."""
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
    """One vector per query, not normalised. Methods that encode a query as more vectors define a subclass."""

    sentence: Float[Tensor, "Q D"]


@dataclass(frozen=True, kw_only=True)
class EncodedVideos(Encoded):
    """The encodings of videos that attachments and search use. A field is None if the method does not compute it.

    The vectors are not normalised. There is no mask for `clips`. Values of `frames` outside `frame_mask` are undefined.
    Methods that compute other encodings define a subclass.
    """

    clips: Float[Tensor, "V L D"] | None = None
    frames: Float[Tensor, "V T D"] | None = None
    frame_mask: Bool[Tensor, "V T"] | None = None
    # number of frames of each video if `frames` omits some of them; if this is None, `frame_mask` gives the number
    num_frames: Int[Tensor, " V"] | None = None


def clips_of(videos: EncodedVideos) -> Float[Tensor, "V L D"]:
    """Return `videos.clips`, for retrieval methods that always set this field."""
    assert videos.clips is not None
    return videos.clips


def frames_of(videos: EncodedVideos) -> tuple[Float[Tensor, "V T D"], Bool[Tensor, "V T"]]:
    """Return `videos.frames` and `videos.frame_mask`, for retrieval methods that always set these fields."""
    assert videos.frames is not None
    assert videos.frame_mask is not None
    return videos.frames, videos.frame_mask


def num_frames_of(videos: EncodedVideos) -> Int[Tensor, " V"]:
    """Return the number of frames of each video, including frames that `frames` omits."""
    if videos.num_frames is not None:
        return videos.num_frames
    _, mask = frames_of(videos)
    return mask.sum(dim=1)


@runtime_checkable
class Encode(Protocol):
    """A function that runs an encoder on a record.

    The function chooses the device and the number format, and may divide the rows among processes.
    """

    def __call__(self, encoder: Callable[[R], E], rows: R, /) -> E:
        """Return the encodings of all rows."""


def encode_here(encoder: Callable[[R], E], rows: R, /) -> E:
    """Return the encodings of all rows, computed in this process on the device of `rows`."""
    return encoder(rows)
