"""Find the passages that match a text, by words and by meaning, and judge how strongly each of them matches."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from untrimmed.passages.passage import TextMode
from untrimmed.passages.sentences import ends_sentence
from untrimmed.passages.words import TextQuery, words_strength
from untrimmed.search.corpora.best_vector import BRANCH, BestVectorQuery
from untrimmed.search.corpora.passages import PassageCorpus, PassagesView
from untrimmed.search.query.fusion import FusionSettings
from untrimmed.search.store.passages import PassageMatch
from untrimmed.span import Evidence, MatchedWord
from untrimmed.types import TextFeatures

PASSAGES_OF_VIDEO = 8
_FIRST_VIDEOS = 25  # the first search by words reads at most `per_video` times this many passages
_MAX_ROWS = 20_000  # the search by words reads at most this many passages
_MAX_MEANING = 0.95  # below 1, so that words still decide between two passages of almost the same meaning
_PASSAGES_BY_MEANING = 3  # largest number of passages of a video that are found by meaning
_LEAST_VIDEOS = 20
_MAX_AMONG = 2000  # if there are more allowed videos, passages of other videos are removed after the search


@dataclass(frozen=True, eq=False)
class TextPart:
    """A text of a query, and the modes in which it is searched. If `is_required`, each hit must match the text."""

    query: TextQuery
    features: TextFeatures | None  # None if the encoder knows no word of the text, or has no vectors of sentences
    modes: tuple[TextMode, ...]
    is_required: bool


@dataclass(frozen=True, eq=False)
class ScoredPassage:
    """A passage that matches a text, with the strength of the match from 0 to 1."""

    match: PassageMatch
    mode: TextMode
    strength: float
    query: TextQuery

    @cached_property
    def evidence(self) -> Evidence:
        """The evidence for a hit: the passage and its matching words."""
        passage = self.match.sentence.passage
        words = tuple(
            MatchedWord(word.start, word.end, *self._span(word.start, word.end))
            for word in self.query.matches(passage.text)
        )
        return Evidence(
            self.mode, passage.start_s, passage.end_s, passage.text, passage.source, passage.language, words
        )

    @cached_property
    def span(self) -> tuple[float, float]:
        """The span of the sentence, or only of its parts with matching words if the text does not end like a sentence.

        Texts without punctuation are joined into long passages that are not sentences.
        """
        passage = self.match.sentence.passage
        words = self.query.matches(passage.text)
        if not words or ends_sentence(passage.text):
            return passage.start_s, passage.end_s
        return self._span_of_parts(words[0].start, words[-1].end)

    @property
    def moment_spans(self) -> list[tuple[float, float]]:
        """The spans of moments: one per place of a phrase in quotes, or (without phrases) the span of the sentence."""
        return (self.query.phrases and self.spans) or [self.span]

    @cached_property
    def spans(self) -> list[tuple[float, float]]:
        """The spans in which the matching words are said or written. There are none if only the meaning matches.

        Each place of a phrase in quotes has its own span. All other words share one span. Equal spans are listed once,
        because a subtitle may repeat a phrase very often.
        """
        text = self.match.sentence.passage.text
        places = self.query.phrase_places(text) or [self.query.matches(text)]
        return list(dict.fromkeys(self._span(place[0].start, place[-1].end) for place in places if place))

    def _span(self, start: int, end: int) -> tuple[float, float]:
        """Return the span of `text[start:end]`.

        The span begins with its first word and ends with its last word. If the times of these words are unknown, it is
        the span of the sentence's parts that contain the text.
        """
        first, last = self._times(start, start + 1)[0], self._times(end - 1, end)[1]
        if first is not None and last is not None:
            return first, last
        return self._span_of_parts(start, end)

    def _span_of_parts(self, start: int, end: int) -> tuple[float, float]:
        """Return the span of the sentence's parts that contain `text[start:end]`."""
        parts = []
        position = 0
        for part in self.match.sentence.parts:
            if position < end and start < position + part.length:
                parts.append(part)
            position += part.length + 1
        return min(part.start_s for part in parts), max(part.end_s for part in parts)

    def _times(self, start: int, end: int) -> tuple[float | None, float | None]:
        """Return start and end of the word `text[start:end]` in seconds, or None for both if they are unknown."""
        passage = self.match.sentence.passage
        position = 0
        for word in passage.words:
            first = passage.text.find(word.text.strip(), position)
            if first < 0:
                continue
            position = first + len(word.text.strip())
            if first <= start < position or first < end <= position:
                return word.start_s, word.end_s
        return None, None


PassagesByVideo = Mapping[str, Sequence[ScoredPassage]]


def find_passages(
    view: PassagesView,
    part: TextPart,
    limit: int,
    among: Collection[str] | None,
    settings: FusionSettings,
    *,
    per_video: int = PASSAGES_OF_VIDEO,
) -> PassagesByVideo:
    """Return, for each video, up to `per_video` passages that match a text strongly enough, strongest first.

    In each mode, at most `limit` videos (20 if `limit` is smaller) are found by words, and about as many by meaning. If
    the text has phrases in quotes, all returned passages contain them.
    """
    by_video: dict[str, list[ScoredPassage]] = {}
    for mode in part.modes:
        if mode in view.modes:
            for passage in _in_mode(view, part, mode, max(limit, _LEAST_VIDEOS), among, settings, per_video):
                if passage.strength > 0 and passage.strength >= settings.least_strength:
                    by_video.setdefault(passage.match.video_id, []).append(passage)
    for passages in by_video.values():
        passages.sort(key=lambda passage: (-passage.strength, passage.match.sentence.passage.start_s))
        del passages[per_video:]
    return by_video


def _in_mode(
    view: PassagesView,
    part: TextPart,
    mode: TextMode,
    limit: int,
    among: Collection[str] | None,
    settings: FusionSettings,
    per_video: int,
) -> list[ScoredPassage]:
    by_words = _by_words(view, part.query, mode, limit, among, per_video)
    matches = {(match.reading_id, match.number): match for match in by_words}
    meanings: dict[tuple[str, int], float] = {}
    features = part.features
    corpus = view.corpus(mode) if features is not None and len(features.sentence) else None
    if features is not None and corpus is not None and len(corpus):
        prepared = corpus.prepare(features)
        by_meaning: set[str] = set()
        if not part.query.phrases:
            by_meaning = {video.video_id for video in prepared.rank(limit=limit, among=among)}
        video_ids = {match.video_id for match in by_words} | by_meaning
        meanings, new = _meanings(view, prepared, video_ids, by_meaning, settings)
        for match in view.table.passages_at(new - matches.keys(), sorted(by_meaning)):
            matches[match.reading_id, match.number] = match
    return [
        ScoredPassage(
            match,
            mode,
            1 - (1 - words_strength(part.query, match.sentence.passage.text)) * (1 - meanings.get(place, 0.0)),
            part.query,
        )
        for place, match in matches.items()
    ]


def _by_words(
    view: PassagesView, query: TextQuery, mode: TextMode, limit: int, among: Collection[str] | None, per_video: int
) -> list[PassageMatch]:
    """Return up to `per_video` passages for each of the `limit` videos whose words match best."""
    few = among if among is None or len(among) <= _MAX_AMONG else None
    num_rows = per_video * min(limit, _FIRST_VIDEOS)
    while True:
        rows = view.table.search(query, mode, limit=num_rows, among=few)
        num_of_video: dict[str, int] = {}
        found = []
        for match in rows:
            count = num_of_video.get(match.video_id, 0)
            is_allowed = among is None or match.video_id in among
            has_place = count < per_video and (count or len(num_of_video) < limit)
            if match.reading_id in view.valid_readings and is_allowed and has_place:
                num_of_video[match.video_id] = count + 1
                found.append(match)
        # a few videos with many passages may have crowded out others, so search again for more
        if len(num_of_video) == limit or len(rows) < num_rows or num_rows >= _MAX_ROWS:
            return found
        num_rows = min(8 * num_rows, _MAX_ROWS)


def _meanings(
    view: PassagesView,
    prepared: BestVectorQuery,
    video_ids: Collection[str],
    by_meaning: Collection[str],
    settings: FusionSettings,
) -> tuple[dict[tuple[str, int], float], set[tuple[str, int]]]:
    """Return the similarity in meaning, from 0 to `_MAX_MEANING`, between the query and each passage of these videos.

    Also return the most similar passages of each video in `by_meaning`, if their similarity is at least
    `least_strength`.
    """
    corpus = prepared.corpus
    assert isinstance(corpus, PassageCorpus), "passages are searched"
    mean = corpus.mean_relevance(prepared.vectors[BRANCH][0])
    start = mean + settings.no_meaning * (1 - mean)
    scale = max(1 - mean, 1e-6) * (settings.same_meaning - settings.no_meaning)
    meanings: dict[tuple[str, int], float] = {}
    best: set[tuple[str, int]] = set()
    for video_id in video_ids:
        try:
            _, cosines = prepared.relevance(video_id)
        except KeyError:  # the passages of this video have no vectors
            continue
        values = np.clip((cosines - start) / scale, 0.0, _MAX_MEANING)
        places = view.places(corpus, video_id)
        meanings.update(zip(places, values.tolist(), strict=True))
        if video_id in by_meaning:
            strongest = np.argsort(-values)[:_PASSAGES_BY_MEANING]
            best.update(places[i] for i in strongest.tolist() if values[i] > 0 and values[i] >= settings.least_strength)
    return meanings, best
