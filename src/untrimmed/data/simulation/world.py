"""Features made from captions and their moments: data with the structure of the task, at any size, from a seed.

Word features. Every word type has one random unit vector, the same in every caption; a token's feature is that vector
mixed with its neighbours'. So captions that share words share structure, as with a language model.

Frame features. A frame is the sum of - what happens: for every caption whose moment covers the frame, the mean of its
content words, of which each frame shows
  a part (`visibility`), projected into the frame space and scaled to `signal`;
- what else happens: unannotated stretches show words of captions of other videos (`distraction` of them, same
strength); - where it happens: a video's own mixture of scenes that a whole corpus shares, drifting slowly, of length
`background`; - smooth and white noise of length `noise`.

Moments are short, so averaging a whole video buries them under its background and its other events, while a method
that looks at moments finds them; and scenes, function words and noise are alike everywhere, so that there is something
to learn. A video's features depend on the seed, its id, its captions, and the sentences that fill its unannotated time.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Bool, Float

from untrimmed.data.annotations import Annotation, Span
from untrimmed.errors import ConfigError

FUNCTION_WORDS = frozenset((
    "a", "an", "the", "this", "that", "these", "those", "his", "her", "its", "their", "he", "she", "it", "you",
    "they", "him", "them", "himself", "herself", "one", "some", "another", "other", "is", "are", "was", "were",
    "be", "been", "being", "has", "have", "had", "do", "does", "did", "in", "on", "at", "of", "off", "to", "from",
    "by", "with", "for", "into", "onto", "over", "under", "up", "down", "out", "as", "and", "or", "but", "then",
    "than", "while", "when", "which", "who", "what", "there", "here", "again", "very", "so", "also", "not", "no",
))  # fmt: skip
NUM_SCENES = 24
SMOOTH = 0.9
"""Correlation of smooth noise, and of the drift of the background, between neighbouring frames."""


@dataclass(frozen=True, kw_only=True)
class SimulationSettings:
    """Sizes and difficulty of simulated features; lengths are those of vectors, against unit words."""

    query_dim: int = 128
    video_dim: int = 128
    teacher_dim: int = 64
    frames_per_second: float = 1.0
    signal: float = 1.0
    background: float = 1.0
    noise: float = 1.0
    distraction: float = 0.5  # share of unannotated time in which something else happens
    visibility: float = 0.7  # chance that a content word shows in a frame of its moment
    context: float = 0.2  # weight of a token's neighbours in its feature
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("query_dim", "video_dim", "teacher_dim"):
            if getattr(self, name) < 2:
                raise ConfigError(f"{name} is {getattr(self, name)}, wanted at least 2")
        if self.frames_per_second <= 0:
            raise ConfigError(f"frames_per_second is {self.frames_per_second:g}, wanted more than 0")
        for name in ("signal", "background", "noise"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} is {getattr(self, name):g}, wanted at least 0")
        for name in ("distraction", "visibility", "context"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name} is {getattr(self, name):g}, wanted between 0 and 1")


class World:
    """Features of captions and videos, all from one seed.

    `texts` are the sentences out of which unannotated stretches of videos are filled.
    """

    def __init__(self, settings: SimulationSettings, texts: Sequence[str] = ()):
        self.settings = settings
        self._word = lru_cache(maxsize=None)(self._new_word)
        self._texts = tuple(texts)
        self._to_frames = self.projection(settings.video_dim)
        self._to_teacher = self.projection(settings.teacher_dim, "teacher")
        self._scenes = self._rng("scenes").standard_normal((NUM_SCENES, settings.video_dim))

    def words(self, text: str) -> Float[np.ndarray, "W E"]:
        """The feature of each token of a sentence, float32."""
        own = np.stack([self._word(token) for token in tokens(text)])
        padded = np.pad(own, ((1, 1), (0, 0)))
        neighbours = padded[:-2] + padded[2:]
        mixed = (1 - self.settings.context) * own + self.settings.context * neighbours / 2
        return mixed.astype(np.float32)

    def frames(self, captions: Sequence[Annotation]) -> Float[np.ndarray, "T D"]:
        """The frames of a video, float32, at least one; a caption without a moment is not shown."""
        settings, rng = self.settings, self._rng("video", captions[0].video)
        shown = settings.signal * self._events(captions, rng) @ self._to_frames
        num_frames = len(shown)
        mixture = rng.standard_normal(NUM_SCENES) * (rng.random(NUM_SCENES) < 0.25)
        drift = _smooth(rng.standard_normal((num_frames, NUM_SCENES)))
        background = settings.background * unit((mixture + 0.3 * drift) @ self._scenes)
        white = rng.standard_normal((num_frames, settings.video_dim))
        noise = settings.noise * unit(_smooth(rng.standard_normal(white.shape)) + white)
        return (shown + background + noise).astype(np.float32)

    def teacher_frames(self, captions: Sequence[Annotation]) -> Float[np.ndarray, "T S"]:
        """The frames to a narrower model that understands words, with as much noise of its own again; float32.

        It sees what the frames show and no more, background, distraction and their noise included.
        """
        seen = self.frames(captions) @ self._to_frames.T @ self._to_teacher
        noise = self._rng("teacher", captions[0].video).standard_normal(seen.shape)
        return (seen + self.settings.noise * unit(noise)).astype(np.float32)

    def teacher_sentence(self, text: str) -> Float[np.ndarray, "1 S"]:
        """A sentence to the teacher: the mean of its content words in the teacher's space, unit length, float32."""
        mean = np.mean([self._word(word) for word in content_words(text)], axis=0)
        return unit(mean[None] @ self._to_teacher).astype(np.float32)

    def projection(self, dim: int, kind: str = "frames") -> Float[np.ndarray, "E D"]:
        """The map from the word space into another of that width; identity for frames as wide as words.

        With orthonormal columns or rows, so that it preserves cosines as far as the widths allow. It makes
        training-free baselines possible: words and frames can be compared without learning.
        """
        words = self.settings.query_dim
        if kind == "frames" and dim == words:
            return np.eye(dim)
        basis, _ = np.linalg.qr(self._rng("projection", kind).standard_normal((max(words, dim), min(words, dim))))
        return basis if words >= dim else basis.T

    def _events(self, captions: Sequence[Annotation], rng: np.random.Generator) -> Float[np.ndarray, "T E"]:
        """What happens in each frame, in the word space; zero where nothing does."""
        duration_s = captions[0].duration_s
        assert duration_s, "only videos of known length are simulated"
        num_frames = max(1, round(duration_s * self.settings.frames_per_second))
        shown, busy = np.zeros((num_frames, self.settings.query_dim)), np.zeros(num_frames, dtype=bool)
        for caption in captions:
            for moment in caption.moments:
                span = _frame_span(moment, duration_s, num_frames)
                busy[span] = True
                shown[span] += self._show(caption.text, span, rng)
        if self._texts:
            rng = self._rng("distraction", captions[0].video)
            for span in _free_stretches(busy, rng):
                if rng.random() < self.settings.distraction:
                    shown[span] += self._show(self._texts[int(rng.integers(len(self._texts)))], span, rng)
        return shown

    def _show(self, text: str, span: slice, rng: np.random.Generator) -> Float[np.ndarray, "T E"]:
        words = content_words(text)
        vectors = np.stack([self._word(word) for word in words])
        seen = rng.random((span.stop - span.start, len(words))) < self.settings.visibility
        seen[np.arange(len(seen)), rng.integers(len(words), size=len(seen))] = True  # at least one word a frame
        return unit(seen @ vectors)

    def _new_word(self, word: str) -> Float[np.ndarray, " E"]:
        return unit(self._rng("word", word).standard_normal(self.settings.query_dim))

    def _rng(self, *names: str) -> np.random.Generator:
        label = "\0".join((str(self.settings.seed), *names))
        digest = hashlib.blake2b(label.encode(), digest_size=16).digest()
        return np.random.default_rng(int.from_bytes(digest, "big"))


def tokens(text: str) -> list[str]:
    """The words of a sentence in lower case; at least one.

    >>> tokens("A dog's bone, 2 bones.")
    ['a', "dog's", 'bone', '2', 'bones']
    """
    return re.findall(r"[^\W_]+(?:'[^\W_]+)?", text.lower()) or [text.lower()]


def content_words(text: str) -> list[str]:
    """The words of a sentence that a picture can show; all words if there are none of these.

    >>> content_words("The man sits on a chair.")
    ['man', 'sits', 'chair']
    """
    return [token for token in tokens(text) if token not in FUNCTION_WORDS] or tokens(text)


def unit(rows: Float[np.ndarray, "*N D"]) -> Float[np.ndarray, "*N D"]:
    """The rows at length one; a zero row stays zero."""
    return rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), 1e-12)


def _smooth(rows: Float[np.ndarray, "T D"]) -> Float[np.ndarray, "T D"]:
    """Independent rows as a stationary series in which neighbours correlate."""
    smooth = rows.copy()
    for t in range(1, len(rows)):
        smooth[t] = SMOOTH * smooth[t - 1] + np.sqrt(1 - SMOOTH**2) * rows[t]
    return smooth


def _frame_span(moment: Span, duration_s: float, num_frames: int) -> slice:
    """The frames from the start to the end of the moment, rounded, at least one."""
    start, end = (np.array(moment) * num_frames / duration_s).round().astype(int).tolist()
    start = min(max(start, 0), num_frames - 1)
    return slice(start, max(start + 1, min(end, num_frames)))


def _free_stretches(busy: Bool[np.ndarray, " T"], rng: np.random.Generator) -> list[slice]:
    """Frames without an event, cut into pieces of 4 to 12 frames, the last of each gap possibly shorter."""
    stretches, start = [], 0
    while start < len(busy):
        if busy[start]:
            start += 1
            continue
        following = np.flatnonzero(busy[start:])
        gap_end = start + int(following[0]) if len(following) else len(busy)
        end = min(gap_end, start + int(rng.integers(4, 13)))
        stretches.append(slice(start, end))
        start = end
    return stretches
