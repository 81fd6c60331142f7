"""The requests and responses of the service.

Field names contain units and match the output of `--json` (docs/json.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, get_args, get_origin

import numpy as np
from jaxtyping import Float, UInt8
from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, create_model

from untrimmed.passages.passage import Mode, Passage, TextMode
from untrimmed.passages.words import TextQuery, words_strength
from untrimmed.search.query.hits import Hits
from untrimmed.search.query.query import LONGEST_TEXT, Cutoff, Filters, Place, Query, Weights, choices_of, specs
from untrimmed.search.store.bins import MAX_MOMENTS, MAX_NAME, Bin, BinMoment
from untrimmed.search.store.records import Records, VideoRecord

VIDEO_ID = r"^[0-9a-f]{16}$"

VideoId = Annotated[str, Field(pattern=VIDEO_ID, examples=["5f0c9a1be2d34477"])]
MAX_SECONDS = 1e7
Seconds = Annotated[float, Field(ge=0, le=MAX_SECONDS, allow_inf_nan=False)]
Name = Annotated[  # a text that may contain a path; bytes that are not valid UTF-8 are escaped
    str, PlainSerializer(lambda text: text.encode("utf-8", "backslashreplace").decode(), return_type=str)
]
Sentence = Annotated[str, Field(min_length=1, max_length=LONGEST_TEXT)]


class RequestModel(BaseModel):
    """Base of requests: unknown fields and values of another type are rejected."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class PlaceJson(RequestModel):
    """A moment of an indexed video, or a single frame if there is no end."""

    video_id: VideoId
    start_s: Seconds
    end_s: Seconds | None = None


def request_fields(owner: type, *, for_display: bool = True, **changes: tuple[object, int]) -> dict[str, Any]:
    """Return the JSON fields for a part of a query, as arguments for pydantic's `create_model`.

    Args:
        for_display: Whether to include the fields that are only needed to display hits.
        changes: Field name -> default and upper bound. They replace the default and upper bound in the query.
    """
    fields = {}
    for name, (kind, spec) in specs(owner).items():
        if spec.is_json and (for_display or not spec.is_for_display):
            upper_bound = spec.service_maximum if spec.maximum is None else spec.maximum
            default, maximum = changes.get(name, (getattr(owner, name), upper_bound))
            has_length = kind is str or str in get_args(kind) or get_origin(kind) is tuple
            bounds: dict[str, Any] = (
                {"min_length": spec.minimum, "max_length": maximum}
                if has_length
                else {"ge": spec.minimum, "le": maximum}
            )
            if kind not in _LISTS and (choices := choices_of(kind)):
                # set the bounds for the number only, because pydantic would also compare a word with the bounds
                kind = Annotated[int, Field(**bounds)] | Literal[choices]
                bounds = {}
            help = f"`{get_args(kind)[1]}`: {spec.help}" if get_origin(kind) is Literal else spec.help
            if kind in _LISTS:
                kind = _LISTS[kind]
                default = []
            elif kind in _REQUEST_MODELS:
                kind = _REQUEST_MODELS[kind]
                default = kind()
            elif str in get_args(kind):
                kind = str | None
            unit: dict[str, Any] | None = {"x-unit": spec.unit} if spec.unit else None
            fields[name] = (kind, Field(default, description=help, gt=spec.above, json_schema_extra=unit, **bounds))
    return fields


_LISTS: dict[Any, Any] = {
    tuple[str, ...]: list[Sentence],
    tuple[Place, ...]: list[PlaceJson],
    tuple[Mode, ...]: list[Mode],
}
_REQUEST_MODELS: dict[Any, Any] = {}
for _part in (Weights, Filters):
    _REQUEST_MODELS[_part] = create_model(
        f"{_part.__name__}Json", __base__=RequestModel, __doc__=_part.__doc__, **request_fields(_part)
    )
_SearchFields: Any = create_model(
    "_SearchFields", __base__=RequestModel, **request_fields(Query), **request_fields(Cutoff)
)


class SearchRequest(_SearchFields):
    """A search: the fields of `untrimmed.Query`."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"text": "a dog jumps into a lake", "then": "the dog shakes itself", "without": ["a person"]},
                {"like": [{"video_id": "5f0c9a1be2d34477", "start_s": 12.5, "end_s": 16.0}], "limit": 10},
            ]
        }
    )

    def query(self, image: UInt8[np.ndarray, "Y X 3"] | None = None) -> Query:
        """Convert the request to a query for the library.

        Raises:
            ConfigError: The parts cannot be combined.
        """
        query: Query = _read(Query, self, image=image)
        return query

    def cutoff(self) -> Cutoff:
        """Return the limits that the request sets on hits."""
        cutoff: Cutoff = _read(Cutoff, self)
        return cutoff


def _read(owner: type, request: RequestModel, **extra: object) -> Any:
    parts = {name: (kind, getattr(request, name)) for name, (kind, spec) in specs(owner).items() if spec.is_json}
    values = {
        name: _read(kind, part) if kind in _REQUEST_MODELS else _to_query(part) for name, (kind, part) in parts.items()
    }
    return owner(**values, **extra)


def _to_query(value: Any) -> Any:
    if isinstance(value, PlaceJson):
        return Place(value.video_id, value.start_s, value.end_s)
    return tuple(map(_to_query, value)) if isinstance(value, list) else value


class WordPlace(BaseModel):
    """A word of a text: `text[start:end]`."""

    start: int
    end: int


class MatchedWordJson(WordPlace):
    """A word of the query in the passage, and the time when it is said, if known."""

    start_s: float | None
    end_s: float | None


class PassageJson(BaseModel):
    """A passage of a video: its text and its span in seconds."""

    mode: Mode
    start_s: float
    end_s: float
    text: str = Field(description="The passage. It may contain any characters, so escape it.")
    source: str = Field(description="The source of the passage, such as subtitle.")
    language: str


class EvidenceJson(PassageJson):
    """Why a moment matches: its pictures match, or the text of a passage that is said or written in it."""

    words: list[MatchedWordJson]


class TranscriptLine(PassageJson):
    """A passage of a transcript, and how well it matches the sentences of the request."""

    mode: TextMode
    track: str = Field(description="The stream or file that contains the passage, such as film.en.srt; may be empty.")
    words: list[WordPlace] = Field(description="The words of the passage that a sentence of the request contains.")
    strength: float = Field(description="How strongly the best-matching sentence matches the passage, from 0 to 1.")

    @classmethod
    def of(cls, mode: TextMode, passage: Passage, queries: Sequence[TextQuery]) -> TranscriptLine:
        """Create the line for a passage, with the words that also occur in the queries."""
        words = sorted({(word.start, word.end) for query in queries for word in query.matches(passage.text)})
        strengths = [words_strength(query, passage.text) for query in queries]
        return cls(
            mode=mode,
            **{name: getattr(passage, name) for name in ("start_s", "end_s", "text", "source", "language", "track")},
            words=[WordPlace(start=start, end=end) for start, end in words],
            strength=round(max(strengths, default=0.0), 3),
        )


class MomentJson(BaseModel):
    """A span of a video, in seconds from its first frame."""

    start_s: float
    end_s: float
    score: float = Field(description="How well the moment matches (docs/json.md). Comparable within one search only.")
    peak_s: float = Field(description="The most relevant time. Use it for a picture, and to start playback.")
    evidence: list[EvidenceJson] | None = Field(
        default=None, description="Why the moment matches, the strongest reason first, if passages were searched."
    )


class Span(BaseModel):
    """A span of a video, in seconds from its first frame."""

    start_s: float
    end_s: float


class HitJson(BaseModel):
    """A video that matches, with its moments."""

    rank: int
    video: str = Field(description="Path of the file on the machine of the service.")
    video_id: str
    score: float = Field(description="How well the video matches (docs/json.md). Comparable within one search only.")
    duration_s: float
    start_s: float = Field(description="Start of the best moment.")
    end_s: float
    peak_s: float = Field(description="The most relevant time of the best moment.")
    moments: list[MomentJson] = Field(description="Best first, or in time order if all moments were requested.")
    confidence: float | None = Field(description="Probability that the video matches, if known.")
    then: list[MomentJson] | None = Field(
        default=None, description="The follow-up of each moment, if `then` was given."
    )
    width: int = Field(default=0, description="Width of the picture in pixels; 0 if it is unknown.")
    height: int = 0
    curve: list[float] | None = Field(
        default=None,
        description="Only if requested: the maximum relevance of the pictures in each of `curve_points` equal parts of "
        "the video. The largest value is `score`, unless a passage raises the score. If only passages are searched, "
        "each value is the strength of the best passage in its part.",
    )
    folded: list[str] | None = Field(
        default=None, description="Paths of near-duplicates: each of their moments looks like a moment of this video."
    )


class WordWeight(BaseModel):
    """A word of the sentence and its weight."""

    word: str
    weight: float


class SearchAnswer(BaseModel):
    """Hits, best first."""

    warnings: list[str] = Field(
        description="One line each: unknown words, words beyond the encoder's limit, an ambiguous sentence."
    )
    partial: bool = Field(description="Whether videos are missing because a shard of the library did not respond.")
    filters_exclude_all: bool = Field(default=False, description="Whether no video of the library meets the filters.")
    hits: list[HitJson]
    took_s: float = Field(description="Duration of the search.")
    words: list[WordWeight] | None = Field(
        default=None, description="The words of the sentence with weights, if a trained model weights them."
    )

    @classmethod
    def of(cls, hits: Hits, took_s: float) -> SearchAnswer:
        """Create the response for hits."""
        return cls(**hits.to_json(), took_s=round(took_s, 4))


class SearchLine(BaseModel):
    """A line of a streamed search. Exactly one field is set."""

    hit: HitJson | None = Field(default=None, description="The next hit, in the order of `rank`.")
    answer: SearchAnswer | None = Field(
        default=None, description="In the last line: the complete answer. It takes precedence over earlier lines."
    )
    problem: str | None = Field(default=None, description="In the last line, if the search failed: the reason.")


class Video(BaseModel):
    """An indexed video."""

    video_id: str = Field(description="Opaque id. It stays the same if the file is renamed, moved or changed.")
    video: str = Field(description="Path of the file on the machine of the service.")
    duration_s: float
    width: int
    height: int
    size: int = Field(description="File size in bytes.")
    num_frames: int = Field(description="Number of indexed frames.")
    sampling: str
    indexed_at: float = Field(description="Seconds since 1970, UTC.")
    warnings: str
    frame_rate: str = Field(
        description="Frames per second as a fraction, such as 30000/1001; empty if the video was indexed before the "
        "rate was stored."
    )
    has_variable_rate: bool = Field(description="Whether the frame rate varies. `frame_rate` is then the mean.")
    start_timecode: str = Field(description="Timecode of the first frame, or empty.")
    num_audio_tracks: int

    @classmethod
    def of(cls, record: VideoRecord) -> Video:
        """Create the response for a record."""
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
            frame_rate=record.frame_rate,
            has_variable_rate=record.has_variable_rate,
            start_timecode=record.start_timecode,
            num_audio_tracks=record.num_audio_tracks,
        )


class VideoList(BaseModel):
    """One page of the matching videos, sorted by path."""

    total: int = Field(description="Number of all matching videos; `videos` is the page that starts at `offset`.")
    videos: list[Video]


class VideoDetail(Video):
    """An indexed video and the state of its file."""

    can_be_read: bool = Field(
        description="Whether the file exists and is unchanged since it was indexed; false for folders of pictures."
    )
    problem: str | None = Field(description="Why the file cannot be read.")
    kind: str | None = Field(description="Media type of the file.")
    picture_start_s: float = Field(
        description="Seconds of sound that players play before the first frame. Other times count from that frame."
    )


class ThumbnailSheets(BaseModel):
    """The stored pictures of a video, if any. Picture i is in cell i % 100 of sheet i // 100. A row has ten cells."""

    version: str = Field(
        description="Changes whenever the pictures change. Browsers cache URLs that contain the version permanently."
    )
    times_s: list[float] = Field(description="The time of each picture, in order.")
    width: int = Field(description="Width of a picture, in pixels.")
    height: int


class RelevanceCurve(BaseModel):
    """How well each time of a video matches a sentence."""

    times_s: list[float]
    relevance: list[float]

    @classmethod
    def of(cls, times_s: Float[np.ndarray, " T"], relevance: Float[np.ndarray, " T"], points: int) -> RelevanceCurve:
        """Create a curve with at most `points` points.

        Each point is the maximum over several consecutive times.
        """
        if len(relevance) > points:
            starts = np.unique(np.linspace(0, len(relevance), points, endpoint=False).astype(int))
            times_s, relevance = times_s[starts], np.maximum.reduceat(relevance, starts)
        return cls(times_s=np.round(times_s, 3).tolist(), relevance=np.round(relevance, 5).tolist())


class Folder(BaseModel):
    """A folder that may be indexed: it has indexed videos, was chosen on the page, or was set at the start."""

    folder_id: str
    path: Name
    num_videos: int = Field(description="Number of indexed videos in the folder.")


class NamedFolder(BaseModel):
    """A folder on the machine of the service."""

    folder_id: str = Field(description="Opaque id. Also accepted by /api/jobs and /api/watches.")
    name: Name
    path: Name


class CountedFolder(NamedFolder):
    """A folder and the number of video files in it and its subfolders."""

    num_videos: int | None = Field(description="Number of files counted within a time limit; null if not counted.")
    is_complete: bool = Field(description="Whether all files were counted within the time limit.")
    is_silent: bool = Field(
        description="Whether the folder could not be read in time, for example on a disconnected network disk."
    )


class FolderListing(BaseModel):
    """A folder, and the folders in it that can be chosen. Hidden folders are left out."""

    folder: CountedFolder | None = Field(description="This folder; null if `folders` lists the topmost folders.")
    parents: list[NamedFolder] = Field(description="The folders that contain this folder, the topmost first.")
    folders: list[CountedFolder] = Field(description="Sorted by name.")
    num_omitted: int = Field(description="Number of folders that are not listed because there are too many.")


class FolderQuery(RequestModel):
    """The name of a folder or file that a user dropped on the page. Browsers only reveal the name, not the path."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "Holiday 2026"}]})
    name: str = Field(min_length=1, max_length=255)


class RemovedVideos(BaseModel):
    """The result of removing a folder from the library."""

    num_removed: int


class JobRequest(RequestModel):
    """Folders to index or watch."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"folder_ids": ["8f14e45fceea167a"]}]})
    folder_ids: list[VideoId] = Field(min_length=1, max_length=100, description="Ids from /api/folders or /api/browse.")


class FailedFile(BaseModel):
    """A file that could not be indexed, and why."""

    path: Name
    reason: Name


class Job(BaseModel):
    """An indexing run."""

    job_id: str
    paths: list[Name] = Field(description="The first folders and files of the run.")
    state: Literal["waiting", "running", "paused", "stopping", "done", "stopped", "failed"]
    position: int = Field(description="Files processed so far.")
    total: int
    num_done: int = Field(description="Files that were encoded.")
    num_skipped: int = Field(description="Files that were already indexed: unchanged, moved or copied.")
    num_moved: int = Field(description="Skipped files that were moved.")
    num_copied: int = Field(description="Skipped files that are copies of other files.")
    num_removed: int = Field(description="Videos removed because their files were deleted.")
    path: Name | None = Field(description="The current file.")
    done_s: float = Field(description="Seconds of the current file encoded so far.")
    duration_s: float = Field(description="Length of the current file.")
    video_s: float = Field(description="Seconds of video encoded by the run so far.")
    speed: float | None = Field(description="Seconds of video encoded per second, without pauses; null at first.")
    remaining_s: float | None = Field(
        description="Estimated seconds until the end of the run; null until an estimate is possible."
    )
    failed: list[FailedFile] = Field(description="The first files that could not be indexed.")
    num_failed: int
    problem: Name | None = Field(description="Why the run failed.")
    notice: Name | None
    started_at: float | None = Field(description="Seconds since 1970, UTC.")
    ended_at: float | None


class Watch(BaseModel):
    """A folder whose changes are indexed automatically."""

    folder_id: str
    path: Name
    state: Literal["watching", "polling", "missing"] = Field(
        description="`polling`: the folder is scanned every few seconds, because the system does not report changes. "
        "`missing`: the folder does not exist at the moment."
    )
    problem: Name | None = Field(description="Why a local folder has to be scanned.")
    waiting: list[Name] = Field(description="Changed paths that will be indexed once they stop changing.")
    failed: list[FailedFile] = Field(description="Videos that could not be indexed and have not changed since then.")
    job_id: str | None = Field(description="The last run that was started by a change in any watched folder.")


class Mark(RequestModel):
    """A moment to export."""

    video_id: VideoId
    start_s: Seconds
    end_s: Seconds
    note: str = Field(default="", max_length=500)


Marks = Annotated[list[Mark], Field(min_length=1, max_length=500)]
ExportFormat = Literal["otio", "edl", "xml", "fcpxml", "kdenlive", "csv", "json", "srt", "vtt", "chapters"]
FrameRate = Annotated[
    Literal["23.976", "24", "25", "29.97", "29.97df", "30", "50", "59.94", "59.94df", "60"],
    Field(
        description="Frames per second of a timeline; `df` means drop-frame timecode. Default: the videos' most "
        "common rate."
    ),
]


class ExportRequest(RequestModel):
    """Moments to export, and the format."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"format": "csv", "moments": [{"video_id": "5f0c9a1be2d34477", "start_s": 12.5, "end_s": 16.0}]}
            ]
        }
    )
    format: Literal["clips", ExportFormat]
    moments: Marks
    rate: FrameRate | None = None
    title: str = Field(default="", max_length=MAX_NAME, description="The name of the timeline in editors.")


class BinMomentRequest(Mark):
    """A moment to store in a bin."""

    sentence: str = Field(default="", max_length=LONGEST_TEXT, description="The sentence that found the moment.")
    video: str = Field(
        default="",
        max_length=5000,
        description="Path of the file, as in search results. The path is stored if the video is not in the library.",
    )


class BinRequest(RequestModel):
    """The name and all moments of a bin, in order."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "Trailer",
                    "moments": [{"video_id": "5f0c9a1be2d34477", "start_s": 12.5, "end_s": 16.0, "note": "opening"}],
                }
            ]
        }
    )
    name: str = Field(min_length=1, max_length=MAX_NAME, description="Names of bins are unique in a library.")
    moments: list[BinMomentRequest] = Field(max_length=MAX_MOMENTS)


BinVersion = Annotated[
    str,
    Field(
        max_length=64,
        description="The last known `version` of the bin. If the bin has another version, the status is 412.",
    ),
]


class BinReplacement(BinRequest):
    """The new name and all moments of a bin, in order."""

    version: BinVersion


class BinMomentJson(BaseModel):
    """A moment in a bin."""

    video_id: str
    video: Name = Field(description="Path of the file on the machine of the service.")
    start_s: float
    end_s: float
    note: str
    sentence: str
    is_missing: bool = Field(description="Whether the video was removed from the library.")

    @classmethod
    def of(cls, moment: BinMoment, records: Records) -> BinMomentJson:
        """Create the response for a moment. `records` are the records of the library."""
        record = moment.record(records)
        return cls(
            video_id=moment.video_id if record is None else record.video_id,
            video=moment.path if record is None else record.path,
            start_s=moment.start_s,
            end_s=moment.end_s,
            note=moment.note,
            sentence=moment.sentence,
            is_missing=record is None,
        )


class BinSummary(BaseModel):
    """A bin without its moments."""

    bin_id: str
    name: str
    version: str = Field(description="Changes whenever the name or the moments change.")
    num_moments: int
    duration_s: float = Field(description="Total length of the moments.")
    changed_at: float = Field(description="Seconds since 1970, UTC.")

    @classmethod
    def of(cls, bin: Bin) -> BinSummary:
        """Create the response for a bin."""
        return cls(
            bin_id=bin.bin_id,
            name=bin.name,
            version=bin.version,
            num_moments=len(bin.moments),
            duration_s=bin.duration_s,
            changed_at=bin.changed_at,
        )


class BinJson(BinSummary):
    """A bin."""

    moments: list[BinMomentJson]

    @classmethod
    def whole(cls, bin: Bin, records: Records) -> BinJson:
        """Create the response for a bin. `records` are the records of the library."""
        moments = [BinMomentJson.of(moment, records) for moment in bin.moments]
        return cls(**BinSummary.of(bin).model_dump(), moments=moments)


class BinList(BaseModel):
    """All bins of the library, by name."""

    bins: list[BinSummary]
    problems: list[Name] = Field(description="One line for each bin whose file is damaged.")


class Facts(BaseModel):
    """Facts about the library and the service."""

    library: str = Field(description="Folder of the library, or its address on object storage.")
    version: str = Field(description="Version of untrimmed.")
    num_videos: int
    duration_s: float = Field(description="Total duration of all videos.")
    encoder: str | None
    model: str | None
    sampling: str | None
    modes: list[Mode] = Field(description="What the library can search: what is seen, said or written.")


class Health(BaseModel):
    """Whether the library has videos to search."""

    status: Literal["ok", "empty"]
    num_videos: int


class Stopped(BaseModel):
    """The response of a service that is about to stop."""

    is_stopping: bool
