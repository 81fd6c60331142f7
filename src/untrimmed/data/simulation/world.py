"""Two worlds: text and vision as different views of one hidden meaning, which neither of them shows directly.

Hidden: each word has a meaning near those of its synonyms. A sentence's intent is the mean of its words, rare words
weighted more (`untrimmed.data.simulation.lexicon`). Over the span of a caption some of its words are visible, each
strongest around one moment. Half of the time without captions shows other captions, half of these with a rare word of
the video itself. Text: a token is its word's meaning plus some intent and noise, through a fixed random network, plus
a direction common to all words (as in RoBERTa). Vision: a frame is the event plus scene and shot, with noise, through
another such network that ends in a ReLU (as in ResNet and I3D). No coordinate of one view corresponds to the other.
Features depend on the seed, the video's id and captions, and the corpus. `World.events` and `World.intent` are the
hidden side, by which `untrimmed.running.untrained` measures the most that the features can yield.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from untrimmed.config import Checked
from untrimmed.data.annotations import Annotation, Span
from untrimmed.data.simulation.lexicon import MEANING_DIM, Lexicon, generator, tokens, unit
from untrimmed.errors import ConfigError

HIDDEN_DIM = 128
STEEPNESS = 3.0
THRESHOLDS = 0.3
"""Spread of where hidden units turn, against rows of length 1. Steep units, so that a linear map read from means tells
little of single frames (docs/data.md); a larger spread would give all rows more in common than what tells them apart.
"""
SURROUNDINGS_DIM = 48
NUM_SCENES = 60
SHOT_S = 12.0
"""Mean length of a shot."""
MEMORY_S = 6.7
"""For how long a word stays seen, or unseen, on average, before it is drawn anew: persistence 0.8 in 1.5 s."""
STRETCH_S = 9.0
"""Median length of what happens in time that no caption tells of."""
DISTRACTOR = 0.7
"""Its strength against that of what captions tell."""
NEAR = 0.5
"""Share of it that has a rare word of the video's own captions."""
CONTEXT = 0.5
OWN = 0.3
"""Weights of the sentence's intent and of noise in a token, against its word's meaning."""
COMMON = 0.3
"""Root mean square of what all words share; with what the network adds, half of what a word is besides."""

FAINT = 0.1
"""The first coordinate of a frame that would be zero throughout, as happens where there are a dozen or fewer."""


@dataclass(frozen=True, kw_only=True)
class SimulationSettings(metaclass=Checked):
    """Widths of simulated features, and how hard they are to read: lengths of hidden vectors, against meanings of 1."""

    query_dim: int = 1024
    video_dim: int = 3072
    teacher_dim: int = 512
    frames_per_second: float = 2 / 3
    event: float = 1.0  # length of what happens in a frame
    scene: float = 0.6  # of what all frames of a video share
    shots: float = 0.3  # of what the frames of a shot share
    noise: float = 0.4  # of what is new in every frame
    base: float = 0.5  # what an event keeps of its strength away from its peak
    distraction: float = 0.5  # share of unannotated time in which something else happens
    teacher_noise: float = 1.3  # of DL-DKD's teacher's own noise
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("query_dim", "video_dim", "teacher_dim"):
            if getattr(self, name) < 2:
                raise ConfigError(f"{name} is {getattr(self, name)}, wanted at least 2")
        if not 0 < self.frames_per_second < math.inf:
            raise ConfigError(f"frames_per_second is {self.frames_per_second:g}, wanted more than 0, and finite")
        for name in ("event", "scene", "shots", "noise", "teacher_noise", "seed"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigError(f"{name} is {getattr(self, name):g}, wanted at least 0, and finite")
        for name in ("base", "distraction"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name} is {getattr(self, name):g}, wanted between 0 and 1")


class View:
    """A fixed random network, two layers with a tanh, from hidden meaning (rows of length about 1) to features.

    `shift` is the mean of the features before `ReLU`, which a nonnegative view applies itself.
    """

    def __init__(self, rng: np.random.Generator, inputs: int, outputs: int, *, shift: float = 0.0):
        self._inner = STEEPNESS * rng.standard_normal((inputs, HIDDEN_DIM), dtype=np.float32)
        self._inner_bias = STEEPNESS * THRESHOLDS * rng.standard_normal(HIDDEN_DIM, dtype=np.float32)
        self._outer = rng.standard_normal((HIDDEN_DIM, outputs), dtype=np.float32) / np.float32(HIDDEN_DIM**0.5)
        self._outer_bias = np.float32(shift) + 0.2 * rng.standard_normal(outputs, dtype=np.float32)

    def __call__(self, rows: Float[np.ndarray, "N I"]) -> Float[np.ndarray, "N O"]:
        """What the rows look like, float32."""
        hidden = rows.astype(np.float32) @ self._inner + self._inner_bias
        np.tanh(hidden, out=hidden)
        seen: np.ndarray = hidden @ self._outer
        seen += self._outer_bias
        return seen


class World:
    """Features of sentences and videos, all from one seed; `corpus` are the captions of all videos.

    Frames show every moment of a caption, `main_moments` only the main one: of several opinions on one span.
    """

    def __init__(
        self, settings: SimulationSettings, corpus: Sequence[Annotation] = (), *, main_moments: bool = False
    ) -> None:
        self.settings = settings
        self._corpus = tuple(corpus)
        self._main_moments = main_moments
        self._num_videos = len({caption.video for caption in corpus})
        self._lexicon = Lexicon(settings.seed, [caption.text for caption in corpus])
        self._text = View(self._rng("text"), 2 * MEANING_DIM, settings.query_dim)
        self._common = COMMON * self._rng("common").standard_normal(settings.query_dim, dtype=np.float32)
        self._vision = View(self._rng("vision"), MEANING_DIM + SURROUNDINGS_DIM, settings.video_dim, shift=-0.3)
        self._scenes = unit(self._rng("scenes").standard_normal((NUM_SCENES, SURROUNDINGS_DIM)))
        teacher = self._rng("teacher").standard_normal((MEANING_DIM + SURROUNDINGS_DIM, settings.teacher_dim))
        self._teacher = teacher / np.sqrt(settings.teacher_dim)

    def words(self, texts: Sequence[str]) -> list[Float[np.ndarray, "W E"]]:
        """The feature of each token of each sentence, float32."""
        hidden = [self._hidden_words(text) for text in texts]
        seen = self._text(np.concatenate(hidden)) + self._common
        return np.split(seen, np.cumsum([len(rows) for rows in hidden[:-1]]))

    def _hidden_words(self, text: str) -> Float[np.ndarray, "W H"]:
        own = tokens(text)
        noise = unit(self._rng("sentence", *own).standard_normal((len(own), MEANING_DIM)))
        meanings = np.stack([self._lexicon.meaning(token) for token in own])
        return unit(np.concatenate([meanings, CONTEXT * self.intent(text) + OWN * noise], axis=1))

    def frames(self, captions: Sequence[Annotation]) -> Float[np.ndarray, "T D"]:
        """The frames of a video, float32, at least one, never negative; a caption without a moment is not shown."""
        seen = self._vision(
            self._seen(captions, self._rng("noise", captions[0].video), self.settings.noise) / np.sqrt(2)
        )
        np.maximum(seen, 0, out=seen)
        seen[~seen.any(axis=1), 0] = FAINT
        return seen

    def intent(self, text: str) -> Float[np.ndarray, " M"]:
        """The hidden meaning of a sentence, of length 1."""
        return self._lexicon.intent(text)

    def events(self, captions: Sequence[Annotation]) -> Float[np.ndarray, "T M"]:
        """The hidden meaning of what happens in each frame of a video; zero where nothing does."""
        settings = self.settings
        rng = self._rng("events", captions[0].video)
        duration_s = captions[0].duration_s
        assert duration_s, "only videos of known length are simulated"
        num_frames = max(1, round(duration_s * settings.frames_per_second))
        shown = np.zeros((num_frames, MEANING_DIM))
        busy = np.zeros(num_frames, dtype=bool)
        for caption in captions:
            main = caption.main_moment
            for moment in (main,) if self._main_moments and main is not None else caption.moments:
                span = _frame_span(moment, duration_s, num_frames)
                busy[span] = True
                shown[span] += self._show(caption.text, span.stop - span.start, rng)
        self._distract(shown, busy, captions)
        return shown

    def teacher_frames(self, captions: Sequence[Annotation]) -> Float[np.ndarray, "T S"]:
        """Return the frames, float32, as a third view with its own noise: a model that knows roughly how words look."""
        noise = self._rng("teacher's noise", captions[0].video)
        return (self._seen(captions, noise, self.settings.teacher_noise) @ self._teacher).astype(np.float32)

    def teacher_sentence(self, text: str) -> Float[np.ndarray, "1 S"]:
        """A sentence to the teacher, in the space of its frames and with as much noise, of length 1, float32."""
        noise = unit(self._rng("teacher's noise", *tokens(text)).standard_normal(MEANING_DIM))
        meant = self.intent(text) + self.settings.teacher_noise * noise
        return unit(meant[None] @ self._teacher[:MEANING_DIM]).astype(np.float32)

    def _seen(self, captions: Sequence[Annotation], rng: np.random.Generator, noise: float) -> Float[np.ndarray, "T H"]:
        """What happens in each frame, beside where it does, with noise: what there is to see."""
        events = self.settings.event * self.events(captions)
        clear = np.concatenate([events, self._surroundings(captions[0].video, len(events))], axis=1)
        return clear + noise * unit(rng.standard_normal(clear.shape))

    def _surroundings(self, video: str, num_frames: int) -> Float[np.ndarray, "T B"]:
        """Scenes that a corpus shares, mixed for each video, and the shots that it is cut into."""
        settings = self.settings
        rng = self._rng("surroundings", video)
        own = unit(rng.standard_normal(SURROUNDINGS_DIM))
        scene = unit(self._scenes[rng.integers(NUM_SCENES, size=3)].sum(axis=0) + 0.6 * own)
        shot = np.cumsum(rng.random(num_frames) < 1 / (SHOT_S * settings.frames_per_second))
        shots = unit(rng.standard_normal((int(shot[-1]) + 1, SURROUNDINGS_DIM)))
        return settings.scene * scene + settings.shots * shots[shot]

    def _show(self, text: str, num_frames: int, rng: np.random.Generator) -> Float[np.ndarray, "T M"]:
        """An event of that many frames: which words can be seen is a Markov chain, how well peaks at one place."""
        meanings, visible = self._lexicon.content(text)
        drawn = rng.random((num_frames, len(meanings))) < visible
        anew = rng.random(drawn.shape) > np.exp(-1 / (MEMORY_S * self.settings.frames_per_second))
        last = np.maximum.accumulate(np.where(anew, np.arange(num_frames)[:, None], 0), axis=0)
        seen = unit(np.take_along_axis(drawn, last, axis=0) @ meanings)
        peak = rng.random()
        width = rng.uniform(0.15, 0.5)
        base = self.settings.base
        distance = ((np.arange(num_frames) + 0.5) / num_frames - peak) / width
        return (base + (1 - base) * np.exp(-(distance**2) / 2))[:, None] * seen

    def _distract(
        self, shown: Float[np.ndarray, "T M"], busy: Bool[np.ndarray, " T"], captions: Sequence[Annotation]
    ) -> None:
        """Let other videos' captions happen in part of the time that is not busy."""
        if self._num_videos < 2:
            return
        video = captions[0].video
        rng = self._rng("distraction", captions[0].video)
        rare = self._lexicon.rare([caption.text for caption in captions])
        for span in _free_stretches(busy, STRETCH_S * self.settings.frames_per_second, rng):
            if rng.random() < self.settings.distraction:
                text = self._other_caption(video, rare, rng)
                shown[span] += DISTRACTOR * self._show(text, span.stop - span.start, rng)

    def _other_caption(self, video: str, rare: Sequence[str], rng: np.random.Generator) -> str:
        """A caption of another video, at times with one of the given words."""
        if rare and rng.random() < NEAR:
            near = self._lexicon.captions_with[rare[int(rng.integers(len(rare)))]]
            others = [place for place in near if self._corpus[place].video != video]
            if others:
                return self._corpus[others[int(rng.integers(len(others)))]].text
        while True:
            caption = self._corpus[int(rng.integers(len(self._corpus)))]
            if caption.video != video:
                return caption.text

    def _rng(self, *names: str) -> np.random.Generator:
        return generator(self.settings.seed, *names)


def _frame_span(moment: Span, duration_s: float, num_frames: int) -> slice:
    """The frames from the start to the end of the moment, rounded, at least one."""
    start, end = (np.array(moment) * num_frames / duration_s).round().astype(int).tolist()
    start = min(max(start, 0), num_frames - 1)
    return slice(start, max(start + 1, min(end, num_frames)))


def _free_stretches(busy: Bool[np.ndarray, " T"], median: float, rng: np.random.Generator) -> list[slice]:
    """Frames without an event, cut into pieces of 2 or more, about `median`; the last of each gap is what is left."""
    edges = np.flatnonzero(np.diff(np.concatenate([[True], busy, [True]]).astype(int))).reshape(-1, 2)
    stretches = []
    for start, gap_end in edges.tolist():
        while start < gap_end:
            end = min(gap_end, start + max(2, int(rng.lognormal(np.log(median), 0.6))))
            stretches.append(slice(start, end))
            start = end
    return stretches
