"""Answer queries: read the parts of a query, filter videos, rank them, and find moments.

docs/queries.md defines how the parts of a query are combined.
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
from untrimmed.search.query.combination import CombinedQuery, Exclusion, Term
from untrimmed.search.query.confidence import Confidence, background_of
from untrimmed.search.query.find import find, in_order, span_vector, unit
from untrimmed.search.query.hits import Hit, Hits, WeighedWord, doubt_warnings, sentence_warnings, weighed_words
from untrimmed.search.query.query import Cutoff, Filters, Place, Query, check_sentence
from untrimmed.search.store.records import VideoRecord, absolute
from untrimmed.types import TextFeatures

_TINY = 1e-6  # length of a sum of unit vectors that cancel
_SAMPLE_SIZE = 64  # videos that estimate the usual scores of a library

Vector = Float[np.ndarray, " D"]


class EncoderReader:
    """Encodes sentences and pictures, one call at a time."""

    def __init__(self, encoder: Encoder, lock: AbstractContextManager[object]):
        self.name = encoder.name
        self._encoder = encoder
        self._lock = lock

    def texts(self, texts: Sequence[str]) -> list[TextFeatures]:
        """Encode sentences."""
        with self._lock:
            return self._encoder.encode_texts(texts)

    def image(self, image: UInt8[np.ndarray, "Y X 3"]) -> Vector:
        """Encode an RGB picture as a unit vector."""
        with self._lock:
            vector: Vector = self._encoder.encode_frames(image[None])[0]
            return vector


@dataclass(frozen=True, eq=False)
class _EncodedQuery:
    """The parts of a query as vectors. A sentence is None if the query has none, or the encoder knows no word of it."""

    query: Query
    text: TextFeatures | None
    then: TextFeatures | None
    without: tuple[TextFeatures, ...]
    examples: Vector | None
    warnings: tuple[str, ...]

    @classmethod
    def of(cls, query: Query, view: View, reader: EncoderReader) -> _EncodedQuery:
        """Encode all sentences in one call, and the examples."""
        parts = [("", query.text), ("then: ", query.then), *(("without: ", text) for text in query.without)]
        sentences = list(dict.fromkeys(text for _, text in parts if text))
        encoded = dict(zip(sentences, reader.texts(sentences) if sentences else (), strict=True))
        warnings = [
            kind + line for kind, text in parts if text for line in sentence_warnings(encoded[text], reader.name)
        ]
        known = {sentence: text for sentence, text in encoded.items() if text.reading.is_understood}
        without = tuple(known[sentence] for sentence in query.without if sentence in known)
        examples = _examples(query, view, reader)
        return cls(query, known.get(query.text), known.get(query.then), without, examples, tuple(warnings))

    @property
    def is_searchable(self) -> bool:
        """Whether there is something to search for, and something that follows it if the query requires that."""
        has_examples = self.examples is not None and (self.query.image is not None or bool(self.query.like))
        return (self.text is not None or has_examples) and not (self.query.then and self.then is None)


def answer(
    query: Query,
    view: View,
    reader: EncoderReader,
    cutoff: Cutoff,
    *,
    within: str | os.PathLike[str] | None = None,
    on_hit: Callable[[Hit], None] | None = None,
) -> Hits:
    """Return the best videos or moments of a version of a library; `on_hit` is called as in `find`.

    Sentences without a known word are ignored. If nothing remains to search for, there are no hits.

    Raises:
        ConfigError: An option is invalid, or `min_confidence` is set but confidence was not measured.
        UnknownNameError: `within` contains no video, or a place is not in a video of the library.
    """
    among = _among(view, query.filters, within)
    encoded = _EncodedQuery.of(query, view, reader)
    warnings = list(encoded.warnings)
    if among is not None and not among:
        warnings.append(f"no video of the library meets: {query.filters}")
    if not encoded.is_searchable or among == frozenset():
        return Hits([], warnings)
    plan = _Plan.of(view, encoded)
    confidence = _confidence(view, plan)
    if cutoff.min_confidence is not None:
        if confidence is None:
            raise ConfigError(_unknown_confidence(view, query, reader.name))
        least = confidence.least_score(cutoff.min_confidence)
        cutoff = replace(cutoff, min_score=least if cutoff.min_score is None else max(least, cutoff.min_score))
    prepared = plan.prepare(view)

    def with_confidence(hit: Hit) -> Hit:
        return replace(hit, confidence=confidence.of(hit.score)) if confidence else hit

    callback = (lambda hit: on_hit(with_confidence(hit))) if on_hit else None
    hits = find(view, prepared, cutoff, among=among, group_by=query.group_by, fold=query.fold, on_hit=callback)
    words, doubts = _explained(view, prepared, encoded.text)
    return Hits(map(with_confidence, hits), [*hits.warnings, *warnings, *doubts], partial=hits.partial, words=words)


def rank_all(
    sentences: Sequence[str],
    view: View,
    reader: EncoderReader,
    limit: int,
    within: str | os.PathLike[str] | None = None,
) -> list[dict[Path, float]]:
    """Return the best videos of each sentence with their scores; empty if the encoder knows no word of it.

    Raises:
        ConfigError: `sentences` is not a list of sentences that are not empty.
        UnknownNameError: `within` contains no video.
        UntrimmedError: A shard of the library did not answer.
    """
    require_type(sentences, tuple | list, "sentences", "a list of sentences")
    for sentence in sentences:
        require_type(sentence, str, "sentences", "a list of sentences")
        check_sentence(sentence)
    among = _among(view, Filters(), within)
    texts = reader.texts(sentences)
    rankings: list[dict[Path, float]] = [{} for _ in texts]
    known = [number for number, text in enumerate(texts) if text.reading.is_understood]
    if not known:
        return rankings
    ranked, missing = view.corpus().rank_all([texts[number] for number in known], limit=limit, among=among)
    if missing:
        raise UntrimmedError(f"{view.folder}: {missing}; restart the cluster, or try again")
    for number, videos in zip(known, ranked, strict=True):
        best = in_order(videos, view)[:limit]
        rankings[number] = {Path(view.records.of(video.video_id).path): video.score for video in best}
    return rankings


def relevance(
    query: str | Query, video: str | os.PathLike[str], view: View, reader: EncoderReader
) -> tuple[Float[np.ndarray, " T"], Float[np.ndarray, " T"]]:
    """Return times of one video in seconds, and the relevance at each; with `then`, of the first moment.

    Raises:
        ConfigError: The sentence is empty, or the encoder knows no word of it or of `then`.
        UnknownNameError: The video, or that of a place, is not in the library.
    """
    query = query if isinstance(query, Query) else Query(query)
    record = view.records.at(absolute(video))
    if record is None:
        raise UnknownNameError(f"{video}: not in {view.folder}; see: untrimmed ls")
    encoded = _EncodedQuery.of(query, view, reader)
    if not encoded.is_searchable:
        raise ConfigError("; ".join(encoded.warnings))
    return _Plan.of(view, encoded).prepare(view).relevance(record.video_id)


def _explained(
    view: View, prepared: PreparedQuery, text: TextFeatures | None
) -> tuple[tuple[WeighedWord, ...], tuple[str, ...]]:
    """Return a trained model's weights of the sentence's words, and a warning if it is ambiguous."""
    if text is None or view.model.folder is None:
        return (), ()
    sentence = view.corpus().prepare(text) if isinstance(prepared, CombinedQuery) else prepared
    weights = sentence.word_weights()
    doubt = sentence.doubt()
    words = () if weights is None else weighed_words(text.text, text.tokens, weights.tolist())
    return words, doubt_warnings(doubt) if doubt else ()


@dataclass(frozen=True, eq=False)
class _WeightedVector:
    """A vector with its weight, for the corpus of the library's model or that of frames."""

    text: TextFeatures
    weight: float = 1.0
    by_frames: bool = False


@dataclass(frozen=True, eq=False)
class _Plan:
    """A query as vectors and weights, for any corpus."""

    query: Query
    terms: tuple[_WeightedVector, ...]
    then: TextFeatures | None
    exclusions: tuple[tuple[TextFeatures, float], ...]  # each with its usual score

    @classmethod
    def of(cls, view: View, encoded: _EncodedQuery) -> _Plan:
        """Compute the weights for one version of a library."""
        exclusions = [(text, float(np.median(_usual_scores(view, view.corpus(), text)))) for text in encoded.without]
        return cls(encoded.query, tuple(_terms(view, encoded)), encoded.then, tuple(exclusions))

    def prepare(self, view: View) -> PreparedQuery:
        """Prepare the query for a library."""
        return self.prepare_for(view.corpus, view.frames, lambda video_id: view.records.of(video_id).duration_s)

    def prepare_for(
        self, model: Callable[[], Corpus], frames: Callable[[], Corpus], duration_s: Callable[[str], float]
    ) -> PreparedQuery:
        """Prepare the query for a corpus of the model and one of frames."""
        if self.then is None and not self.exclusions and len(self.terms) == 1:
            (term,) = self.terms
            return (frames if term.by_frames else model)().prepare(term.text)
        weights = self.query.weights
        return CombinedQuery(
            [Term((frames if term.by_frames else model)().prepare(term.text), term.weight) for term in self.terms],
            duration_s=duration_s,
            then=Term(model().prepare(self.then), weights.then / (weights.text + weights.then)) if self.then else None,
            within_s=self.query.within_s,
            exclusions=[Exclusion(model().prepare(text), usual) for text, usual in self.exclusions],
            without=weights.without,
        )


def _terms(view: View, encoded: _EncodedQuery) -> list[_WeightedVector]:
    """Return sentence and examples, each divided by the spread of its scores; merged if one vector can have both."""
    text = encoded.text
    if encoded.examples is None:
        assert text is not None, "the query is searchable"
        return [_WeightedVector(text)]
    length = float(np.linalg.norm(encoded.examples))
    like = _as_text(encoded.examples / length)
    if text is None:
        return [_WeightedVector(like, by_frames=True)]
    # Training-free models compare any vector with frames or moments; a trained model needs words.
    takes_vectors = view.model.identity in TRAINING_FREE
    like_corpus = view.corpus() if takes_vectors else view.frames()
    text_weight = encoded.query.weights.text / _spread(_usual_scores(view, view.corpus(), text))
    like_weight = length / _spread(_usual_scores(view, like_corpus, like))
    if takes_vectors:
        return [_WeightedVector(_as_text(unit(text_weight * unit(text.sentence) + like_weight * like.sentence)))]
    return [_WeightedVector(text, text_weight), _WeightedVector(like, like_weight, by_frames=True)]


def _usual_scores(view: View, corpus: Corpus, text: TextFeatures) -> Float[np.ndarray, " N"]:
    """Return the scores of a sample of the library, whatever the filters; ids are random, so take the smallest."""
    sample = heapq.nsmallest(_SAMPLE_SIZE, (record.video_id for record in view.records))
    return np.array([video.score for video in corpus.prepare(text).rank(limit=len(sample), among=sample)])


def _confidence(view: View, plan: _Plan) -> Confidence | None:
    """Return how to convert scores to confidence; None if that was not measured."""
    background = background_of(view.encoder) if view.model == FRAMES and not plan.query.has_examples else None
    if background is None:
        return None
    corpus = background.corpus
    return background.confidence(plan.prepare_for(lambda: corpus, lambda: corpus, background.durations_s.__getitem__))


def _unknown_confidence(view: View, query: Query, encoder: str) -> str:
    """Return the error message if there is no confidence."""
    if query.has_examples:
        reason = "queries with examples"
    elif view.model != FRAMES:
        reason = f"model {view.model.identity}"
    elif background_of(view.encoder) is not None:
        reason = f"moments within {query.within_s:g} s of each other"
    else:
        reason = f"encoder {encoder!r}"
    return f"min_confidence: was not measured for {reason}; search with min_score (docs/quality.md)"


def _among(view: View, filters: Filters, within: str | os.PathLike[str] | None) -> frozenset[str] | None:
    """Return the ids of the videos that meet all conditions; None without conditions."""
    folders = [view.below(place) for place in (within, filters.within) if place is not None]
    among = frozenset.intersection(*folders) if folders else None
    if not filters.ranges:
        return among
    return frozenset(r.video_id for r in view.records if (among is None or r.video_id in among) and filters.admit(r))


def _examples(query: Query, view: View, reader: EncoderReader) -> Vector | None:
    """Return the weighted sum of pictures and places, minus those to avoid (Rocchio 1971)."""
    weights = query.weights
    parts = []
    if query.image is not None:
        parts.append(weights.image * unit(reader.image(query.image)))
    for places, weight in ((query.like, weights.like), (query.unlike, -weights.unlike)):
        if places:
            parts.append(weight * np.mean([_place_vector(view, place) for place in places], axis=0))
    if not parts:
        return None
    vector: Vector = np.sum(parts, axis=0).astype(np.float32)
    if not np.linalg.norm(vector) > _TINY:
        raise ConfigError("the examples to find and to avoid are the same; remove one of them")
    return vector


def _place_vector(view: View, place: Place) -> Vector:
    """Return the mean of a moment's frames, or the frame nearest to a time, at unit length.

    Raises:
        UnknownNameError: The video is not in the library.
        ConfigError: The place begins after the end of the video.
    """
    record = _record(view, place)
    if place.start_s > record.duration_s:
        raise ConfigError(
            f"{record.path}: the place begins at {place.start_s:.1f} s, expected at most {record.duration_s:.1f} s"
        )
    stored = view.index.get(record.video_id)
    if stored is None:
        raise UnknownNameError(f"{record.path}: has just been removed from the library; search again")
    return span_vector(stored.features, place.start_s, place.start_s if place.end_s is None else place.end_s)


def _record(view: View, place: Place) -> VideoRecord:
    try:
        return view.records.of(os.fspath(place.video))
    except KeyError:
        record = view.records.at(absolute(place.video))
    if record is None:
        raise UnknownNameError(f"{place.video}: not an id or path of a video in {view.index.folder}; see: untrimmed ls")
    return record


def _as_text(vector: Vector) -> TextFeatures:
    """Return a vector as a sentence, for corpora that use only its vector."""
    return TextFeatures("", vector, np.empty((0, 1), dtype=np.float32), ())


def _spread(scores: Float[np.ndarray, " N"]) -> float:
    """Return the standard deviation of scores; 1 if it is close to 0."""
    deviation = float(scores.std()) if len(scores) > 1 else 0.0
    return deviation if deviation > _TINY else 1.0
