"""A library in a Qdrant collection: candidates are found there, and ranked here by what the library itself keeps.

A video is a point with a multivector for each branch of its model's score (`clip`, `frame`), or for its frames where
searches go without a model; a longer one than a point may hold is several points. The best by these bounds of a score
are read from the library and scored exactly. More are read until no other can be among the best: the answer is that of
a search here, if the server finds what it is asked for (`exact`).
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from untrimmed.errors import UntrimmedError, one_line
from untrimmed.search.corpus import Corpus, FrameSum, LocalCorpus, PreparedQuery, RankedVideo, Shardable
from untrimmed.search.engine import Engine, InUse, View, empty_corpus
from untrimmed.search.index import StoredVideo
from untrimmed.search.records import content_stamp
from untrimmed.search.windows import WindowCorpus
from untrimmed.types import Moment, TextFeatures

if TYPE_CHECKING:
    from pathlib import Path

    from qdrant_client import QdrantClient

MOST_NUMBERS = 1024 * 1024  # in a multivector: what a server takes
_FIRST_TAKE = 64  # points a branch; four times as many each time that they do not settle it
_ROUNDING = 1e-4  # more than a bound that was computed elsewhere can be off
_NOTE = str(uuid.uuid5(uuid.NAMESPACE_URL, "untrimmed"))  # a point without vectors: what the collection is of
_SCROLLED = 1000

Branches = Mapping[str, Float[np.ndarray, "N D"]]


class QdrantEngine(Engine):
    """An engine that looks for candidates in a collection, which follows the library's commits."""

    def __init__(self, folder: Path, client: QdrantClient, collection: str, *, exact: bool = True):
        """`exact=False` lets the server use its approximate index: faster, and as complete as that is."""
        super().__init__(folder)
        self._client, self._collection, self._exact = client, collection, exact
        self._syncing = threading.Lock()

    def load(self, view: View, model: InUse | None) -> QdrantCorpus:
        """The collection, brought up to date with a version of the library.

        Raises:
            UntrimmedError: The server does not answer, or refuses.
        """
        space = _space(empty_corpus(self._folder, model), model)
        with self._syncing, _told(self._collection):
            whole = _Mirror(self._client, self._collection, space).follow(view, model)
        return QdrantCorpus(self._client, self._collection, self._exact, view, space, whole)


@runtime_checkable
class _Space(Protocol):
    """How a model's videos and queries are looked for."""

    @property
    def empty(self) -> Any:
        """A corpus without videos."""
        ...

    def sketch(self, video: StoredVideo) -> Branches:
        """A video's vectors by branch."""
        ...

    def probe(self, query: TextFeatures) -> Branches:
        """A query's."""
        ...


@dataclass(frozen=True)
class _Frames:
    """Frames of videos: no window's mean is above the best of its frames."""

    empty: WindowCorpus

    def sketch(self, video: StoredVideo) -> Branches:
        return {"frames": video.features.vectors.astype(np.float32)}

    def probe(self, query: TextFeatures) -> Branches:
        return {"frames": query.sentence[None]}


@dataclass(frozen=True)
class _Moments:
    """Moments of TF-PRVR, the best of which is the score."""

    empty: Any  # a TFPRVRCorpus

    def sketch(self, video: StoredVideo) -> Branches:
        vectors = self.empty.update([video]).video(video.record.video_id).vectors  # wider, by zeros
        return {"moments": vectors[:, : video.features.vectors.shape[1]].astype(np.float32)}

    def probe(self, query: TextFeatures) -> Branches:
        length = float(np.linalg.norm(query.sentence))
        return {"moments": query.sentence[None] / (length or 1.0)}


@dataclass(frozen=True)
class _Trained:
    """What a trained model says of itself."""

    empty: Any  # a TrainedCorpus

    def sketch(self, video: StoredVideo) -> Branches:
        import torch

        with torch.inference_mode():
            corpus = self.empty.update([video])
            (part,) = corpus.blocks.parts
            return _first(corpus.model.model.sketch(part.block.videos))

    def probe(self, query: TextFeatures) -> Branches:
        import torch

        model = self.empty.model
        with torch.inference_mode():
            return _first(model.model.probe(model.encode_query(query)))


def _first(branches: Mapping[str, Any]) -> Branches:
    return {name: rows[0].float().numpy() for name, rows in branches.items()}


def _space(empty: LocalCorpus, model: InUse | None) -> _Space:
    if isinstance(empty, WindowCorpus):
        return _Frames(empty)
    return _Moments(empty) if model is not None and model.folder is None else _Trained(empty)


class _Mirror:
    """The collection as a copy of what the library has."""

    def __init__(self, client: QdrantClient, collection: str, space: _Space):
        self._client, self._name, self._space = client, collection, space

    def follow(self, view: View, model: InUse | None) -> Any:
        """Bring it up to date; gives the extent of the whole library (`Shardable.extent`)."""
        of = [view.encoder, model.identity if model else None]
        note = self._note()
        if note is None or note["of"] != of:
            self._make(view)
            note = {"of": of, "commit": None, "extent": None}
        if note["commit"] != view.commit:
            held = self._held()
            wanted = {record.video_id: content_stamp(record) for record in view.records}
            changed = [video_id for video_id, stamp in held.items() if wanted.get(video_id) != stamp]
            self._put_note({**note, "commit": None})  # until all is done
            self._delete(changed)
            lacking = [video_id for video_id, stamp in wanted.items() if held.get(video_id) != stamp]
            for video in view.index.read(lacking):
                self._put(video)
            note = {"of": of, "commit": view.commit, "extent": self._whole()}
            self._put_note(note)
        return _extent(note["extent"])

    def _note(self) -> dict[str, Any] | None:
        if not self._client.collection_exists(self._name):
            return None
        found = self._client.retrieve(self._name, [_NOTE])
        return found[0].payload if found else None

    def _put_note(self, note: dict[str, Any]) -> None:
        from qdrant_client import models

        self._client.upsert(self._name, [models.PointStruct(id=_NOTE, vector={}, payload=note)])

    def _make(self, view: View) -> None:
        from qdrant_client import models

        if self._client.collection_exists(self._name):
            self._client.delete_collection(self._name)
        first = next(view.index.read([view.records[0].video_id]))
        best = models.MultiVectorConfig(comparator=models.MultiVectorComparator.MAX_SIM)
        vectors = {
            name: models.VectorParams(size=rows.shape[1], distance=models.Distance.DOT, multivector_config=best)
            for name, rows in self._space.sketch(first).items()
        }
        self._client.create_collection(self._name, vectors_config=vectors)
        self._client.create_payload_index(self._name, "video_id", models.PayloadSchemaType.KEYWORD)

    def _points(self, fields: list[str]) -> Iterator[dict[str, Any]]:
        offset = None
        while True:
            found, offset = self._client.scroll(self._name, limit=_SCROLLED, offset=offset, with_payload=fields)
            yield from (point.payload for point in found if point.id != _NOTE and point.payload)
            if offset is None:
                return

    def _held(self) -> dict[str, str]:
        """The stamps of videos by their ids; empty for one that was not put completely."""
        held: dict[str, str] = {}
        for point in self._points(["video_id", "stamp"]):
            held[point["video_id"]] = held.get(point["video_id"]) or point.get("stamp", "")
        return held

    def _whole(self) -> Any:
        extents = [point["extent"] for point in self._points(["extent"]) if point.get("extent")]
        if extents and isinstance(extents[0], dict):
            steps = np.sum([np.array(extent["steps"], dtype=np.int64) for extent in extents], axis=0)
            return {"steps": steps.tolist(), "frames": sum(extent["frames"] for extent in extents)}
        return np.max(extents, axis=0).tolist() if extents else None

    def _delete(self, video_ids: Sequence[str]) -> None:
        from qdrant_client import models

        for start in range(0, len(video_ids), _SCROLLED):
            some = models.MatchAny(any=list(video_ids[start : start + _SCROLLED]))
            chosen = models.Filter(must=[models.FieldCondition(key="video_id", match=some)])
            self._client.delete(self._name, models.FilterSelector(filter=chosen))

    def _put(self, video: StoredVideo) -> None:
        from qdrant_client import models

        record = video.record
        payload = {"video_id": record.video_id}
        extent = _plain(self._space.empty.update([video]).extent())
        pieces = _pieces(self._space.sketch(video))
        for number in reversed(range(len(pieces))):  # the one that says that it is there comes last
            vector = {name: rows.tolist() for name, rows in pieces[number].items()}
            own = payload if number else payload | {"stamp": content_stamp(record), "extent": extent}
            point_id = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{record.video_id} {number}"))
            self._client.upsert(self._name, [models.PointStruct(id=point_id, vector=vector, payload=own)])


def _pieces(branches: Branches) -> list[dict[str, np.ndarray]]:
    """Vectors of a video in as few points as a server takes; a branch that is shorter is in the first ones only."""
    parts = {name: _cut(rows, max(1, MOST_NUMBERS // rows.shape[1])) for name, rows in branches.items()}
    number = max(map(len, parts.values()))
    return [{name: some[i] for name, some in parts.items() if i < len(some)} for i in range(number)]


def _cut(rows: Float[np.ndarray, "N D"], step: int) -> list[np.ndarray]:
    return [rows[start : start + step] for start in range(0, len(rows), step)]


def _plain(extent: Any) -> Any:
    """An extent as JSON: sums of frames in whole steps of float16, lengths as they are."""
    if isinstance(extent, FrameSum):
        steps = np.rint(np.asarray(extent.total) * 2**24).astype(np.int64)
        return {"steps": steps.tolist(), "frames": extent.num_frames}
    return None if extent is None else np.asarray(extent).tolist()


def _extent(plain: Any) -> Any:
    if isinstance(plain, dict):
        return FrameSum(np.array(plain["steps"], dtype=np.float64) / 2**24, plain["frames"])
    return None if plain is None else np.array(plain, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class QdrantCorpus:
    """The videos of one version, of which only candidates are read."""

    client: Any
    collection: str
    exact: bool
    view: View
    space: Any
    whole: Any

    def __len__(self) -> int:
        return len(self.view.records)

    def prepare(self, query: TextFeatures, *, recall: float = 1.0) -> QdrantQuery:
        """The query as the server is asked; how many of the best are found is up to its index."""
        return QdrantQuery(self, query)

    def of(self, video_ids: Iterable[str], before: Shardable | None = None) -> Shardable:
        """The exact corpus of some videos, those of another one included."""
        corpus = (before or self.space.empty).update(self.view.index.read(list(video_ids)))
        assert isinstance(corpus, Shardable), "all kinds of corpus are"
        return corpus

    def beside_all(self, corpus: Shardable) -> Corpus:
        """A corpus of some videos that knows of all others."""
        own = corpus.extent()
        if isinstance(self.whole, FrameSum) and isinstance(own, FrameSum):
            return corpus.beside([FrameSum(self.whole.total - own.total, self.whole.num_frames - own.num_frames)])
        return corpus.beside([self.whole])


class QdrantQuery:
    """A query whose candidates come from the server."""

    def __init__(self, corpus: QdrantCorpus, query: TextFeatures):
        self._corpus, self._query = corpus, query
        self._probe = corpus.space.probe(query)
        self._read: Shardable | None = None
        self._ids: set[str] = set()
        self._prepared: PreparedQuery | None = None

    def rank(self, *, limit: int, among: Collection[str] | None = None) -> list[RankedVideo]:
        """The best videos, see `PreparedQuery.rank`.

        Raises:
            UntrimmedError: The server does not answer.
        """
        take = max(_FIRST_TAKE, 4 * limit)
        while True:
            found, bound = self._candidates(take, among)
            ranked = self._prepare(found).rank(limit=limit, among=found)
            if bound is None or (len(ranked) >= limit and ranked[-1].score > bound + _ROUNDING):
                return ranked
            take *= 4

    def moments(self, video_id: str, *, limit: int) -> list[Moment]:
        """Spans of one video."""
        return self._prepare([video_id]).moments(video_id, limit=limit)

    def relevance(self, video_id: str) -> tuple[Float[np.ndarray, " T"], Float[np.ndarray, " T"]]:
        """Times and fits of one video."""
        return self._prepare([video_id]).relevance(video_id)

    def _candidates(self, take: int, among: Collection[str] | None) -> tuple[set[str], float | None]:
        """Ids of the best points of each branch, and what no other video can be above; None if there are no others."""
        from qdrant_client import models

        chosen = None
        if among is not None:
            some = models.MatchAny(any=sorted(among))
            chosen = models.Filter(must=[models.FieldCondition(key="video_id", match=some)])
        found: set[str] = set()
        bound: float | None = 0.0
        for name, rows in self._probe.items():
            with _told(self._corpus.collection):
                points = self._corpus.client.query_points(
                    self._corpus.collection,
                    query=np.asarray(rows, dtype=np.float32).tolist(),
                    using=name,
                    query_filter=chosen,
                    search_params=models.SearchParams(exact=self._corpus.exact),
                    limit=take,
                    with_payload=["video_id"],
                ).points
            found |= {point.payload["video_id"] for point in points}
            bound = None if bound is None or len(points) < take else bound + points[-1].score
        return found, bound

    def _prepare(self, video_ids: Iterable[str]) -> PreparedQuery:
        new = set(video_ids) - self._ids
        if new or self._prepared is None or self._read is None:
            self._read = self._corpus.of(new, self._read)
            self._ids |= new
            self._prepared = self._corpus.beside_all(self._read).prepare(self._query)
        return self._prepared


@contextmanager
def _told(collection: str) -> Iterator[None]:
    """What the client raises, in one line."""
    try:
        yield
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("qdrant_client", "httpx", "grpc"):
            raise
        raise UntrimmedError(
            f"collection {collection}: the Qdrant server does not do it ({one_line(error)}); check that it runs, its "
            "address and its limits"
        ) from error
