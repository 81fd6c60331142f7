"""Recognise speech with Whisper.

Sound is read in pieces, so a long file needs little memory. Silero VAD, a model in faster-whisper, finds the parts with
voices. Only these parts are recognised. Text that Whisper probably invented is dropped: loops, improbable text, and
lines that repeat.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float32

from untrimmed.encoders.builtin.weights import PackagedFile
from untrimmed.errors import ConfigError, EncoderError, nearest, one_line
from untrimmed.passages.passage import Passage, Word
from untrimmed.passages.source import Media, PassageSource, ReadingReport, register_source
from untrimmed.passages.speech_model import DEFAULT_MODEL, INSTALL, LANGUAGES, locate_model, model_digest
from untrimmed.video.messages import SOUND_HZ

if TYPE_CHECKING:
    from untrimmed.video.reader import SoundPiece, SoundReader

# Silero VAD (MIT), which finds the parts with speech
DETECTOR = PackagedFile(
    "faster_whisper",
    "assets/silero_vad_v6.onnx",
    "4cbf549b8326f60f80f2536d9eefeb450a9abe83365a098031c89719f1be17d2",
    "speech recognition",
    INSTALL,
)
_BLOCK_S = 120.0  # voices are searched in blocks of this length
_MAX_REGION_S = 28.0  # less than the 30 s that Whisper reads at a time
_SETTLED_S = 1.0  # a region that ends less than this before the end of its block may continue in the next block
_MAX_JUMP_S = 0.01  # pieces of sound with a larger gap between them are not joined
_SILENCE = 1e-3  # sound is silent if all samples are smaller (-60 dB)
_SURE_LANGUAGE = 0.8  # if the most probable language of the first window has a lower probability, more windows are used
_LANGUAGE_WINDOWS = 3
_MAX_COMPRESSION = 2.4  # text that zlib compresses by a larger factor is a loop; Whisper has the same limit
_MIN_LOG_PROB = -1.0  # smallest mean log probability of the tokens of a text; Whisper has the same limit
_MAX_NO_SPEECH = 0.6  # if the probability of silence is larger, `_MIN_SILENT_LOG_PROB` replaces `_MIN_LOG_PROB`
_MIN_SILENT_LOG_PROB = -0.5
_MAX_RATE = 40.0  # largest number of characters per second; normal speech has about 15
_MAX_EQUAL_LINES = 2  # largest number of consecutive equal lines; further ones are dropped
_SENTENCE_END = re.compile(r"[.?!…。？！]['\"”’)»]*$")

Samples = Float32[np.ndarray, " N"]


@dataclass(frozen=True)
class Region:
    """A part of the sound with voices, of at most 28 s."""

    start_s: float
    samples: Samples

    @property
    def length_s(self) -> float:
        """The length in seconds."""
        return len(self.samples) / SOUND_HZ


@dataclass(frozen=True)
class SpokenText:
    """A recognised text, with the times of its words in the window, and Whisper's measures of its quality."""

    words: tuple[tuple[Word, float], ...]  # words, each with its probability
    log_prob: float
    no_speech: float
    compression: float

    @property
    def is_plausible(self) -> bool:
        """Whether somebody probably spoke this text."""
        is_silent = self.no_speech > _MAX_NO_SPEECH and self.log_prob < _MIN_SILENT_LOG_PROB
        return bool(self.words) and not self.is_loop and self.log_prob >= _MIN_LOG_PROB and not is_silent

    @property
    def is_loop(self) -> bool:
        """Whether the text repeats itself."""
        return self.compression > _MAX_COMPRESSION


class Recogniser:
    """A loaded Whisper model."""

    def __init__(self, folder: Path) -> None:
        """Load the model of a folder.

        Raises:
            EncoderError: The files are damaged, or of another format.
        """
        import ctranslate2
        from faster_whisper import WhisperModel

        has_gpu = ctranslate2.get_cuda_device_count() > 0
        try:
            self._model = WhisperModel(
                str(folder), device="cuda" if has_gpu else "cpu", compute_type="float16" if has_gpu else "int8"
            )
        # CTranslate2 and the tokenizer raise plain exceptions
        except Exception as error:
            raise EncoderError(
                f"{folder}: the speech model cannot be loaded ({one_line(error)}); fetch it again, or use another "
                "model (--speech-model)"
            ) from error
        self.languages: frozenset[str] = frozenset(self._model.supported_languages)

    def language_probabilities(self, samples: Samples) -> dict[str, float]:
        """Return the probability of each language."""
        if len(self.languages) == 1:
            return dict.fromkeys(self.languages, 1.0)
        return dict(self._model.detect_language(audio=samples)[2])

    def recognise(self, samples: Samples, language: str) -> list[SpokenText]:
        """Return the texts of at most 30 s of sound. If a text repeats itself, the sound is recognised again."""
        texts = self._recognise(samples, language)
        if any(text.is_loop for text in texts):
            texts = self._recognise(samples, language, no_repeat_ngram_size=3)
        return texts

    def _recognise(self, samples: Samples, language: str, **options: Any) -> list[SpokenText]:
        # Results are repeatable with temperature 0 only. Without `condition_on_previous_text`, errors do not spread.
        segments, _ = self._model.transcribe(
            samples,
            language=language,
            temperature=0.0,
            condition_on_previous_text=False,
            word_timestamps=True,
            **options,
        )
        return [
            SpokenText(
                tuple(
                    (Word(word.word, float(word.start), float(word.end)), float(word.probability))
                    for word in segment.words or ()
                ),
                segment.avg_logprob,
                segment.no_speech_prob,
                segment.compression_ratio,
            )
            for segment in segments
        ]


@register_source("speech")
@dataclass(frozen=True)
class Speech(PassageSource):
    """Recognises speech. Each passage is a sentence, or a part of one."""

    mode = "said"
    model: str = DEFAULT_MODEL  # a name such as "small", a hub id, or a folder
    language: str = ""  # a code such as "en"; if empty, the language of each file is detected

    @property
    def identity(self) -> str:
        """The versions of this code and of faster-whisper, the digest of the model, and the language."""
        return self._identity

    def check(self) -> None:
        """Check the language, the packages and the files of the model.

        Raises:
            ConfigError: Whisper does not know the language.
            EncoderError: A package or the model is missing, or the detector of speech is not the pinned one.
        """
        if self.language and self.language not in LANGUAGES:
            raise ConfigError(
                f"language {self.language!r} is unknown{nearest(self.language, LANGUAGES)}; use a code such as 'en'"
            )
        assert self._folder
        DETECTOR.locate()

    def read(self, media: Media, report: ReadingReport) -> Iterator[Passage]:
        """Yield the recognised sentences of a video, in order."""
        from faster_whisper.vad import VadOptions, get_speech_timestamps

        # 0.5 s of silence separates regions. With 0.4 s of padding on both sides, fewer words are wrong than with 0.2
        # s.
        options = VadOptions(max_speech_duration_s=_MAX_REGION_S, min_silence_duration_ms=500, speech_pad_ms=400)

        def find(samples: Samples) -> list[tuple[int, int]]:
            return [(span["start"], span["end"]) for span in get_speech_timestamps(samples, options)]

        pieces = _reported(self._sound.pieces(media.path, on_warning=report.warn), report)
        yield from _without_repeats(self._recognise(join_regions(find_regions(pieces, find))))

    def close(self) -> None:
        """Stop the decoder and release the model."""
        if (sound := self.__dict__.pop("_sound", None)) is not None:
            sound.close()
        self.__dict__.pop("_recogniser", None)

    @cached_property
    def _sound(self) -> SoundReader:
        from untrimmed.video.reader import SoundReader

        return SoundReader()

    @cached_property
    def _identity(self) -> str:  # it reads the model's file, so it is computed once
        from importlib.metadata import version

        self.check()
        return f"speech-2 {version('faster-whisper')} {model_digest(self._folder)} {self.language or 'any'}"

    @cached_property
    def _folder(self) -> Path:
        return locate_model(self.model)

    @cached_property
    def _recogniser(self) -> Recogniser:
        return Recogniser(self._folder)

    def _recognise(self, windows: Iterator[list[Region]]) -> Iterator[Passage]:
        first = list(islice(windows, 1))
        if not first:
            return
        language, first = self._language(first, windows)
        for window in chain(first, windows):
            for text in self._recogniser.recognise(_samples(window), language):
                if text.is_plausible:
                    yield from passages_of(text, window, language)

    def _language(self, first: list[list[Region]], windows: Iterator[list[Region]]) -> tuple[str, list[list[Region]]]:
        """Return the language, and the windows that were read to detect it (`first`, and possibly more)."""
        supported = self._recogniser.languages
        if self.language:
            if self.language not in supported:
                raise ConfigError(f"model {self.model!r} does not know language {self.language!r}; use another model")
            return self.language, first
        totals = self._recogniser.language_probabilities(_samples(first[0]))
        if max(totals.values()) < _SURE_LANGUAGE:
            more = list(islice(windows, _LANGUAGE_WINDOWS - 1))
            for window in more:
                for language, probability in self._recogniser.language_probabilities(_samples(window)).items():
                    totals[language] += probability
            first = first + more
        return max(totals, key=lambda language: totals[language]), first


def find_regions(pieces: Iterable[SoundPiece], find: Callable[[Samples], list[tuple[int, int]]]) -> Iterator[Region]:
    """Yield the parts of the sound with voices, in order.

    `find` is called with about two minutes of sound at a time. It returns the parts with voices: the index of the first
    sample of each, and the index after its last sample.
    """
    block = np.zeros(0, np.float32)
    start_s = 0.0
    for piece in pieces:
        if len(block) and abs(piece.start_s - (start_s + len(block) / SOUND_HZ)) > _MAX_JUMP_S:
            yield from _regions_in(block, start_s, find)
            block = block[:0]
        if not len(block):
            start_s = piece.start_s
        block = np.concatenate([block, piece.samples])
        if len(block) < _BLOCK_S * SOUND_HZ:
            continue
        settled = len(block) - round(_SETTLED_S * SOUND_HZ)
        keep_from = settled
        for region in _regions_in(block, start_s, find):
            first = round((region.start_s - start_s) * SOUND_HZ)
            if first + len(region.samples) > settled:
                keep_from = min(keep_from, first)  # the region may continue, so it is searched again in the next block
                break
            yield region
        start_s += keep_from / SOUND_HZ
        block = block[keep_from:]
    yield from _regions_in(block, start_s, find)


def _regions_in(block: Samples, start_s: float, find: Callable[[Samples], list[tuple[int, int]]]) -> Iterator[Region]:
    if not len(block) or np.abs(block).max() < _SILENCE:
        return
    for first, stop in find(block):
        yield Region(start_s + first / SOUND_HZ, block[first:stop].copy())


def join_regions(regions: Iterable[Region]) -> Iterator[list[Region]]:
    """Yield windows of consecutive regions with a total length of at most 28 s.

    Whisper needs the same time for a window of any length, so short regions are recognised together.
    """
    window: list[Region] = []
    for region in regions:
        if window and sum(r.length_s for r in window) + region.length_s > _MAX_REGION_S:
            yield window
            window = []
        window.append(region)
    if window:
        yield window


def passages_of(text: SpokenText, window: list[Region], language: str) -> Iterator[Passage]:
    """Yield the sentences of a text with times in the video. Where a region ends, a sentence is divided."""
    ends_s = np.cumsum([region.length_s for region in window])

    def region_of(word: Word) -> int:
        return min(int(np.searchsorted(ends_s, (word.start_s + word.end_s) / 2, side="right")), len(window) - 1)

    for index, words in groupby(text.words, key=lambda item: region_of(item[0])):
        region = window[index]
        shift_s = region.start_s - (float(ends_s[index]) - region.length_s)
        for sentence in _sentences(words):
            passage = _passage(sentence, shift_s, region, language)
            if passage is not None:
                yield passage


def _sentences(words: Iterable[tuple[Word, float]]) -> Iterator[list[tuple[Word, float]]]:
    sentence: list[tuple[Word, float]] = []
    for word, probability in words:
        sentence.append((word, probability))
        if _SENTENCE_END.search(word.text):
            yield sentence
            sentence = []
    if sentence:
        yield sentence


def _passage(sentence: list[tuple[Word, float]], shift_s: float, region: Region, language: str) -> Passage | None:
    """Return a sentence as a passage, or None if it has no text or too many characters per second to be speech."""
    low_s, high_s = max(0.0, region.start_s), max(0.0, region.start_s + region.length_s)
    words = []
    for word, _ in sentence:
        start_s, end_s = np.clip([word.start_s + shift_s, word.end_s + shift_s], low_s, high_s).tolist()
        if word.text.strip():
            words.append(Word(word.text.strip(), start_s, max(start_s, end_s)))
    text = " ".join("".join(word.text for word, _ in sentence).split())  # Whisper's words begin with a space
    if not any(character.isalnum() for character in text):
        return None
    span_s = words[-1].end_s - words[0].start_s
    if len(text) > _MAX_RATE * max(span_s, 0.5):
        return None
    confidence = float(np.mean([probability for _, probability in sentence]))
    return Passage(
        text,
        words[0].start_s,
        max(words[-1].end_s, words[0].start_s),
        source="speech",
        language=language,
        confidence=min(1.0, max(0.0, confidence)),
        words=tuple(words),
    )


def _without_repeats(passages: Iterable[Passage]) -> Iterator[Passage]:
    """Yield passages, at most two consecutive ones with the same text. Whisper repeats lines in music or noise."""
    last = ""
    count = 0
    for passage in passages:
        line = "".join(character for character in passage.text.casefold() if character.isalnum())
        count = count + 1 if line == last else 1
        last = line
        if count <= _MAX_EQUAL_LINES:
            yield passage


def _samples(window: list[Region]) -> Samples:
    return np.concatenate([region.samples for region in window])


def _reported(pieces: Iterable[SoundPiece], report: ReadingReport) -> Iterator[SoundPiece]:
    for piece in pieces:
        yield piece
        report.progress(max(0.0, piece.end_s))
