"""Sources are found by name, and passages have valid spans."""

from dataclasses import dataclass

import pytest

from untrimmed.errors import ConfigError, UnknownNameError
from untrimmed.passages import source as sources
from untrimmed.passages.passage import Passage
from untrimmed.passages.source import PassageSource, ReadingReport, create_source, list_sources, register_source


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    monkeypatch.setattr(sources, "_SOURCES", dict(sources._SOURCES))


def make_source(name):
    @register_source(name)
    @dataclass(frozen=True)
    class Lyrics(PassageSource):
        mode = "said"
        language: str = ""

        @property
        def identity(self):
            return f"lyrics-1 {self.language}"

        def read(self, media, report):
            yield Passage("la la la", 1.0, 2.5, source=self.name, language=self.language)

    return Lyrics


def test_a_registered_source_is_created_with_its_settings():
    make_source("lyrics")
    source = create_source("lyrics", {"language": "fr"})
    assert (source.name, source.identity) == ("lyrics", "lyrics-1 fr")
    (passage,) = source.read(None, ReadingReport())
    assert (passage.source, passage.language, passage.end_s) == ("lyrics", "fr", 2.5)
    assert "lyrics" in list_sources()


def test_unknown_sources_and_settings_are_refused():
    make_source("lyrics")
    with pytest.raises(UnknownNameError):
        create_source("lirics")
    with pytest.raises(ConfigError):
        create_source("lyrics", {"speed": 2})
    with pytest.raises(ConfigError):
        register_source("two words")(PassageSource)


@pytest.mark.parametrize("span", [(-1.0, 2.0), (3.0, 2.0), (0.0, float("inf")), (float("nan"), 1.0)])
def test_a_passage_has_a_finite_span_in_order(span):
    with pytest.raises(ValueError, match="from"):
        Passage("text", *span, source="subtitle")


def test_a_passage_has_text():
    with pytest.raises(ValueError, match="no text"):
        Passage(" \n", 0.0, 1.0, source="subtitle")
