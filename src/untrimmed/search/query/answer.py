"""Answer a query on one version of a library, see `answer`.

docs/queries.md defines how the parts of a query are combined. First, the query is encoded (`_EncodedQuery`). Then its
parts get weights (`_WeightedQuery`). Finally, it is prepared for the corpora of the version: as a `PreparedQuery`, or
as a `CombinedQuery` of several parts. `find` ranks videos and returns hits.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, UInt8

from untrimmed.encoders.encoder import Encoder
from untrimmed.errors import ConfigError, UnknownNameError, UntrimmedError, require_type
from untrimmed.passages.passage import TEXT_MODES, TextMode
from untrimmed.search.corpora.corpus import Corpus, PreparedQuery
from untrimmed.search.corpora.engine import FRAMES, TRAINING_FREE, View
from untrimmed.search.query.combination import CombinedQuery, Exclusion, Term
from untrimmed.search.query.confidence import Confidence, background_of
from untrimmed.search.query.find import find, in_order, span_vector, unit
from untrimmed.search.query.fusion import FusionSettings
from untrimmed.search.query.hits import Hit, Hits, WeighedWord, sentence_warnings, uncertainty_warnings, weighed_words
from untrimmed.search.query.query import Cutoff, Filters, Place, Query, check_sentence
from untrimmed.search.store.records import VideoRecord, absolute
from untrimmed.span import Evidence, Moment
from untrimmed.types import TextFeatures

if TYPE_CHECKING:
    from untrimmed.search.corpora.passages import PassagesView
    from untrimmed.search.query.evidence import PassagesByVideo, ScoredPassage, TextPart

_TINY = 1e-6  # a sum of unit vectors counts as zero if it is shorter than this
# number of videos from which the median and the spread of a query's scores are estimated
_SAMPLE_SIZE = 64
_NO_PASSAGES: dict[TextMode, str] = {
    "said": "the library has no subtitles or speech; index again with subtitle files, or run: untrimmed index --speech",
    "written": "the library has no screen text; unless it was read already, run: untrimmed index --screen-text",
}

Vector = Float[np.ndarray, " D"]


class LockedEncoder:
    """An encoder that only one thread uses at a time, because some encoders are not thread-safe."""

    def __init__(self, encoder: Encoder, lock: AbstractContextManager[object]):
        self.name = encoder.name
        self._encoder = encoder
        self._lock = lock

    def texts(self, texts: Sequence[str]) -> list[TextFeatures]:
        """Return the encoded sentences."""
        with self._lock:
            return self._encoder.encode_texts(texts)

    def image(self, image: UInt8[np.ndarray, "Y X 3"]) -> Vector:
        """Return the unit vector of an RGB picture."""
        with self._lock:
            vector: Vector = self._encoder.encode_frames(image[None])[0]
            return vector


@dataclass(frozen=True, eq=False)
class _EncodedQuery:
    """The encoded parts of a query.

    A part is None if it is empty or has no known word. Sentences of `without` that have no known word are left out.
    """

    query: Query
    text: TextFeatures | None
    then: TextFeatures | None
    without: tuple[TextFeatures, ...]
    example: Vector | None  # sum of pictures and places, see `_example_vector`
    warnings: tuple[str, ...]

    @classmethod
    def of(cls, query: Query, view: View, encoder: LockedEncoder) -> _EncodedQuery:
        """Return the encoded query. All sentences are encoded in one call."""
        parts = [("", query.text), ("then: ", query.then), *(("without: ", text) for text in query.without)]
        sentences = list(dict.fromkeys(text for _, text in parts if text))
        encoded = dict(zip(sentences, encoder.texts(sentences) if sentences else (), strict=True))
        warnings = [
            kind + line for kind, text in parts if text for line in sentence_warnings(encoded[text], encoder.name)
        ]
        known = {sentence: text for sentence, text in encoded.items() if text.reading.is_understood}
        without = tuple(known[sentence] for sentence in query.without if sentence in known)
        example = _example_vector(query, view, encoder)
        return cls(query, known.get(query.text), known.get(query.then), without, example, tuple(warnings))

    @property
    def is_searchable(self) -> bool:
        """Whether the query has an example or a known word. If it has `then`, `then` must also have a known word."""
        has_example = self.example is not None and (self.query.image is not None or bool(self.query.like))
        return (self.text is not None or has_example) and not (self.query.then and self.then is None)


def answer(
    query: Query,
    view: View,
    encoder: LockedEncoder,
    cutoff: Cutoff,
    *,
    within: str | os.PathLike[str] | None = None,
    on_hit: Callable[[Hit], None] | None = None,
    fusion: FusionSettings = FusionSettings(),
) -> Hits:
    """Return the best videos or moments of a version of a library. `on_hit` is called as in `find`.

    Parts without a known word are ignored. There are no hits if no part remains, or if `then` has no known word.

    Raises:
        ConfigError: An option is invalid, or `min_confidence` is set although hits have no confidence.
        UnknownNameError: `within` contains no video, or a place is not in a video of the library.
    """
    among = _among(view, query.filters, within)
    passages = _passages_to_search(view, query, cutoff)
    encoded = _EncodedQuery.of(query, view, encoder)
    warnings = [*encoded.warnings, *(passages.warnings if passages is not None else ())]
    if among is not None and not among:
        return Hits([], [*warnings, f"no video of the library meets: {query.filters}"], filters_exclude_all=True)
    if missing := _missing_passages(view, query):
        return Hits([], missing)
    quotes, is_blank = _quote_problems(query, has_passages=passages is not None)
    if is_blank:
        return Hits([], quotes)
    warnings = [*quotes, *warnings]
    is_seen = encoded.is_searchable and query.is_seen
    if not (is_seen or passages is not None):
        return Hits([], warnings)
    weighted = _WeightedQuery.of(view, encoded) if is_seen else None
    confidence = _confidence(view, weighted) if weighted else None
    if cutoff.min_confidence is not None:
        if confidence is None:
            raise ConfigError(_no_confidence_message(view, query, encoder.name))
        least = confidence.least_score(cutoff.min_confidence)
        cutoff = replace(cutoff, min_score=least if cutoff.min_score is None else max(least, cutoff.min_score))
    prepared = weighted.prepare(view) if weighted else None
    explain = _pair_evidence(view, query, encoded, cutoff, among, fusion)

    def with_confidence(hit: Hit) -> Hit:
        # the calibration does not hold for scores that passages have raised
        is_known = confidence is not None and not any(why.text for moment in hit.moments for why in moment.evidence)
        return explain(replace(hit, confidence=confidence.of(hit.score)) if confidence and is_known else hit)

    callback = (lambda hit: on_hit(with_confidence(hit))) if on_hit else None
    if passages is not None:
        from untrimmed.search.query.fused import FusedQuery  # an import that most libraries do not need

        parts = _text_parts(query, encoded, encoder, is_required=prepared is None)
        fused = FusedQuery.of(view, passages, parts, prepared, cutoff, among, fusion, confidence)
        if fused.has_passages:
            hits = fused.hits(cutoff, among, query.group_by, query.fold, callback)
            if any(fused.matches):  # passages also contain words that the encoder does not know
                warnings = [line for line in warnings if not line.startswith("encoder ")]
            return Hits(map(with_confidence, hits), [*hits.warnings, *warnings], partial=hits.partial)
    assert prepared is not None, "a query that does not search frames requires passages"
    hits = find(view, prepared, cutoff, among=among, group_by=query.group_by, fold=query.fold, on_hit=callback)
    words, ambiguity = _word_weights_and_warnings(view, prepared, encoded.text)
    return Hits(map(with_confidence, hits), [*hits.warnings, *warnings, *ambiguity], partial=hits.partial, words=words)


def _pair_evidence(
    view: View,
    query: Query,
    encoded: _EncodedQuery,
    cutoff: Cutoff,
    among: Collection[str] | None,
    fusion: FusionSettings,
) -> Callable[[Hit], Hit]:
    """Return a function that adds evidence to both moments of each pair.

    The evidence for a moment consists of the passages that overlap the moment and match its sentence. Pairs are
    ranked by pictures only, so passages explain a pair but do not raise its score.
    """
    modes = tuple(mode for mode in TEXT_MODES if mode in (query.modes or TEXT_MODES))
    library_passages = view.passages
    if not query.then or not modes or library_passages is None:
        return lambda hit: hit
    from untrimmed.passages.words import TextQuery
    from untrimmed.search.query.evidence import TextPart, find_passages

    def passages_for(text: str, features: TextFeatures | None) -> PassagesByVideo:
        part = TextPart(TextQuery.of(text), features, modes, False)
        return find_passages(library_passages, part, 2 * cutoff.limit, among, fusion) if text else {}

    found = [passages_for(query.text, encoded.text), passages_for(query.then, encoded.then)]

    def explained(moment: Moment, passages: Sequence[ScoredPassage]) -> Moment:
        reasons = [passage.evidence for passage in passages]
        inside = [why for why in reasons if why.start_s < moment.end_s and moment.start_s < why.end_s]
        return replace(moment, evidence=(Evidence("seen", moment.start_s, moment.end_s), *inside))

    def explain(hit: Hit) -> Hit:
        first, second = (passages.get(hit.video_id, ()) for passages in found)
        moments = tuple(explained(moment, first) for moment in hit.moments)
        return replace(hit, moments=moments, then=tuple(explained(moment, second) for moment in hit.then))

    return explain


def _passages_to_search(view: View, query: Query, cutoff: Cutoff) -> PassagesView | None:
    """Return the passages of the library, or None if it has none or the query does not search them."""
    if cutoff.min_confidence is not None:
        if query.needs_passages:
            raise ConfigError(
                "min_confidence: hits have no confidence in searches for what is said or written; use min_score"
            )
        return None
    is_searched = query.has_passages or (query.text and not query.then and set(query.modes or TEXT_MODES) != {"seen"})
    return view.passages if is_searched else None


def _missing_passages(view: View, query: Query) -> list[str]:
    """Return why no passage can match a text of the query that must match one, and what to do.

    The result is empty if the library has passages of the modes of each such text.
    """
    from untrimmed.passages.words import TextQuery

    needed: list[tuple[TextMode, ...]] = [(mode,) for mode in TEXT_MODES if getattr(query, mode)]
    if query.text and query.modes and "seen" not in query.modes:
        needed.append(tuple(mode for mode in TEXT_MODES if mode in query.modes))
    if query.text and not query.then and TextQuery.of(query.text).phrases:
        needed.append(tuple(mode for mode in TEXT_MODES if mode in (query.modes or TEXT_MODES)))
        if not needed[-1]:
            return ["words in quotes must be said or written, but only pictures are searched; remove the quotes"]
    present = frozenset() if view.passages is None else view.passages.modes
    missing = (mode for modes in needed if not present.intersection(modes) for mode in modes)
    return [_NO_PASSAGES[mode] for mode in dict.fromkeys(missing)]


def _quote_problems(query: Query, *, has_passages: bool) -> tuple[list[str], bool]:
    """Return warnings about quotes, and whether a required sentence has no words (then there are no hits).

    If the query has an example, its text is not required. Without passages, there is no warning about quotes around
    words, because quoted words match no pictures.
    """
    from untrimmed.passages.words import TextQuery, quote_problem

    texts = () if query.then else (query.text, query.said, query.written)
    wrong = {text: problem for text in texts if (problem := quote_problem(text))}
    problems = {text: wrong[text] for text in wrong if has_passages or not TextQuery.of(text).words}
    needed = (query.said, query.written, "" if query.has_examples else query.text)
    is_blank = any(text in problems and not TextQuery.of(text).words for text in needed)
    return list(dict.fromkeys(problems.values())), is_blank


def _text_parts(
    query: Query, encoded: _EncodedQuery, encoder: LockedEncoder, *, is_required: bool
) -> tuple[TextPart, ...]:
    """Return the texts that are compared with passages. If `is_required`, each hit must match `query.text`."""
    from untrimmed.passages.words import TextQuery
    from untrimmed.search.query.evidence import TextPart

    parts = []
    modes = tuple(mode for mode in TEXT_MODES if mode in (query.modes or TEXT_MODES))
    if query.text and modes and not query.then:
        text = TextQuery.of(query.text)
        parts.append(TextPart(text, encoded.text, modes, is_required or bool(text.phrases)))
    for mode in TEXT_MODES:
        if text := getattr(query, mode):
            parsed = TextQuery.of(text)
            (features,) = encoder.texts([parsed.text])
            parts.append(TextPart(parsed, features if features.reading.is_understood else None, (mode,), True))
    return tuple(parts)


def rank_all(
    sentences: Sequence[str],
    view: View,
    encoder: LockedEncoder,
    limit: int,
    within: str | os.PathLike[str] | None = None,
) -> list[dict[Path, float]]:
    """Return, for each sentence, the best videos with their scores; no videos if the encoder knows none of its words.

    Raises:
        ConfigError: `sentences` is not a list of texts, or a sentence is empty.
        UnknownNameError: `within` contains no video.
        UntrimmedError: A shard of the library did not answer.
    """
    require_type(sentences, tuple | list, "sentences", "a list of sentences")
    for sentence in sentences:
        require_type(sentence, str, "sentences", "a list of sentences")
        check_sentence(sentence)
    among = _among(view, Filters(), within)
    texts = encoder.texts(sentences)
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
    query: str | Query, video: str | os.PathLike[str], view: View, encoder: LockedEncoder
) -> tuple[Float[np.ndarray, " T"], Float[np.ndarray, " T"]]:
    """Return times of one video in seconds, and the relevance of its pictures at each time.

    If the query has `then`, only the relevance for the first moment is returned.

    Passages do not change the curve. If only passages are searched, the relevance is the strength of the best matching
    passage at each time, or 0.

    Raises:
        ConfigError: The sentence is empty; the encoder knows no word of the sentence or no word of `then`; or only
            passages are searched and the library has none.
        UnknownNameError: The video, or the video of a place, is not in the library.
    """
    query = query if isinstance(query, Query) else Query(query)
    record = view.records.at(absolute(video))
    if record is None:
        raise UnknownNameError(f"{video}: not in {view.folder}; see: untrimmed ls")
    encoded = _EncodedQuery.of(query, view, encoder)
    if not (encoded.is_searchable and query.is_seen):
        passages = _passages_to_search(view, query, Cutoff())
        if passages is None:
            raise ConfigError("; ".join(_missing_passages(view, query) or encoded.warnings))
        from untrimmed.search.query.fused import FusedQuery  # an import that most libraries do not need

        parts = _text_parts(query, encoded, encoder, is_required=True)
        cutoff = Cutoff(limit=1, moments="all")
        fused = FusedQuery.of(view, passages, parts, None, cutoff, {record.video_id}, FusionSettings())
        return fused.relevance(record.video_id)
    return _WeightedQuery.of(view, encoded).prepare(view).relevance(record.video_id)


def _word_weights_and_warnings(
    view: View, prepared: PreparedQuery, text: TextFeatures | None
) -> tuple[tuple[WeighedWord, ...], tuple[str, ...]]:
    """Return the weights that a trained model gives to the words, and a warning if the sentence is ambiguous."""
    if text is None or view.model.folder is None:
        return (), ()
    sentence = view.corpus().prepare(text) if isinstance(prepared, CombinedQuery) else prepared
    weights = sentence.word_weights()
    uncertainty = sentence.uncertainty()
    words = () if weights is None else weighed_words(text.text, text.tokens, weights.tolist())
    return words, uncertainty_warnings(uncertainty) if uncertainty else ()


@dataclass(frozen=True, eq=False)
class _WeightedTerm:
    """A term of the score: a sentence or an example vector, and its weight."""

    text: TextFeatures
    weight: float = 1.0
    by_frames: bool = False  # whether it is compared with frames instead of encodings of the library's model


@dataclass(frozen=True, eq=False)
class _WeightedQuery:
    """A query as weighted vectors, before it is prepared for a corpus."""

    query: Query
    terms: tuple[_WeightedTerm, ...]
    then: TextFeatures | None
    exclusions: tuple[tuple[TextFeatures, float], ...]  # excluded sentences, each with its median score in the library

    @classmethod
    def of(cls, view: View, encoded: _EncodedQuery) -> _WeightedQuery:
        """Return the query with weights that fit one version of a library."""
        exclusions = [(text, float(np.median(_sample_scores(view, view.corpus(), text)))) for text in encoded.without]
        return cls(encoded.query, tuple(_terms(view, encoded)), encoded.then, tuple(exclusions))

    def prepare(self, view: View) -> PreparedQuery:
        """Return the query, prepared for one version of a library."""
        return self.prepare_for(view.corpus, view.frames, lambda video_id: view.records.of(video_id).duration_s)

    def prepare_for(
        self, model: Callable[[], Corpus], frames: Callable[[], Corpus], duration_s: Callable[[str], float]
    ) -> PreparedQuery:
        """Return the query, prepared for the corpus of a model, the corpus of frames, or both.

        `model` and `frames` each load a corpus. Each is called only if its corpus is needed.
        """
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
            nowhere=self.query.without_in == "video",
        )


def _terms(view: View, encoded: _EncodedQuery) -> list[_WeightedTerm]:
    """Return the sentence and the example as terms. The weight of each term is divided by the spread of its scores.

    For a training-free model, the sum of the two vectors is the only term. A trained model needs words, which the
    example does not have, so the example is compared with frames.
    """
    text = encoded.text
    if encoded.example is None:
        assert text is not None, "the query is searchable"
        return [_WeightedTerm(text)]
    length = float(np.linalg.norm(encoded.example))
    like = _as_text(encoded.example / length)
    if text is None:
        return [_WeightedTerm(like, by_frames=True)]
    takes_vectors = view.model.identity in TRAINING_FREE
    like_corpus = view.corpus() if takes_vectors else view.frames()
    text_weight = encoded.query.weights.text / _spread(_sample_scores(view, view.corpus(), text))
    like_weight = length / _spread(_sample_scores(view, like_corpus, like))
    if takes_vectors:
        return [_WeightedTerm(_as_text(unit(text_weight * unit(text.sentence) + like_weight * like.sentence)))]
    return [_WeightedTerm(text, text_weight), _WeightedTerm(like, like_weight, by_frames=True)]


def _sample_scores(view: View, corpus: Corpus, text: TextFeatures) -> Float[np.ndarray, " N"]:
    """Return the scores of a random sample of all videos, regardless of filters."""
    # ids are random, so the smallest ids are a random sample
    sample = heapq.nsmallest(_SAMPLE_SIZE, (record.video_id for record in view.records))
    return np.array([video.score for video in corpus.prepare(text).rank(limit=len(sample), among=sample)])


def _confidence(view: View, weighted: _WeightedQuery) -> Confidence | None:
    """Return the conversion of scores to confidence, or None if there is no calibration for such a query."""
    background = background_of(view.encoder) if view.model == FRAMES and not weighted.query.has_examples else None
    if background is None:
        return None
    corpus = background.corpus
    prepared = weighted.prepare_for(lambda: corpus, lambda: corpus, background.durations_s.__getitem__)
    return background.confidence(prepared)


def _no_confidence_message(view: View, query: Query, encoder: str) -> str:
    """Return an error message that explains why hits have no confidence."""
    if query.has_examples:
        reason = "queries with examples"
    elif view.model != FRAMES:
        reason = f"model {view.model.identity}"
    elif background_of(view.encoder) is not None:
        reason = f"pairs of moments within {query.within_s:g} s of each other"
    else:
        reason = f"encoder {encoder!r}"
    return f"min_confidence: confidence is not available for {reason}; use min_score (docs/quality.md)"


def _among(view: View, filters: Filters, within: str | os.PathLike[str] | None) -> frozenset[str] | None:
    """Return the ids of the videos that meet all conditions, or None if there are no conditions."""
    folders = [view.below(path) for path in (within, filters.within) if path is not None]
    among = frozenset.intersection(*folders) if folders else None
    if not filters.ranges:
        return among
    return frozenset(r.video_id for r in view.records if (among is None or r.video_id in among) and filters.admit(r))


def _example_vector(query: Query, view: View, encoder: LockedEncoder) -> Vector | None:
    """Return the weighted sum of the vectors of all examples (Rocchio 1971), or None if there are no examples.

    Examples are a picture, places to find, and places to avoid. Places to avoid have a negative weight.
    """
    weights = query.weights
    parts = []
    if query.image is not None:
        parts.append(weights.image * unit(encoder.image(query.image)))
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
    """Return the mean vector of the frames at a place (or the nearest frame if there are none), at unit length.

    Raises:
        UnknownNameError: The video is not in the library.
        ConfigError: The place begins after the end of the video.
    """
    record = _record_of(view, place)
    if place.start_s > record.duration_s:
        raise ConfigError(
            f"{record.path}: the place begins at {place.start_s:.1f} s, expected at most {record.duration_s:.1f} s"
        )
    stored = view.index.get(record.video_id)
    if stored is None:
        raise UnknownNameError(f"{record.path}: has just been removed from the library; search again")
    return span_vector(stored.features, place.start_s, place.start_s if place.end_s is None else place.end_s)


def _record_of(view: View, place: Place) -> VideoRecord:
    try:
        return view.records.of(os.fspath(place.video))
    except KeyError:
        record = view.records.at(absolute(place.video)) or view.records.find(os.fspath(place.video))
    if record is None:
        raise UnknownNameError(
            f"{place.video}: not an id, path or name of a video in {view.index.folder}; see: untrimmed ls"
        )
    return record


def _as_text(vector: Vector) -> TextFeatures:
    """Return a vector as an encoded sentence without words, for corpora that need no words."""
    return TextFeatures("", vector, np.empty((0, 1), dtype=np.float32), ())


def _spread(scores: Float[np.ndarray, " N"]) -> float:
    """Return the standard deviation of scores, or 1 if it is almost 0."""
    deviation = float(scores.std()) if len(scores) > 1 else 0.0
    return deviation if deviation > _TINY else 1.0
