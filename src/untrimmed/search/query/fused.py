"""Answer a query with both pictures and passages."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
from jaxtyping import Float

from untrimmed.errors import UntrimmedError
from untrimmed.search.corpora.corpus import PreparedQuery
from untrimmed.search.corpora.engine import View
from untrimmed.search.corpora.passages import PassagesView
from untrimmed.search.query.confidence import Confidence
from untrimmed.search.query.evidence import PASSAGES_OF_VIDEO, PassagesByVideo, ScoredPassage, TextPart, find_passages
from untrimmed.search.query.find import coarse_curve, fold_hits, in_time_order
from untrimmed.search.query.fusion import FusionCandidate, FusionSettings, fuse, raised
from untrimmed.search.query.hits import Hit, Hits
from untrimmed.search.query.query import Cutoff, GroupBy
from untrimmed.span import Evidence, Moment

_TOGETHER_S = 3.0  # passages that match different parts of a query belong together if the gap is at most this
_SNAP_S = 0.5  # a moment is extended beyond its passage to a shot change that is at most this far away
_LEAST_REQUIRED = 200  # if a text is required, the pictures of at least this many videos are compared
_MAX_PASSAGES = 80  # largest number of passages of a video if all of its moments are requested
_EDGE_S = 1e-3  # in a curve of passages, the strength rises and falls within this time before and after a passage
# A passage of strength 1 raises the score by at least this multiple of (best frame's relevance - mean relevance).
_MIN_RAISE = 1.2
_SAMPLE_SIZE = 16  # number of videos from which the usual relevance of frames is estimated

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class FusedQuery:
    """A query prepared for one version of a library.

    It holds the passages that match the query, and the form of the query that searches frames (`prepared`). If
    `prepared` is None, only passages are searched.
    """

    view: View
    parts: Sequence[TextPart]
    matches: Sequence[PassagesByVideo]  # matching passages for each part of the query
    prepared: PreparedQuery | None
    settings: FusionSettings
    confidence: Confidence | None = None  # converts scores of frames to confidence; None if there is no calibration

    @classmethod
    def of(
        cls,
        view: View,
        passages: PassagesView,
        parts: Sequence[TextPart],
        prepared: PreparedQuery | None,
        cutoff: Cutoff,
        among: Collection[str] | None,
        settings: FusionSettings,
        confidence: Confidence | None = None,
    ) -> FusedQuery:
        """Return the query with the passages that match each of its parts."""
        matches = []
        per_video = _MAX_PASSAGES if cutoff.moments == "all" else max(PASSAGES_OF_VIDEO, cutoff.moments)
        for part in parts:
            part_settings = settings.if_required() if part.is_required else settings
            # text and pictures are ranked together, so the best video need not be one whose text matches best
            least = _LEAST_REQUIRED if part.is_required and prepared is not None else 0
            limit = max(2 * cutoff.limit, least)
            matches.append(find_passages(passages, part, limit, among, part_settings, per_video=per_video))
        return cls(view, parts, matches, prepared, settings, confidence)

    @property
    def has_passages(self) -> bool:
        """Whether a passage matches, or whether some part of the query is required to match a passage.

        If neither is the case, only frames are searched.
        """
        return any(self.matches) or any(part.is_required for part in self.parts)

    def hits(
        self,
        cutoff: Cutoff,
        among: Collection[str] | None,
        group_by: GroupBy,
        fold: float | None,
        on_hit: Callable[[Hit], None] | None,
    ) -> Hits:
        """Return the best hits, see `find`."""
        required = [by_video for by_video, part in zip(self.matches, self.parts, strict=True) if part.is_required]
        candidates = {video_id for by_video in self.matches for video_id in by_video}
        for by_video in required:
            candidates &= by_video.keys()
        has_match = bool(candidates)
        deviation, min_relevance, is_shown = self._frame_statistics()
        seen: dict[str, float] = {}
        if self.prepared is not None:
            if not required:
                ranked = self.prepared.rank(limit=max(50, 4 * cutoff.limit), among=among)
                seen.update((video.video_id, video.score) for video in ranked)
            if missing := candidates - seen.keys():
                ranked = self.prepared.rank(limit=len(missing), among=missing)
                seen.update((video.video_id, video.score) for video in ranked)
            candidates &= seen.keys()  # videos of shards that do not answer are left out
        is_picture = is_shown and not required
        videos: dict[str, _VideoWithPassages] = {}
        for video_id in candidates:
            video = self._if_answered(partial(self._video, video_id, seen, deviation, min_relevance, is_picture))
            if video is not None:
                videos[video_id] = video
        plain = [FusionCandidate(video_id, score) for video_id, score in seen.items() if video_id not in videos]
        scores = fuse([*(video.candidate for video in videos.values()), *plain], deviation, self.settings)
        least = -math.inf if cutoff.min_score is None else cutoff.min_score
        order = sorted(scores, key=lambda video_id: (-scores[video_id], self.view.records.of(video_id).path))
        needed = 4 * cutoff.limit if fold else cutoff.limit
        hits: list[Hit] = []
        for video_id in order:
            if scores[video_id] < least or sum(hit.score >= scores[video_id] for hit in hits) >= needed:
                break
            find_moments = partial(self._moments, video_id, videos.get(video_id), cutoff, is_required=bool(required))
            if moments := self._if_answered(find_moments):
                curve = self._coarse_curve(video_id, seen, cutoff.curve_points) if cutoff.curve_points else ()
                hits += self._hits_of(video_id, scores[video_id], moments, curve, group_by)
        if group_by == "moment":
            hits = [hit for hit in hits if hit.score >= least]
            hits.sort(key=lambda hit: (-hit.score, str(hit.video), hit.start_s))
        if fold is not None:
            hits = fold_hits(self.view, hits, fold)
        hits = hits[: cutoff.limit]
        if cutoff.moments == "all":
            hits = [in_time_order(hit) for hit in hits]
        if on_hit is not None and group_by == "video" and fold is None:
            for hit in hits:
                on_hit(hit)
        missing_shard = [self.prepared.missing] if self.prepared is not None and self.prepared.missing else []
        nothing = ["no passage of the videos matches"] if required and not has_match else []
        return Hits(hits, [*missing_shard, *nothing], partial=bool(missing_shard))

    def relevance(self, video_id: str) -> tuple[Float[np.ndarray, " T"], Float[np.ndarray, " T"]]:
        """Return times of one video in seconds, and the relevance of its frames at each time.

        If only passages are searched, the second array is the strength of the strongest passage at each time.
        """
        if self.prepared is not None:
            return self.prepared.relevance(video_id)
        duration_s = self.view.records.of(video_id).duration_s
        passages = [passage for by_video in self.matches for passage in by_video.get(video_id, ())]
        starts_s, ends_s = np.array([passage.span for passage in passages]).reshape(-1, 2).T
        times_s = np.concatenate([[0.0, duration_s], starts_s - _EDGE_S, starts_s, ends_s, ends_s + _EDGE_S])
        times_s = np.unique(times_s.clip(0.0, duration_s))
        is_inside = (starts_s <= times_s[:, None]) & (times_s[:, None] <= ends_s)
        strengths = np.array([passage.strength for passage in passages])
        return times_s, np.max(is_inside * strengths, axis=1, initial=0.0)

    def _if_answered(self, compute: Callable[[], T]) -> T | None:
        """Return the result for one video, or None if the shard of the video does not answer."""
        try:
            return compute()
        except (UntrimmedError, KeyError):
            if self.prepared is None or not self.prepared.missing:
                raise
            return None

    def _frame_statistics(self) -> tuple[float, float, bool]:
        """Return the deviation of the relevance of frames, a threshold, and whether pictures show the query.

        The first value is the standard deviation, or a larger value if the best frame is an outlier. The larger value
        lets a passage of strength 1 outrank this frame. Frames whose relevance reaches the threshold agree with a
        passage, see `FusionSettings.agreement`. The third value is true if the best frame has at least the confidence
        `FusionSettings.sure`.
        """
        if self.prepared is None:
            return 1.0, math.inf, False
        # ids are random, so the smallest ids are a random sample
        sample = heapq.nsmallest(_SAMPLE_SIZE, (record.video_id for record in self.view.records))
        ranked = self.prepared.rank(limit=1)
        curves = [self._if_answered(partial(self.prepared.relevance, video_id)) for video_id in sample]
        values = np.concatenate([curve[1] for curve in curves if curve is not None] or [np.zeros(1)])
        mean, deviation = float(values.mean()), max(float(values.std()), 1e-6)
        best = max((video.score for video in ranked), default=mean)
        is_shown = self.confidence is not None and self.confidence.of(best) >= self.settings.sure
        min_relevance = max(mean + self.settings.agreement * deviation, (mean + best) / 2)
        return max(deviation, _MIN_RAISE * (best - mean) / self.settings.weight), min_relevance, is_shown

    def _video(
        self, video_id: str, seen: dict[str, float], deviation: float, min_relevance: float, is_picture: bool
    ) -> _VideoWithPassages:
        """Return a video with one moment for each of its matching passages, best first.

        If the query is probably about a picture (`is_picture`), weak passages count less, see `FusionSettings.sure`.
        """
        curve = None if self.prepared is None else self.prepared.relevance(video_id)
        shift = 0.0 if curve is None else seen[video_id] - float(curve[1].max())
        spans = [] if self.prepared is None else self.prepared.moments(video_id, limit=5, min_s=0.0)
        duration_s = self.view.records.of(video_id).duration_s
        moments: list[_PassageMoment] = []
        matches = [passage for by_video in self.matches for passage in by_video.get(video_id, ())]
        groups = [(passage, self._group_at(video_id, passage)) for passage in matches]
        for passage, group, place in [(*entry, span) for entry in groups for span in entry[0].moment_spans]:
            start_s, end_s = self._widened(video_id, *place)
            strength = sum(other.strength for other in group) / len(list(filter(None, self.matches)))
            start_s = min([start_s, *(other.span[0] for other in group[1:])])
            end_s = max([end_s, *(other.span[1] for other in group[1:])])
            words = [place] if passage.query.phrases else passage.spans or [place]
            relevance = None
            peak_s = (words[0][0] + words[-1][1]) / 2
            evidence = _reasons(group)
            if curve is not None:
                times_s, values = curve
                inside = np.flatnonzero((times_s >= start_s) & (times_s <= end_s))
                if not len(inside):
                    inside = np.array([np.abs(times_s - peak_s).argmin()])
                best = int(inside[values[inside].argmax()])
                relevance = float(values[best]) + shift
                if values[best] >= min_relevance:
                    peak_s = float(np.clip(times_s[best], start_s, end_s))
                    for span in spans:
                        if span.start_s <= peak_s <= span.end_s:
                            evidence.append(Evidence("seen", span.start_s, span.end_s))
                            # the moment keeps the words even if the scene does not contain them
                            start_s = min(max(start_s, span.start_s), words[0][0])
                            end_s = max(min(end_s, span.end_s), words[-1][1])
                            break
                elif is_picture and strength < self.settings.full_strength:
                    strength *= self.settings.factor_if_sure
            end_s = min(end_s, duration_s)
            start_s, peak_s = min(start_s, end_s), min(peak_s, end_s)
            score = strength if relevance is None else raised(relevance, strength, deviation, self.settings)
            moments.append(_PassageMoment(start_s, end_s, peak_s, score, strength, relevance, tuple(evidence)))
        moments.sort(key=lambda moment: (-moment.score, moment.start_s))
        best_moment = moments[0]
        candidate = FusionCandidate(video_id, seen.get(video_id), best_moment.strength, best_moment.relevance)
        return _VideoWithPassages(candidate, tuple(moments))

    def _group_at(self, video_id: str, passage: ScoredPassage) -> list[ScoredPassage]:
        """Return this passage and, for each other part of the query, the strongest passage at about the same time."""
        span = passage.match.sentence.passage
        group = [passage]
        for by_video in self.matches:
            others = by_video.get(video_id, ())
            if passage in others:
                continue
            near = (
                other
                for other in others
                if other.match.sentence.passage.start_s <= span.end_s + _TOGETHER_S
                and span.start_s <= other.match.sentence.passage.end_s + _TOGETHER_S
            )
            if (other := next(near, None)) is not None:
                group.append(other)
        return group

    def _widened(self, video_id: str, start_s: float, end_s: float) -> tuple[float, float]:
        """Return a span, extended on each side to a shot change at most half a second away, if there is one."""
        shots = None if self.prepared is None else self.prepared.shot_starts_s(video_id)
        if shots is not None and len(shots):
            before = shots[(shots <= start_s) & (shots >= start_s - _SNAP_S)]
            after = shots[(shots >= end_s) & (shots <= end_s + _SNAP_S)]
            start_s = float(before[-1]) if len(before) else start_s
            end_s = float(after[0]) if len(after) else end_s
        return start_s, max(start_s, end_s)

    def _moments(
        self, video_id: str, video: _VideoWithPassages | None, cutoff: Cutoff, *, is_required: bool
    ) -> list[Moment]:
        """Return moments of a video, best first. They do not overlap."""
        duration_s = self.view.records.of(video_id).duration_s
        limit = None if cutoff.moments == "all" else cutoff.moments
        candidates = [moment.widened(cutoff.min_moment_s, duration_s) for moment in (video.moments if video else ())]
        if self.prepared is not None and not is_required:
            times_s, values = self.prepared.relevance(video_id)
            for span in self.prepared.moments(video_id, limit=limit, min_s=cutoff.min_moment_s):
                peak = np.interp(span.picture_s, times_s, values)
                seen = Evidence("seen", span.start_s, span.end_s)
                candidates.append(replace(span, score=float(peak), evidence=(seen,)))
        if video is None:  # keep the order in which `prepared` returned the moments
            return candidates[:limit]
        moments: list[Moment] = []
        for moment in sorted(candidates, key=lambda moment: (-moment.score, moment.start_s)):
            if all(moment.end_s <= other.start_s or other.end_s <= moment.start_s for other in moments):
                moments.append(moment)
        return moments[:limit]

    def _coarse_curve(self, video_id: str, seen: dict[str, float], points: int) -> tuple[float, ...]:
        """Return the curve of a hit. If frames are searched, the maximum of the curve is the score of the frames."""
        curve = self._if_answered(partial(self.relevance, video_id))
        if curve is None:
            return ()
        times_s, values = curve
        if self.prepared is not None:
            values = values + (seen[video_id] - values.max())
        return coarse_curve(times_s, values, self.view.records.of(video_id).duration_s, points)

    def _hits_of(
        self, video_id: str, score: float, moments: Sequence[Moment], curve: tuple[float, ...], group_by: GroupBy
    ) -> list[Hit]:
        record = self.view.records.of(video_id)
        groups = [[moment] for moment in moments] if group_by == "moment" else [list(moments)]
        hits = []
        for group in groups:
            best = group[0]
            span_s = best.start_s, best.end_s
            value = score if group_by == "video" else best.score
            hits.append(
                Hit(
                    Path(record.path),
                    video_id,
                    *span_s,
                    value,
                    record.duration_s,
                    tuple(group),
                    peak_s=best.peak_s,
                    width=record.width,
                    height=record.height,
                    curve=curve,
                )
            )
        return hits


def _reasons(passages: Sequence[ScoredPassage]) -> list[Evidence]:
    """Return the passages as reasons for a hit. A passage that matches several parts is one reason with all words."""
    reasons: dict[tuple[str, int], Evidence] = {}
    for passage in passages:
        place = passage.match.reading_id, passage.match.number
        reason = passage.evidence
        if (earlier := reasons.get(place)) is not None:
            words = {*earlier.words, *reason.words}
            reason = replace(earlier, words=tuple(sorted(words, key=lambda word: word.start)))
        reasons[place] = reason
    return list(reasons.values())


@dataclass(frozen=True)
class _PassageMoment:
    """A moment at a passage: `relevance` is the relevance of its frames, or None if frames are not searched."""

    start_s: float
    end_s: float
    peak_s: float
    score: float
    strength: float
    relevance: float | None
    evidence: tuple[Evidence, ...]

    def widened(self, min_s: float, duration_s: float) -> Moment:
        """Return the moment, widened on both sides to at least `min_s` if the video is long enough."""
        missing_s = max(0.0, min(min_s, duration_s) - (self.end_s - self.start_s))
        start_s = min(max(0.0, self.start_s - missing_s / 2), max(0.0, duration_s - min(min_s, duration_s)))
        start_s = min(start_s, self.start_s)
        end_s = max(self.end_s, min(duration_s, start_s + max(self.end_s - self.start_s, min(min_s, duration_s))))
        return Moment(start_s, end_s, self.score, self.peak_s, self.evidence)


@dataclass(frozen=True)
class _VideoWithPassages:
    candidate: FusionCandidate
    moments: tuple[_PassageMoment, ...]
