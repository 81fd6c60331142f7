"""What is asked and answered, with units in the names of fields; the same names as `--json` prints (docs/json.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import numpy as np
from jaxtyping import Float, UInt8
from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, create_model

from untrimmed.search.query.hits import Hits
from untrimmed.search.query.query import LONGEST_TEXT, Cutoff, Filters, Place, Query, Weights, specs
from untrimmed.search.store.records import VideoRecord

VIDEO_ID = r"^[0-9a-f]{16}$"

VideoId = Annotated[str, Field(pattern=VIDEO_ID, examples=["5f0c9a1be2d34477"])]
Seconds = Annotated[float, Field(ge=0, le=1e7, allow_inf_nan=False)]
Name = Annotated[  # of a file, which may be no UTF-8: JSON cannot hold its bytes, as `--json` they are escaped
    str, PlainSerializer(lambda text: text.encode("utf-8", "backslashreplace").decode(), return_type=str)
]
Sentence = Annotated[str, Field(min_length=1, max_length=LONGEST_TEXT)]


class Asked(BaseModel):
    """What a client sends: only fields that are known, of the types named."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class AskedPlace(Asked):
    """A moment of an indexed video, or with no end the frame at a time."""

    video_id: VideoId
    start_s: Seconds
    end_s: Seconds | None = None


def asked_fields(owner: type, **changes: tuple[object, int]) -> dict[str, Any]:
    """The fields of a part of a query as JSON has them; `changes` gives some another default and upper bound."""
    made = {}
    for name, (kind, spec) in specs(owner).items():
        if spec.is_json:
            served = spec.served if spec.most is None else spec.most
            default, most = changes.get(name, (getattr(owner, name), served))
            has_length = kind is str or str in get_args(kind) or get_origin(kind) is tuple
            bounds: dict[str, Any] = (
                {"min_length": spec.least, "max_length": most} if has_length else {"ge": spec.least, "le": most}
            )
            help = f"`{get_args(kind)[1]}`: {spec.help}" if get_origin(kind) is Literal else spec.help
            if kind in _LISTS:
                kind, default = _LISTS[kind], []
            elif kind in _ASKED:
                kind, default = _ASKED[kind], _ASKED[kind]()
            elif str in get_args(kind):
                kind = str | None
            made[name] = (kind, Field(default, description=help, gt=spec.above, **bounds))
    return made


_LISTS: dict[Any, Any] = {tuple[str, ...]: list[Sentence], tuple[Place, ...]: list[AskedPlace]}
_ASKED: dict[Any, Any] = {}
for _part in (Weights, Filters):
    _ASKED[_part] = create_model(f"Asked{_part.__name__}", __base__=Asked, __doc__=_part.__doc__, **asked_fields(_part))
_Searched: Any = create_model("_Searched", __base__=Asked, **asked_fields(Query), **asked_fields(Cutoff))


class SearchRequest(_Searched):
    """What is searched for: the parts of `untrimmed.Query`, each under its name there."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"text": "a dog jumps into a lake", "then": "the dog shakes itself", "without": ["a person"]},
                {"like": [{"video_id": "5f0c9a1be2d34477", "start_s": 12.5, "end_s": 16.0}], "limit": 10},
            ]
        }
    )

    def query(self, image: UInt8[np.ndarray, "Y X 3"] | None = None) -> Query:
        """The same as the library takes it.

        Raises:
            ConfigError: Its parts make no sense together.
        """
        query: Query = _read(Query, self, image=image)
        return query

    def cutoff(self) -> Cutoff:
        """How many hits at most."""
        cutoff: Cutoff = _read(Cutoff, self)
        return cutoff


def _read(owner: type, asked: Asked, **more: object) -> Any:
    parts = {name: (kind, getattr(asked, name)) for name, (kind, spec) in specs(owner).items() if spec.is_json}
    values = {name: _read(kind, one) if kind in _ASKED else _taken(one) for name, (kind, one) in parts.items()}
    return owner(**values, **more)


def _taken(value: Any) -> Any:
    if isinstance(value, AskedPlace):
        return Place(value.video_id, value.start_s, value.end_s)
    return tuple(map(_taken, value)) if isinstance(value, list) else value


class FoundMoment(BaseModel):
    """A span of a video, in seconds from its first frame."""

    start_s: float
    end_s: float
    score: float = Field(description="How well it fits, as docs/json.md says; compare it within one search.")


class FoundVideo(BaseModel):
    """A video that fits, and where in it."""

    rank: int
    video: str = Field(description="The file's path on the machine of the service.")
    video_id: str
    score: float = Field(description="How well the video fits, as docs/json.md says; compare it within one search.")
    duration_s: float
    start_s: float = Field(description="Of the first of `moments`.")
    end_s: float
    moments: list[FoundMoment] = Field(description="The clearest first.")
    confidence: float | None = Field(description="The chance that it holds what was asked for, where known.")
    then: list[FoundMoment] | None = Field(
        default=None, description="What follows each of them, where that was asked for."
    )
    folded: list[str] | None = Field(
        default=None, description="Videos with nothing but moments that look like one of this."
    )


class Word(BaseModel):
    """A word of the sentence, and how much it counts beside the others."""

    word: str
    weight: float


class SearchAnswer(BaseModel):
    """Videos, best first, each with its moments."""

    warnings: list[str] = Field(
        description="One line each: words that the encoder does not know or read, an ambiguous sentence."
    )
    partial: bool = Field(description="Whether a shard of the library did not answer.")
    hits: list[FoundVideo]
    took_s: float = Field(description="How long the search took.")
    words: list[Word] | None = Field(default=None, description="Of the sentence, where a trained model weighs them.")

    @classmethod
    def of(cls, hits: Hits, took_s: float) -> SearchAnswer:
        """Hits as they are answered."""
        return cls(**hits.to_json(), took_s=round(took_s, 4))


class SearchLine(BaseModel):
    """A line of a search that is answered as it goes: one of these."""

    hit: FoundVideo | None = Field(default=None, description="Known already: the next of the best, by `rank`.")
    answer: SearchAnswer | None = Field(default=None, description="The last line: all of it, and what counts.")
    problem: str | None = Field(default=None, description="The last line, where the search failed on the way.")


class Video(BaseModel):
    """An indexed video."""

    video_id: str = Field(description="Opaque; it stays when the file is renamed, moved or changed.")
    video: str = Field(description="The file's path on the machine of the service.")
    duration_s: float
    width: int
    height: int
    size: int = Field(description="Of the file, in bytes.")
    num_frames: int = Field(description="How many frames were looked at.")
    sampling: str
    indexed_at: float = Field(description="Seconds since 1970, UTC.")
    warnings: str

    @classmethod
    def of(cls, record: VideoRecord) -> Video:
        """A record as it is answered."""
        return cls(
            video_id=record.video_id,
            video=record.path,
            duration_s=record.duration_s,
            width=record.width,
            height=record.height,
            size=record.size,
            num_frames=record.num_frames,
            sampling=record.sampling,
            indexed_at=record.indexed_at,
            warnings=record.warnings,
        )


class VideoList(BaseModel):
    """Some of the videos, by path."""

    total: int = Field(description="How many there are; the answer holds those from `offset` on.")
    videos: list[Video]


class VideoDetail(Video):
    """An indexed video, and its file as it is now."""

    can_be_read: bool = Field(description="Whether the file is there, as it was indexed.")
    problem: str | None = Field(description="Why not.")
    kind: str | None = Field(description="The media type by which it is served.")


class Curve(BaseModel):
    """How well each time of a video fits a sentence."""

    times_s: list[float]
    relevance: list[float]

    @classmethod
    def of(cls, times_s: Float[np.ndarray, " T"], relevance: Float[np.ndarray, " T"], points: int) -> Curve:
        """A curve as it is answered: of more than `points` times the best of each so many in a row."""
        if len(relevance) > points:
            starts = np.unique(np.linspace(0, len(relevance), points, endpoint=False).astype(int))
            times_s, relevance = times_s[starts], np.maximum.reduceat(relevance, starts)
        return cls(times_s=np.round(times_s, 3).tolist(), relevance=np.round(relevance, 5).tolist())


class Folder(BaseModel):
    """A folder that may be indexed from here: one that holds indexed videos, or was named at the start."""

    folder_id: str
    path: Name
    num_videos: int = Field(description="How many indexed videos lie below it.")


class JobRequest(Asked):
    """Folders to bring the library up to date with."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"folder_ids": ["8f14e45fceea167a"]}]})
    folder_ids: list[VideoId] = Field(min_length=1, max_length=100, description="See /api/folders.")


class FailedFile(BaseModel):
    """A file that could not be indexed, and why."""

    path: Name
    reason: Name


class Job(BaseModel):
    """An indexing run."""

    job_id: str
    paths: list[Name] = Field(description="The first of the folders and files that it looks through.")
    state: Literal["waiting", "running", "paused", "stopping", "done", "stopped", "failed"]
    position: int = Field(description="Files dealt with so far.")
    total: int
    num_done: int = Field(description="Files that were encoded.")
    num_skipped: int = Field(description="Files already known: unchanged, moved or copied.")
    num_moved: int = Field(description="Those of them that were found at a new place.")
    num_copied: int = Field(description="Those of them that are new, with the content of another file.")
    num_removed: int = Field(description="Videos that were forgotten, since their files are gone.")
    path: Name | None = Field(description="The file at work.")
    done_s: float = Field(description="Seconds of it encoded so far.")
    duration_s: float = Field(description="Its length.")
    failed: list[FailedFile] = Field(description="The first of those that could not be indexed.")
    num_failed: int
    problem: Name | None = Field(description="What ended the whole run.")
    notice: Name | None
    started_at: float | None = Field(description="Seconds since 1970, UTC.")
    ended_at: float | None


class Watch(BaseModel):
    """A folder whose new, changed and removed videos are indexed by themselves."""

    folder_id: str
    path: Name
    state: Literal["watching", "polling", "missing"] = Field(
        description="`polling`: it is looked through every few seconds, since the system does not tell of its changes; "
        "`missing`: it is not there, and is waited for."
    )
    problem: Name | None = Field(description="Why it is looked through, where that was not to be expected.")
    waiting: list[Name] = Field(description="What has changed and is waited for, until it has come to rest.")
    failed: list[FailedFile] = Field(description="Videos that could not be indexed, and have not changed since.")
    job_id: str | None = Field(description="The last run that changes in any watched folder have started.")


class Mark(Asked):
    """A moment in the basket."""

    video_id: VideoId
    start_s: Seconds
    end_s: Seconds
    note: str = Field(default="", max_length=500)


class ExportRequest(Asked):
    """Moments to be written as a file of some format."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"format": "csv", "moments": [{"video_id": "5f0c9a1be2d34477", "start_s": 12.5, "end_s": 16.0}]}
            ]
        }
    )
    format: Literal["clips", "csv", "json", "srt", "chapters", "edl", "otio"]
    moments: list[Mark] = Field(min_length=1, max_length=500)


class Facts(BaseModel):
    """What is served."""

    library: str = Field(description="Its folder, or its address on object storage.")
    version: str = Field(description="Of untrimmed.")
    num_videos: int
    duration_s: float = Field(description="Of all videos together.")
    encoder: str | None
    model: str | None
    sampling: str | None


class Health(BaseModel):
    """Whether searches can be answered."""

    status: Literal["ok", "empty"]
    num_videos: int


def file_name(path: str) -> str:
    """A video's name for that of a file that is made of it: no folders, nothing that a file system refuses.

    It has 60 letters and 200 bytes at most: names of files have 255, and span, number and suffix are to follow.
    """
    stem = "".join(letter if letter.isalnum() or letter in " ._-" else "_" for letter in Path(path).stem)
    return stem[:60].encode()[:200].decode(errors="ignore").strip(" .") or "video"
