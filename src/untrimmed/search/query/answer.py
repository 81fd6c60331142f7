"""A query becomes hits: its parts are read, filters leave some videos, what was prepared ranks them, moments are found.

docs/queries.md says for people how parts are put together; here is where.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float, UInt8

from untrimmed.encoders.encoder import Encoder
from untrimmed.errors import ConfigError, UnknownNameError, UntrimmedError, require_type
from untrimmed.search.corpora.corpus import Corpus, PreparedQuery
from untrimmed.search.corpora.engine import FRAMES, TRAINING_FREE, View
from untrimmed.search.pruning.ranking import RankedVideo
from untrimmed.search.query.combination import CombinedQuery, Term, Unwanted
from untrimmed.search.query.confidence import Confidence, background_of
from untrimmed.search.query.find import find, in_order, span_vector, unit
from untrimmed.search.query.hits import Hit, Hits, WeighedWord, doubt_warnings, sentence_warnings, weighed_words
from untrimmed.search.query.query import Cutoff, Filters, Place, Query, check_sentence
from untrimmed.search.store.records import VideoRecord, absolute
from untrimmed.types import TextFeatures

_NOTHING = 1e-6  # of a sum of unit vectors: they cancel
_SAMPLE = 64  # videos by which it is told what is usual in a library

Vector = Float[np.ndarray, " D"]


class EncoderReader:
    """What makes vectors of sentences and pictures: an encoder that reads one thing at a time."""

    def __init__(self, encoder: Encoder, lock: AbstractContextManager[object]):
        self.name, self._encoder, self._lock = encoder.name, encoder, lock

    def texts(self, texts: Sequence[str]) -> list[TextFeatures]:
        """Sentences as the encoder reads them."""
        with self._lock:
            return self._encoder.encode_texts(texts)

    def image(self, image: UInt8[np.ndarray, "Y X 3"]) -> Vector:
        """An RGB picture as a unit vector."""
        with self._lock:
            vector: Vector = self._encoder.encode_frames(image[None])[0]
            return vector


@dataclass(frozen=True, eq=False)
class _Texts:
    """The sentences of a query as they were read; None where there is none, or no word of it is known."""

    text: TextFeatures | None
    then: TextFeatures | None
    without: tuple[TextFeatures, ...]
    warnings: tuple[str, ...]

    @classmethod
    def of(cls, query: Query, reader: EncoderReader) -> _Texts:
        """One call of the encoder for all."""
        named = [("", query.text), ("then: ", query.then), *(("without: ", some) for some in query.without)]
        sentences = list(dict.fromkeys(sentence for _, sentence in named if sentence))
        read = dict(zip(sentences, reader.texts(sentences) if sentences else (), strict=True))
        warnings = [kind + line for kind, some in named if some for line in sentence_warnings(read[some], reader.name)]
        known = {sentence: text for sentence, text in read.items() if text.reading.is_understood}
        without = tuple(known[sentence] for sentence in query.without if sentence in known)
        return cls(known.get(query.text), known.get(query.then), without, tuple(warnings))


def answer(
    query: Query,
    view: View,
    reader: EncoderReader,
    cutoff: Cutoff,
    *,
    within: str | os.PathLike[str] | None = None,
    on_hit: Callable[[Hit], None] | None = None,
) -> Hits:
    """The best videos or moments of a version of a library; `on_hit` is told as `find` says.

    A sentence of which no word is known does not count; where nothing is left that says what is wanted, or what is to
    follow, there are no hits and no video is loaded.

    Raises:
        ConfigError: An option makes no sense, or a least confidence is asked for where nobody knows chances.
        UnknownNameError: No video lies in `within`, or a place is in no video of the library.
    """
    among = _among(view, query.filters, within)
    texts, examples = _read(query, view, reader)
    warnings = list(texts.warnings)
    if among is not None and not among:
        warnings.append(f"no video of the library meets: {query.filters}")
    if _is_lost(query, texts, examples) or among == frozenset():
        return Hits([], warnings)
    plan = _Planning(view, query).plan(texts, examples)
    confidence = _confidence(view, plan)
    if cutoff.min_confidence is not None:
        if confidence is None:
            raise ConfigError(_unknown_chance(view, query, reader.name))
        least = confidence.least_score(cutoff.min_confidence)
        cutoff = replace(cutoff, min_score=least if cutoff.min_score is None else max(least, cutoff.min_score))
    prepared = _prepared(plan, view)

    def sure(hit: Hit) -> Hit:
        return replace(hit, confidence=confidence.of(hit.score)) if confidence else hit

    tell = (lambda hit: on_hit(sure(hit))) if on_hit else None
    hits = find(view, prepared, cutoff, among=among, group_by=query.group_by, fold=query.fold, on_hit=tell)
    words, doubts = _explained(view, prepared, texts.text)
    return Hits(map(sure, hits), [*hits.warnings, *warnings, *doubts], partial=hits.partial, words=words)


def rank_all(
    sentences: Sequence[str],
    view: View,
    reader: EncoderReader,
    limit: int,
    within: str | os.PathLike[str] | None = None,
) -> list[dict[Path, float]]:
    """The best videos of each sentence by the library's model, and their scores; none where it knows no word.

    Raises:
        ConfigError: They are no list, or one of them is empty or no text.
        UnknownNameError: No video lies in `within`.
        UntrimmedError: A part of the library did not answer.
    """
    require_type(sentences, tuple | list, "sentences", "a list of sentences")
    for sentence in sentences:
        require_type(sentence, str, "sentences", "a list of sentences")
        check_sentence(sentence)
    among, texts = _among(view, Filters(), within), reader.texts(sentences)
    known = [text for text in texts if text.reading.is_understood]
    ranked = _ranked(known, view, limit, among) if known else []
    found = iter([in_order(some, view)[:limit] for some in ranked])
    each = [next(found) if text.reading.is_understood else [] for text in texts]
    return [{Path(view.records.of(video.video_id).path): video.score for video in some} for some in each]


def _ranked(
    texts: Sequence[TextFeatures], view: View, limit: int, among: frozenset[str] | None
) -> list[list[RankedVideo]]:
    ranked, missing = view.corpus().rank_all(texts, limit=limit, among=among)
    if missing:
        raise UntrimmedError(f"{view.folder}: {missing}; restart the cluster, or try again")
    return ranked


def relevance(
    query: str | Query, video: str | os.PathLike[str], view: View, reader: EncoderReader
) -> tuple[Float[np.ndarray, " T"], Float[np.ndarray, " T"]]:
    """Times of one video in seconds, and how well each fits; with `then`, as the first of the two.

    Raises:
        ConfigError: The sentence is empty, or no word of it, or of what follows, is known.
        UnknownNameError: The video, or that of a place, is not in the library.
    """
    query = query if isinstance(query, Query) else Query(query)
    record = view.records.at(absolute(video))
    if record is None:
        raise UnknownNameError(f"{video}: not in {view.folder}; see: untrimmed ls")
    texts, examples = _read(query, view, reader)
    if _is_lost(query, texts, examples):
        raise ConfigError("; ".join(texts.warnings))
    return _prepared(_Planning(view, query).plan(texts, examples), view).relevance(record.video_id)


def _read(query: Query, view: View, reader: EncoderReader) -> tuple[_Texts, Vector | None]:
    return _Texts.of(query, reader), _examples(query, view, reader)


def _is_lost(query: Query, texts: _Texts, examples: Vector | None) -> bool:
    """Whether nothing is left that says what is wanted, or what is to follow."""
    is_wanted = texts.text is not None or (examples is not None and (query.image is not None or bool(query.like)))
    return not is_wanted or (bool(query.then) and texts.then is None)


def _prepared(plan: _Plan, view: View) -> PreparedQuery:
    return plan.before(view.corpus, view.frames, lambda video_id: view.records.of(video_id).duration_s)


def _explained(
    view: View, prepared: PreparedQuery, text: TextFeatures | None
) -> tuple[tuple[WeighedWord, ...], tuple[str, ...]]:
    """What the library's model makes of the sentence: the weights of its words, and a line where it is ambiguous."""
    if text is None or view.model.folder is None:
        return (), ()
    own = view.corpus().prepare(text) if isinstance(prepared, CombinedQuery) else prepared
    weights, doubt = own.word_weights(), own.doubt()
    words = () if weights is None else weighed_words(text.text, text.tokens, weights.tolist())
    return words, doubt_warnings(doubt) if doubt else ()


def sampled_ids(view: View) -> list[str]:
    """Some videos of the library, the same ones in every search: ids are random."""
    return heapq.nsmallest(_SAMPLE, (record.video_id for record in view.records))


@dataclass(frozen=True, eq=False)
class _Part:
    """A vector that is compared with videos by the library's model, or with their frames, and its weight there."""

    text: TextFeatures
    weight: float = 1.0
    by_frames: bool = False


@dataclass(frozen=True, eq=False)
class _Plan:
    """A query as vectors and numbers, ready for any corpus."""

    query: Query
    wanted: tuple[_Part, ...]
    then: TextFeatures | None
    unwanted: tuple[tuple[TextFeatures, float], ...]  # each with what is usual

    def before(
        self, own: Callable[[], Corpus], frames: Callable[[], Corpus], duration_s: Callable[[str], float]
    ) -> PreparedQuery:
        """The query before the videos of a model's corpus and those of one of frames."""
        if self.then is None and not self.unwanted and len(self.wanted) == 1:
            (part,) = self.wanted
            return (frames if part.by_frames else own)().prepare(part.text)
        weights, corpora = self.query.weights, [(frames if part.by_frames else own)() for part in self.wanted]
        return CombinedQuery(
            [Term(corpus.prepare(part.text), part.weight) for corpus, part in zip(corpora, self.wanted, strict=True)],
            duration_s=duration_s,
            then=Term(own().prepare(self.then), weights.then / (weights.text + weights.then)) if self.then else None,
            within_s=self.query.within_s,
            unwanted=[Unwanted(own().prepare(text), usual) for text, usual in self.unwanted],
            without=weights.without,
        )


class _Planning:
    """How much each part of a query weighs in one version of a library."""

    def __init__(self, view: View, query: Query):
        self._view, self._query = view, query
        # Training-free models compare any vector with frames or moments; a trained model reads words.
        self._takes_vectors = view.model.identity in TRAINING_FREE

    def plan(self, texts: _Texts, examples: Vector | None) -> _Plan:
        """What is compared with what, and by which weights."""
        unwanted = [(text, float(np.median(self._usual(self._view.corpus(), text)))) for text in texts.without]
        wanted = self._wanted(texts.text, examples)
        return _Plan(self._query, tuple(wanted), texts.then, tuple(unwanted))

    def _wanted(self, text: TextFeatures | None, examples: Vector | None) -> list[_Part]:
        """Sentence and examples, each divided by how far its scores spread; one part where one vector can say both."""
        if examples is None:
            assert text is not None, "something is wanted"
            return [_Part(text)]
        size = float(np.linalg.norm(examples))
        like = _as_text(examples / size)
        if text is None:
            return [_Part(like, by_frames=True)]
        of_like = self._view.corpus if self._takes_vectors else self._view.frames
        of_text = self._query.weights.text / _spread(self._usual(self._view.corpus(), text))
        of_examples = size / _spread(self._usual(of_like(), like))
        if self._takes_vectors:
            return [_Part(_as_text(unit(of_text * unit(text.sentence) + of_examples * like.sentence)))]
        return [_Part(text, of_text), _Part(like, of_examples, by_frames=True)]

    def _usual(self, corpus: Corpus, text: TextFeatures) -> Float[np.ndarray, " N"]:
        """The scores of some videos of the library, whatever filters leave of it."""
        some = sampled_ids(self._view)
        return np.array([video.score for video in corpus.prepare(text).rank(limit=len(some), among=some)])


def _confidence(view: View, plan: _Plan) -> Confidence | None:
    """What scores of the query mean; None where that was not measured."""
    background = background_of(view.encoder) if view.model == FRAMES and not plan.query.has_examples else None
    if background is None:
        return None
    here = background.corpus
    return background.confidence(plan.before(lambda: here, lambda: here, background.durations_s.__getitem__))


def _unknown_chance(view: View, query: Query, encoder: str) -> str:
    """Why there is no confidence, in one line."""
    if query.has_examples:
        why = "of queries with examples"
    elif view.model != FRAMES:
        why = f"of model {view.model.identity}"
    elif background_of(view.encoder) is not None:
        why = f"of moments within {query.within_s:g} s of each other"
    else:
        why = f"of encoder {encoder!r}"
    return f"min_confidence: what scores {why} mean was not measured; search with min_score (docs/quality.md)"


def _among(view: View, filters: Filters, within: str | os.PathLike[str] | None) -> frozenset[str] | None:
    """The ids that meet all conditions; None where there is none."""
    folders = [view.below(place) for place in (within, filters.within) if place is not None]
    among = frozenset.intersection(*folders) if folders else None
    if not filters.ranges:
        return among
    return frozenset(r.video_id for r in view.records if (among is None or r.video_id in among) and filters.admit(r))


def _examples(query: Query, view: View, reader: EncoderReader) -> Vector | None:
    """What pictures and places say together, after Rocchio: what is wanted by its weight, less what is not."""
    weights, parts = query.weights, []
    if query.image is not None:
        parts.append(weights.image * unit(reader.image(query.image)))
    for places, weight in ((query.like, weights.like), (query.unlike, -weights.unlike)):
        if places:
            parts.append(weight * np.mean([place_vector(view, place) for place in places], axis=0))
    if not parts:
        return None
    together: Vector = np.sum(parts, axis=0).astype(np.float32)
    if not np.linalg.norm(together) > _NOTHING:
        raise ConfigError("the examples of what is wanted and of what is not are the same; leave one of them out")
    return together


def place_vector(view: View, place: Place) -> Vector:
    """The mean of the frames of a moment, or the frame nearest to a time, at unit length.

    Raises:
        UnknownNameError: No such video.
        ConfigError: The video has ended before.
    """
    record = _record(view, place)
    if place.start_s > record.duration_s:
        raise ConfigError(
            f"{record.path}: is {record.duration_s:.1f} s long, the place begins at {place.start_s:.1f} s"
        )
    stored = view.index.get(record.video_id)
    if stored is None:
        raise UnknownNameError(f"{record.path}: was removed from the library meanwhile; search again")
    return span_vector(stored.features, place.start_s, place.start_s if place.end_s is None else place.end_s)


def _record(view: View, place: Place) -> VideoRecord:
    try:
        return view.records.of(os.fspath(place.video))
    except KeyError:
        record = view.records.at(absolute(place.video))
    if record is None:
        raise UnknownNameError(f"{place.video}: no video of {view.index.folder}, by id or path; see: untrimmed ls")
    return record


def _as_text(vector: Vector) -> TextFeatures:
    """A vector in the place of a sentence's, for corpora that read nothing else."""
    return TextFeatures("", vector, np.empty((0, 1), dtype=np.float32), ())


def _spread(scores: Float[np.ndarray, " N"]) -> float:
    """By how much the scores of videos differ, as their standard deviation; 1 where that says nothing."""
    deviation = float(scores.std()) if len(scores) > 1 else 0.0
    return deviation if deviation > _NOTHING else 1.0
