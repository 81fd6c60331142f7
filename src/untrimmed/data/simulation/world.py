"""Simulated text and video features, computed by two different networks from one hidden meaning.

- Meanings: words with similar senses have similar meaning vectors. A sentence's meaning (intent) is a weighted sum of
  its words' meanings, in which rare words have more weight (`untrimmed.data.simulation.lexicon`).
- Events: the frames of a caption's moment show some of the caption's words, most strongly around one point in time. In
  half of the time without captions, frames show captions of other videos (distractions). Half of the distractions share
  a rare word with the video's captions.
- Text features: a fixed random network maps a word's meaning, part of the sentence's intent, and noise to a vector. A
  constant vector is added to all words, because RoBERTa features also share a common direction.
- Frame features: another random network maps event, scene, shot and noise to a vector. The last layer of this network
  is a ReLU, as in ResNet and I3D. The coordinates of text features and frame features do not correspond.

Features depend on the seed, on the video's id and captions, and on the corpus. `untrimmed.running.untrained` computes
the best possible result from the hidden vectors (`World.events`, `World.intent`).

Three properties of this world favour particular methods (`BUILT_IN_SIDES`). The settings `words=mixed`,
`runs=scattered` and `teacher_map=nonlinear` each remove one of these properties.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float

from untrimmed.config import Checked
from untrimmed.data.annotations import Annotation, Span
from untrimmed.data.resampling import unit_rows
from untrimmed.data.simulation.lexicon import (
    MEANING_DIM,
    Lexicon,
    RandomWaves,
    content_words,
    generator,
    tokens,
)
from untrimmed.errors import ConfigError
from untrimmed.passages.passage import Passage

HIDDEN_DIM = 128
STEEPNESS = 3.0
THRESHOLDS = 0.3
"""Standard deviation of the hidden units' thresholds, for input rows of length 1.

With this value, a linear map that is fitted to mean vectors works badly for single frames. With a larger value, the
features of all rows would be too similar.
"""
SURROUNDINGS_DIM = 48
NUM_SCENES = 60
SHOT_S = 12.0
"""Mean length of a shot in seconds."""
MEMORY_S = 6.7
"""Mean time in seconds between two random draws of a word's visibility."""
STRETCH_S = 9.0
"""Median length of a distraction in seconds."""
DISTRACTOR = 0.7
"""Strength of a distraction relative to the event of an annotated moment."""
RELATED_SHARE = 0.5
"""Share of distractions that contain a rare word of the video's captions."""
PASSAGE_S = 4.0
"""Mean time between two subtitles in seconds."""
TALKED_SHARE = 0.25
"""Share of captions that subtitles mention, if captions have no type. In TVR's val split, 26 % have type t or vt."""
SAID_SHARE = 0.5
"""Probability that a subtitle that mentions a caption contains a given content word of the caption."""
CHATTER = 4
"""Largest number of words in a subtitle that come from a caption of another video."""
SCATTERED_SHARE = 0.5
"""Share of a moment's frames that show the caption with `runs=scattered`. The caption is stronger in these frames."""
CONTEXT_WEIGHT = 0.5
"""Weight of the sentence's intent in a word's hidden vector, relative to the word's meaning."""
NOISE_WEIGHT = 0.3
"""Weight of noise in a word's hidden vector, relative to the word's meaning."""
MIXED_CONTEXT_WEIGHT = 1.0
"""The value of `CONTEXT_WEIGHT` with `words=mixed`. With 0.5, MS-SL's SumR was 45 instead of 92."""
COMMON = 0.3
"""Root mean square of the vector that is added to all words.

The sum of this vector and the network's bias is half as long as the rest of a word's features.
"""

FAINT = 0.1
"""First coordinate of a frame that would be all zeros. Such frames can occur if `video_dim` is about 12 or less."""

BUILT_IN_SIDES = {
    "words=mixed": "a frame is a sum of the caption's words, which favours matching by words (RAL)",
    "runs=scattered": "a moment is one run of similar frames, which favours clips of consecutive frames (MS-SL)",
    "teacher_map=nonlinear": "the teacher is linear in the hidden meaning, which favours distillation (DL-DKD)",
}
"""{setting: the property of the standard world that it removes, and the method that this property favours}."""


def built_in_sides(settings: Mapping[str, Any]) -> list[str]:
    """Return the entries of `BUILT_IN_SIDES` that hold for a world with these settings.

    Missing settings have their default values.

    >>> len(built_in_sides({})), len(built_in_sides({"words": "mixed"}))
    (3, 2)
    """
    changes = {f"{name}={value}" for name, value in settings.items()}
    return [side for change, side in BUILT_IN_SIDES.items() if change not in changes]


@dataclass(frozen=True, kw_only=True)
class SimulationSettings(metaclass=Checked):
    """Widths and difficulty of simulated features.

    The meaning of a word has length 1. The lengths of other hidden vectors are relative to that length.
    """

    query_dim: int = 1024
    video_dim: int = 3072
    teacher_dim: int = 512
    frames_per_second: float = 2 / 3
    event: float = 1.0  # length of the event in a frame
    scene: float = 0.6  # length of the part that all frames of a video share
    shots: float = 0.3  # length of the part that the frames of a shot share
    noise: float = 0.4  # length of the noise in each frame
    base: float = 0.5  # strength of an event far from its peak, relative to the peak
    distraction: float = 0.5  # share of the time without captions in which captions of other videos are shown
    teacher_noise: float = 1.3  # length of the noise of DL-DKD's teacher
    words: Literal["added", "mixed"] = "added"  # mixed: apply a nonlinear map to the sum of the words' meanings
    runs: Literal["whole", "scattered"] = "whole"  # scattered: only some frames of a moment show the caption
    teacher_map: Literal["linear", "nonlinear"] = "linear"  # kind of map from hidden meanings to the teacher's vectors
    seed: int = 0

    @property
    def changes(self) -> dict[str, Any]:
        """The settings that differ from the default."""
        default = SimulationSettings()
        return {name: value for name, value in asdict(self).items() if value != getattr(default, name)}

    def __post_init__(self) -> None:
        for name in ("query_dim", "video_dim", "teacher_dim"):
            if getattr(self, name) < 2:
                raise ConfigError(f"{name} is {getattr(self, name)}, expected at least 2")
        if not 0 < self.frames_per_second < math.inf:
            raise ConfigError(f"frames_per_second is {self.frames_per_second:g}, expected more than 0, and finite")
        for name in ("event", "scene", "shots", "noise", "teacher_noise", "seed"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigError(f"{name} is {getattr(self, name):g}, expected at least 0, and finite")
        for name in ("base", "distraction"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name} is {getattr(self, name):g}, expected 0 to 1")


class RandomNetwork:
    """A fixed random network with two layers and a tanh, from hidden rows of length about 1 to features.

    `shift` is the mean of the features. For frames, `World.frames` applies a ReLU to the output.
    """

    def __init__(self, rng: np.random.Generator, inputs: int, outputs: int, *, shift: float = 0.0):
        self._inner = STEEPNESS * rng.standard_normal((inputs, HIDDEN_DIM), dtype=np.float32)
        self._inner_bias = STEEPNESS * THRESHOLDS * rng.standard_normal(HIDDEN_DIM, dtype=np.float32)
        self._outer = rng.standard_normal((HIDDEN_DIM, outputs), dtype=np.float32) / np.float32(HIDDEN_DIM**0.5)
        self._outer_bias = np.float32(shift) + 0.2 * rng.standard_normal(outputs, dtype=np.float32)

    def __call__(self, rows: Float[np.ndarray, "N I"]) -> Float[np.ndarray, "N O"]:
        """Return the features of the rows, float32."""
        hidden = rows.astype(np.float32) @ self._inner + self._inner_bias
        np.tanh(hidden, out=hidden)
        features: np.ndarray = hidden @ self._outer
        features += self._outer_bias
        return features


class World:
    """Features of sentences and videos from one seed. `corpus` contains the captions of all videos.

    A caption is shown in each of its moments. With `main_moments` it is shown only in its main moment, for data sets in
    which several annotators mark the same event.
    """

    def __init__(
        self, settings: SimulationSettings, corpus: Sequence[Annotation] = (), *, main_moments: bool = False
    ) -> None:
        self.settings = settings
        self._corpus = tuple(corpus)
        self._main_moments = main_moments
        self._num_videos = len({caption.video for caption in corpus})
        self._lexicon = Lexicon(settings.seed, [caption.text for caption in corpus], mixed=settings.words == "mixed")
        self._text = RandomNetwork(self._rng("text"), 2 * MEANING_DIM, settings.query_dim)
        self._common = COMMON * self._rng("common").standard_normal(settings.query_dim, dtype=np.float32)
        hidden_dim = MEANING_DIM + SURROUNDINGS_DIM
        self._vision = RandomNetwork(self._rng("vision"), hidden_dim, settings.video_dim, shift=-0.3)
        self._scenes = unit_rows(self._rng("scenes").standard_normal((NUM_SCENES, SURROUNDINGS_DIM)))
        teacher = self._rng("teacher").standard_normal((hidden_dim, settings.teacher_dim))
        self._teacher = teacher / np.sqrt(settings.teacher_dim)
        self._teacher_waves = RandomWaves(self._rng("teacher's waves"), hidden_dim, settings.teacher_dim)

    def words(self, texts: Sequence[str]) -> list[Float[np.ndarray, "W E"]]:
        """Return the features of each sentence's tokens, float32."""
        hidden = [self._hidden_words(text) for text in texts]
        features = self._text(np.concatenate(hidden)) + self._common
        return np.split(features, np.cumsum([len(rows) for rows in hidden[:-1]]))

    def _hidden_words(self, text: str) -> Float[np.ndarray, "W H"]:
        words = tokens(text)
        noise = unit_rows(self._rng("sentence", *words).standard_normal((len(words), MEANING_DIM)))
        meanings = np.stack([self._lexicon.meaning(word) for word in words])
        weight = MIXED_CONTEXT_WEIGHT if self.settings.words == "mixed" else CONTEXT_WEIGHT
        return unit_rows(np.concatenate([meanings, weight * self.intent(text) + NOISE_WEIGHT * noise], axis=1))

    def frames(self, captions: Sequence[Annotation]) -> Float[np.ndarray, "T D"]:
        """Return the frame features of a video: nonnegative, float32, at least one row.

        Captions without moments are not shown.
        """
        hidden = self._hidden_frames(captions, self._rng("noise", captions[0].video), self.settings.noise)
        frames = self._vision(hidden / np.sqrt(2))
        np.maximum(frames, 0, out=frames)
        frames[~frames.any(axis=1), 0] = FAINT
        return frames

    def passages(self, captions: Sequence[Annotation]) -> list[Passage]:
        """Return the subtitles of a video, one per `PASSAGE_S` seconds.

        For each caption of TVR's type t or vt, a subtitle within the caption's main moment contains some of its words.
        For a caption without a type, this happens with probability `TALKED_SHARE`. All subtitles also contain words of
        other videos' captions.
        """
        video = captions[0].video
        duration_s = captions[0].duration_s
        assert duration_s, "only videos of known length are simulated"
        rng = self._rng("subtitles", video)
        count = max(1, round(duration_s / PASSAGE_S))
        words: list[list[str]] = [[] for _ in range(count)]
        for caption in captions:
            said = rng.random() < TALKED_SHARE if caption.kind is None else "t" in caption.kind
            if said and caption.main_moment is not None:
                span = _frame_span(caption.main_moment, duration_s, count)
                spoken = content_words(caption.text)
                chosen = [word for word in spoken if rng.random() < SAID_SHARE]
                words[int(rng.integers(span.start, span.stop))] += chosen or spoken[:1]
        step_s = duration_s / count
        passages = []
        for number, mentioned in enumerate(words):
            chatter = content_words(self._other_caption(video, (), rng))
            text = " ".join([*mentioned, *rng.permutation(chatter)[:CHATTER].tolist()])
            passages.append(Passage(text, round(number * step_s, 2), round((number + 1) * step_s, 2), "subtitle"))
        return passages

    def passage_vectors(self, passages: Sequence[Passage]) -> Float[np.ndarray, "P E"]:
        """Return the mean word vector of each passage, float32."""
        return np.stack([words.mean(axis=0) for words in self.words([passage.text for passage in passages])])

    def intent(self, text: str) -> Float[np.ndarray, " M"]:
        """Return the hidden meaning of a sentence, a vector of length 1."""
        return self._lexicon.intent(text)

    def events(self, captions: Sequence[Annotation]) -> Float[np.ndarray, "T M"]:
        """Return a row for each frame of a video: the hidden meaning of its event, or zeros without an event."""
        settings = self.settings
        rng = self._rng("events", captions[0].video)
        duration_s = captions[0].duration_s
        assert duration_s, "only videos of known length are simulated"
        num_frames = max(1, round(duration_s * settings.frames_per_second))
        events = np.zeros((num_frames, MEANING_DIM))
        busy = np.zeros(num_frames, dtype=bool)
        for caption in captions:
            main = caption.main_moment
            for moment in (main,) if self._main_moments and main is not None else caption.moments:
                span = _frame_span(moment, duration_s, num_frames)
                event = self._event(caption.text, span.stop - span.start, rng)
                busy[span] |= event.any(axis=1) if settings.runs == "scattered" else True
                events[span] += event
        self._add_distractions(events, busy, captions)
        return events

    def teacher_frames(self, captions: Sequence[Annotation]) -> Float[np.ndarray, "T S"]:
        """Return the teacher's frame vectors (float32): event, scene, shot and noise, mapped to the teacher's space."""
        noise = self._rng("teacher's noise", captions[0].video)
        return self._taught(self._hidden_frames(captions, noise, self.settings.teacher_noise)).astype(np.float32)

    def teacher_sentence(self, text: str) -> Float[np.ndarray, "1 S"]:
        """Return the teacher's sentence vector, float32, of length 1.

        The vector has as much noise as the teacher's frame vectors.
        """
        noise = unit_rows(self._rng("teacher's noise", *tokens(text)).standard_normal(MEANING_DIM))
        noisy = self.intent(text) + self.settings.teacher_noise * noise
        return unit_rows(self._taught(noisy[None])).astype(np.float32)

    def _taught(self, hidden: Float[np.ndarray, "N H"]) -> Float[np.ndarray, "N S"]:
        """Map meanings, or hidden vectors of frames (which end with scene and shot), to the teacher's space."""
        width = hidden.shape[1]
        if self.settings.teacher_map == "linear":
            return hidden @ self._teacher[:width]
        return self._teacher_waves(np.pad(unit_rows(hidden), ((0, 0), (0, len(self._teacher) - width))))

    def _hidden_frames(
        self, captions: Sequence[Annotation], rng: np.random.Generator, noise: float
    ) -> Float[np.ndarray, "T H"]:
        """Return the hidden vector of each frame: event, surroundings (scene and shot) and noise."""
        events = self.settings.event * self.events(captions)
        clear = np.concatenate([events, self._surroundings(captions[0].video, len(events))], axis=1)
        return clear + noise * unit_rows(rng.standard_normal(clear.shape))

    def _surroundings(self, video: str, num_frames: int) -> Float[np.ndarray, "T B"]:
        """Return the hidden vector of each frame's scene and shot.

        The scene of a video is a mixture of three of `NUM_SCENES` scenes and an individual part.
        """
        settings = self.settings
        rng = self._rng("surroundings", video)
        individual = unit_rows(rng.standard_normal(SURROUNDINGS_DIM))
        scene = unit_rows(self._scenes[rng.integers(NUM_SCENES, size=3)].sum(axis=0) + 0.6 * individual)
        shot = np.cumsum(rng.random(num_frames) < 1 / (SHOT_S * settings.frames_per_second))
        shots = unit_rows(rng.standard_normal((int(shot[-1]) + 1, SURROUNDINGS_DIM)))
        return settings.scene * scene + settings.shots * shots[shot]

    def _event(self, text: str, num_frames: int, rng: np.random.Generator) -> Float[np.ndarray, "T M"]:
        """Return the hidden vector of an event in each of its frames.

        The visible words change from frame to frame as a Markov chain.
        """
        meanings, visible = self._lexicon.content(text)
        drawn = rng.random((num_frames, len(meanings))) < visible
        is_new = rng.random(drawn.shape) > np.exp(-1 / (MEMORY_S * self.settings.frames_per_second))
        last_draw = np.maximum.accumulate(np.where(is_new, np.arange(num_frames)[:, None], 0), axis=0)
        event = unit_rows(np.take_along_axis(drawn, last_draw, axis=0) @ meanings)
        return self._strength(num_frames, rng)[:, None] * event

    def _strength(self, num_frames: int, rng: np.random.Generator) -> Float[np.ndarray, " T"]:
        """Return the strength of an event in each frame: a curve with one peak, or random strengths in some frames."""
        base = self.settings.base
        if self.settings.runs == "scattered":
            shown = rng.random(num_frames) < SCATTERED_SHARE
            shown[rng.integers(num_frames)] = True
            return shown * rng.uniform(base, 1, num_frames) / SCATTERED_SHARE
        peak = rng.random()
        width = rng.uniform(0.15, 0.5)
        distance = ((np.arange(num_frames) + 0.5) / num_frames - peak) / width
        return base + (1 - base) * np.exp(-(distance**2) / 2)

    def _add_distractions(
        self, events: Float[np.ndarray, "T M"], busy: Bool[np.ndarray, " T"], captions: Sequence[Annotation]
    ) -> None:
        """Add events of other videos' captions to some frames without an event, in place."""
        if self._num_videos < 2:
            return
        video = captions[0].video
        rng = self._rng("distraction", captions[0].video)
        rare = self._lexicon.rare([caption.text for caption in captions])
        for span in _free_stretches(busy, STRETCH_S * self.settings.frames_per_second, rng):
            if rng.random() < self.settings.distraction:
                text = self._other_caption(video, rare, rng)
                events[span] += DISTRACTOR * self._event(text, span.stop - span.start, rng)

    def _other_caption(self, video: str, rare: Sequence[str], rng: np.random.Generator) -> str:
        """Return a random caption of another video. With probability `RELATED_SHARE`, it contains a word of `rare`."""
        if rare and rng.random() < RELATED_SHARE:
            related = self._lexicon.captions_with[rare[int(rng.integers(len(rare)))]]
            candidates = [index for index in related if self._corpus[index].video != video]
            if candidates:
                return self._corpus[candidates[int(rng.integers(len(candidates)))]].text
        while True:
            caption = self._corpus[int(rng.integers(len(self._corpus)))]
            if caption.video != video:
                return caption.text

    def _rng(self, *names: str) -> np.random.Generator:
        return generator(self.settings.seed, *names)


def _frame_span(moment: Span, duration_s: float, num_frames: int) -> slice:
    """Return the frame numbers of a moment, rounded to whole frames. The slice is never empty."""
    start, end = (np.array(moment) * num_frames / duration_s).round().astype(int).tolist()
    start = min(max(start, 0), num_frames - 1)
    return slice(start, max(start + 1, min(end, num_frames)))


def _free_stretches(busy: Bool[np.ndarray, " T"], median: float, rng: np.random.Generator) -> list[slice]:
    """Return the frames without an event as stretches of random length.

    A stretch has at least 2 frames, unless the next event starts earlier.
    """
    edges = np.flatnonzero(np.diff(np.concatenate([[True], busy, [True]]).astype(int))).reshape(-1, 2)
    stretches = []
    for start, gap_end in edges.tolist():
        while start < gap_end:
            end = min(gap_end, start + max(2, int(rng.lognormal(np.log(median), 0.6))))
            stretches.append(slice(start, end))
            start = end
    return stretches
