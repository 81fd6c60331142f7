"""Unknown words are reported on stderr and in JSON. A sentence without known words has no hits."""

import json

import pytest

from tests.toy import COLOURS, ToyEncoder
from untrimmed.encoders.reading import reading_of
from untrimmed.encoders.registry import LoadedEncoder
from untrimmed.search import library as library_module
from untrimmed.search.store.table import VideoIndex
from untrimmed.types import TextFeatures

MAX_WORDS = 5


class ColourReader(ToyEncoder):
    """An encoder that knows only names of colours and reads at most five words."""

    def _text(self, text):
        features = super()._text(text)
        starts = [text.index(word) for word in text.split()]
        pieces = [(i, i + len(w), w in COLOURS) for i, w in zip(starts, text.split(), strict=True)]
        reading = reading_of(text, pieces[:MAX_WORDS], is_cut=len(pieces) > MAX_WORDS)
        return TextFeatures(text, features.sentence, features.words, features.tokens, reading)


@pytest.fixture
def indexed(run, videos, monkeypatch):
    monkeypatch.setattr(library_module, "load_encoder", lambda *_, **__: LoadedEncoder(ColourReader(), None))
    run("index", videos)
    return run


def test_a_known_sentence_has_no_warnings(indexed):
    code, out, err = indexed("search", "red green", "--json")
    assert (code, json.loads(out)["warnings"]) == (0, [])
    assert "warning" not in err


@pytest.mark.parametrize("sentence", ["собака", "🐶", "x" * 200_000])
def test_a_sentence_without_a_known_word_has_no_hits(indexed, sentence):
    code, out, err = indexed("search", sentence, "--json")
    document = json.loads(out)
    assert code == 1
    assert document["hits"] == []
    (warning,) = document["warnings"]
    assert ["'toy'" in warning, warning in err] == [True, True]
    assert len(err) < 500


def test_without_a_known_word_options_are_checked_but_no_video_is_loaded(indexed, monkeypatch):
    monkeypatch.setattr(VideoIndex, "read", lambda *_: pytest.fail("videos were read"))
    assert indexed("search", "dogs")[0] == 1
    assert indexed("search", "dogs", "--in", "/nowhere")[0] == 2


def test_unknown_words_among_known_ones_are_named(indexed):
    code, out, err = indexed("search", "red \x1b[31mdogs green")
    assert code == 0
    assert "flag.mp4" in out
    assert "'\\x1b[31mdogs'" in err
    assert "\x1b" not in err


def test_many_unknown_words_are_counted(indexed):
    _, _, err = indexed("search", "one two three four red")
    assert "'one', 'two', 'three', 'four'" in err


def test_a_warning_gives_the_number_of_words_read_of_a_long_sentence(indexed):
    code, out, _ = indexed("search", "red white green blue yellow aa bb", "--json")
    assert code == 0
    (warning,) = json.loads(out)["warnings"]
    assert "5 of its 7" in warning


def test_a_labelled_sentence_without_a_known_word_counts_as_not_found(indexed, tmp_path):
    queries = tmp_path / "queries.jsonl"
    queries.write_text('{"video": "flag", "query": "dogs", "start_s": 4.0, "end_s": 6.0}\n')
    code, out, err = indexed("evaluate", tmp_path / "library", "--queries", queries, "--format", "json")
    assert code == 0
    assert [(query["rank"], query["iou"]) for query in json.loads(out)["queries"]] == [(None, 0.0)]
    assert len(json.loads(out)["queries"][0]["warnings"]) == 1
    assert "warning" in err
