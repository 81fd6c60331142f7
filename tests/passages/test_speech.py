"""Speech: regions with voices keep their times, invented text is dropped, and a missing model is one clear line.

No test here has a trained model: recognised texts are made by hand, so that times and rules are exact.
"""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from tests.refusals import refused
from tests.video.test_sound import tone, write_film
from untrimmed.errors import ConfigError, EncoderError, UnknownNameError
from untrimmed.passages import speech
from untrimmed.passages.passage import Passage, Word
from untrimmed.passages.source import Media, ReadingReport, create_source
from untrimmed.passages.speech import Recogniser, Region, SpokenText, find_regions, join_regions, passages_of
from untrimmed.video.messages import SOUND_HZ
from untrimmed.video.reader import SoundPiece


def loud_spans(samples):
    """Stands for the detector of voices: spans with loud samples, 0.1 s apart or more."""
    loud = np.flatnonzero(np.abs(samples) > 0.1)
    parts = np.split(loud, np.flatnonzero(np.diff(loud) > SOUND_HZ // 10) + 1)
    return [(int(part[0]), int(part[-1]) + 1) for part in parts if len(part)]


def sound(seconds, spans):
    samples = np.zeros(round(seconds * SOUND_HZ), np.float32)
    for start_s, end_s in spans:
        samples[round(start_s * SOUND_HZ) : round(end_s * SOUND_HZ)] = 0.5
    return samples


def in_pieces(samples, start_s=0.0, piece_s=7.3):
    step = round(piece_s * SOUND_HZ)
    for first in range(0, len(samples), step):
        yield SoundPiece(start_s + first / SOUND_HZ, samples[first : first + step])


def test_regions_keep_their_times_over_the_borders_of_blocks():
    spans = [(1, 3), (50, 70), (110, 130), (131, 132), (239.5, 250), (299, 300)]
    regions = list(find_regions(in_pieces(sound(300, spans), start_s=5), loud_spans))
    times_s = [[r.start_s, r.start_s + r.length_s] for r in regions]
    assert np.array(times_s) == pytest.approx(np.array(spans) + 5, abs=1e-3)


def test_regions_do_not_span_a_gap_in_the_sound():
    pieces = [*in_pieces(sound(10, [(8, 10)])), *in_pieces(sound(10, [(0, 2)]), start_s=100)]
    regions = list(find_regions(pieces, loud_spans))
    times_s = [[r.start_s, r.length_s] for r in regions]
    assert np.array(times_s) == pytest.approx(np.array([[8, 2], [100, 2]]), abs=1e-3)


def test_silence_is_not_searched_and_blocks_are_short():
    lengths = []

    def find(samples):
        lengths.append(len(samples) / SOUND_HZ)
        return loud_spans(samples)

    silence = in_pieces(np.full(3600 * SOUND_HZ, 5e-4, np.float32))
    assert list(find_regions(silence, find)) == []
    assert lengths == []
    assert len(list(find_regions(in_pieces(sound(1000, [(i, i + 0.5) for i in range(0, 1000, 2)])), find))) == 500
    assert max(lengths) < 160


def test_short_regions_share_a_window():
    regions = [Region(10.0 * index, np.zeros(10 * SOUND_HZ, np.float32)) for index in range(7)]
    assert [len(window) for window in join_regions(regions)] == [2, 2, 2, 1]
    assert list(join_regions([])) == []


def spoken(words, **measures):
    quality = {"log_prob": -0.3, "no_speech": 0.01, "compression": 1.2} | measures
    return SpokenText(tuple((Word(text, *span), 0.9) for text, *span in words), **quality)


def test_words_get_the_times_of_their_regions_and_sentences_are_separate():
    window = [Region(100.0, sound(2, [])), Region(200.0, sound(4, []))]
    text = spoken(
        [(" Good", 0.5, 0.8), (" day.", 0.9, 1.4), (" Two", 2.1, 2.5), (" boats!", 2.6, 3.0), (" Far", 5, 6.5)]
    )
    passages = list(passages_of(text, window, "en"))
    assert [(p.text, p.start_s, p.end_s) for p in passages] == [
        ("Good day.", pytest.approx(100.5), pytest.approx(101.4)),
        ("Two boats!", pytest.approx(200.1), pytest.approx(201.0)),
        ("Far", pytest.approx(203.0), pytest.approx(204.0)),  # a word does not end after its region
    ]
    assert passages[0].words == (Word("Good", 100.5, 100.8), Word("day.", 100.9, 101.4))
    assert {(p.source, p.language, round(p.confidence, 6)) for p in passages} == {("speech", "en", 0.9)}


@pytest.mark.parametrize(
    ("measures", "is_plausible"),
    [
        ({}, True),
        ({"compression": 3.0}, False),
        ({"log_prob": -1.5}, False),
        ({"no_speech": 0.9}, True),
        ({"no_speech": 0.9, "log_prob": -0.8}, False),
    ],
)
def test_improbable_text_is_dropped(measures, is_plausible):
    assert spoken([(" Good", 0.5, 0.8)], **measures).is_plausible == is_plausible


def test_text_without_letters_and_text_that_nobody_could_say_so_fast_is_dropped():
    window = [Region(0.0, sound(5, []))]
    assert list(passages_of(spoken([(" ...", 0.5, 0.8)]), window, "en")) == []
    fast = [(f" something{index}", 1.0, 1.1) for index in range(20)]
    assert list(passages_of(spoken(fast), window, "en")) == []


def test_lines_that_repeat_are_dropped_after_the_second():
    lines = ["Thank you.", "thank you", "Thank you!", "Thank you.", "No.", "Thank you."]
    passages = [Passage(line, index, index + 1, "speech") for index, line in enumerate(lines)]
    assert [p.text for p in speech._without_repeats(passages)] == ["Thank you.", "thank you", "No.", "Thank you."]


class SmallRecogniser(Recogniser):
    """Says one sentence for each window; its model is sure of German only in the second window."""

    def __init__(self, folder):
        self.languages = frozenset({"de", "en"})
        self.windows = 0

    def language_probabilities(self, samples):
        self.windows += 1
        return {"en": 0.6, "de": 0.4} if self.windows == 1 else {"en": 0.05, "de": 0.95}

    def recognise(self, samples, language):
        return [spoken([(f" {language}.", 0.0, 1.0)])]


@pytest.fixture
def small(monkeypatch, tmp_path):
    for name in ("model.bin", "config.json", "tokenizer.json"):
        (tmp_path / name).write_text(name, encoding="utf-8")
    monkeypatch.setattr(speech, "Recogniser", SmallRecogniser)
    return tmp_path


def windows_of(*lengths_s):
    return iter([[Region(30.0 * index, sound(length_s, []))] for index, length_s in enumerate(lengths_s)])


def test_the_language_is_detected_from_several_windows_if_the_first_is_doubtful(small):
    source = create_source("speech", {"model": str(small)})
    assert [p.text for p in source._recognise(windows_of(5, 5, 5))] == ["de.", "de.", "de."]
    named = create_source("speech", {"model": str(small), "language": "en"})
    assert [p.text for p in named._recognise(windows_of(5))] == ["en."]
    assert source.identity != named.identity
    with pytest.raises(ConfigError):
        list(create_source("speech", {"model": str(small), "language": "fr"})._recognise(windows_of(5)))


def test_a_film_without_voices_has_no_passages_and_needs_no_model(small, monkeypatch, tmp_path):
    monkeypatch.setattr(speech, "Recogniser", None)
    path = write_film(tmp_path / "film.mkv", [(0, tone(3))])
    times = []
    with create_source("speech", {"model": str(small)}) as source:
        assert list(source.read(Media(path, 4.0), ReadingReport(times.append))) == []
    assert times[-1] == pytest.approx(3, abs=0.1)


def test_the_identity_changes_with_the_weights(small):
    before = create_source("speech", {"model": str(small)}).identity
    (small / "model.bin").write_text("others", encoding="utf-8")
    assert create_source("speech", {"model": str(small)}).identity != before


def test_a_missing_or_damaged_model_is_one_line(small, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with refused(EncoderError, "nowhere"):
        create_source("speech", {"model": str(tmp_path / "nowhere")}).check()
    with refused(UnknownNameError, "bsae", "base"):
        create_source("speech", {"model": "bsae"}).check()
    with refused(EncoderError, "Systran/faster-whisper-tiny"):
        create_source("speech", {"model": "tiny"}).check()
    with refused(ConfigError, "klingon"):
        create_source("speech", {"model": str(small), "language": "klingon"}).check()
    with refused(EncoderError, str(small)):
        Recogniser(small)
    (small / "model.bin").unlink()
    with refused(EncoderError, "model.bin"):
        create_source("speech", {"model": str(small)}).check()


def test_a_missing_package_is_one_line(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with refused(EncoderError, ".[speech]"):
        create_source("speech").check()


def test_an_unusable_file_is_refused(small, tmp_path):
    path = Path(tmp_path / "film.mp4")
    path.write_bytes(b"no film" * 100)
    with refused(ValueError, "film.mp4"), create_source("speech", {"model": str(small)}) as source:
        list(source.read(Media(path, 4.0), ReadingReport()))
