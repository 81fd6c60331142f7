"""Passages are read with the videos, kept with them, and read again only if something has changed."""

import shutil
from dataclasses import dataclass

import numpy as np
import pytest

import untrimmed
from tests.refusals import refused
from tests.search.conftest import use_encoder
from tests.toy import WideWordEncoder, write_clip
from untrimmed import Query
from untrimmed.cli.index import IndexDisplay
from untrimmed.errors import FeatureError, IndexMismatchError
from untrimmed.passages import source as sources
from untrimmed.passages.passage import Passage, Word
from untrimmed.passages.source import PassageSource, register_source
from untrimmed.passages.words import TextQuery
from untrimmed.search.indexing import passages as indexing_passages
from untrimmed.search.store import passages as store_passages
from untrimmed.search.store.lance import write_fragments
from untrimmed.search.store.listing import read_readings
from untrimmed.search.store.manifests import manifests
from untrimmed.search.store.passages import PassageTable
from untrimmed.search.store.records import PASSAGES, READINGS_COPY, THUMBNAILS, VERSIONS

SRT = "1\n00:00:00,500 --> 00:00:01,500\nWe made <i>budget</i>\n\n2\n00:00:01,600 --> 00:00:03,000\ncuts today.\n"


@pytest.fixture
def encoder(monkeypatch):
    encoder = WideWordEncoder()
    use_encoder(monkeypatch, encoder)
    return encoder


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "films").mkdir()
    write_clip(tmp_path / "films" / "sea.mp4", ["blue", "white"])
    write_clip(tmp_path / "films" / "sun.mp4", ["yellow", "red"])
    (tmp_path / "films" / "sea.en.srt").write_text(SRT)
    return tmp_path / "films"


@pytest.fixture
def lib(encoder, folder, tmp_path):
    library = untrimmed.open(tmp_path / "library")
    library.index(folder)
    return library


def texts(library):
    table = PassageTable(library.folder)
    return [match.sentence.passage.text for record in library.videos() for match in table.read([record.video_id])]


def test_subtitles_beside_a_video_are_stored_as_sentences(lib):
    (match,) = PassageTable(lib.folder).read([lib.videos()[0].video_id])
    passage = match.sentence.passage
    assert (passage.text, passage.start_s, passage.end_s) == ("We made budget cuts today.", 0.5, 3.0)
    assert (passage.source, passage.language, passage.track) == ("subtitle", "en", "sea.en.srt")
    assert [(part.text, part.start_s, part.end_s) for part in match.sentence.passages] == [
        ("We made budget", 0.5, 1.5),
        ("cuts today.", 1.6, 3.0),
    ]
    assert [reading.num_passages for reading in read_readings(lib.folder)] == [1]


def test_vectors_of_sentences_are_stored_and_cached(lib, encoder):
    passages = lib.engine.view().passages
    assert passages.modes == {"said"}
    video_id = lib.videos()[0].video_id
    (vector,) = passages.corpus("said").video(video_id).vectors[:, :4]
    expected = encoder.encode_texts(["We made budget cuts today."])[0].sentence
    np.testing.assert_allclose(vector, expected, atol=1e-3)
    assert (lib.folder / "cache" / "passages-said").is_dir()


def test_known_videos_get_passages_without_decoding_pictures_again(lib, folder, encoder):
    encoded = encoder.num_encoded
    (folder / "sun.vtt").write_text("WEBVTT\n\n00:01.000 --> 00:02.000\nThe sun rises\n")
    report = lib.index(folder)
    assert (report.passages, report.done) == ({"subtitle": 1}, [])
    assert texts(lib) == ["We made budget cuts today.", "The sun rises"]
    assert encoder.num_encoded == encoded
    assert lib.index(folder).passages == {}


def test_changed_and_removed_subtitle_files_are_read_again(lib, folder):
    (folder / "sea.en.srt").write_text(SRT.replace("today", "tomorrow, maybe"))
    assert lib.index(folder).passages == {"subtitle": 1}
    assert texts(lib) == ["We made budget cuts tomorrow, maybe."]
    (folder / "sea.en.srt").unlink()
    assert lib.index(folder).passages == {"subtitle": 0}
    assert texts(lib) == []
    assert lib.engine.view().passages is None


def test_passages_of_an_unreadable_file_are_kept_and_each_run_warns(lib, folder):
    (folder / "sea.de.srt").write_text(SRT.replace("today", "heute"))
    lib.index(folder)
    (folder / "sea.en.srt").write_bytes(b"\0\1" * 900)
    (folder / "sea.de.srt").write_text(SRT.replace("today", "morgen"))
    for counts in ({"subtitle": 1}, {}):
        report = lib.index(folder)
        assert report.passages == counts, "kept passages are not counted"
        assert len(report.warnings) == 1
        assert "sea.en.srt" in report.warnings[0].reason
        assert sorted(texts(lib)) == ["We made budget cuts morgen.", "We made budget cuts today."]
    assert report.removed_passages == {}
    (folder / "sea.de.srt").unlink()
    (folder / "sea.en.srt").write_bytes(b"")
    assert len(lib.index(folder).warnings) == 1
    assert texts(lib) == ["We made budget cuts today."]
    (folder / "sea.en.srt").write_text(SRT.replace("today", "tomorrow"))
    assert lib.index(folder).warnings == []
    assert texts(lib) == ["We made budget cuts tomorrow."]
    (folder / "sea.en.srt").write_bytes(b"")
    lib.index(folder)
    (folder / "sea.en.srt").unlink()
    assert lib.index(folder).warnings == []
    assert texts(lib) == []


def test_passages_beyond_a_generous_rate_are_left_out(lib, folder, monkeypatch):
    monkeypatch.setattr(indexing_passages, "_MAX_PASSAGES", 2)
    cue = "00:01.{:03d} --> 00:03.000\nSentence {}.\n\n"
    (folder / "sea.en.vtt").write_text("WEBVTT\n\n" + "".join(cue.format(i, i) for i in range(100)))
    (folder / "sea.en.srt").rename(folder / "sea.fr.srt")  # is read after the other file
    steps = []
    report = lib.index(folder, progress=steps.append)
    limit = 2 + 20 * 4
    assert report.passages == {"subtitle": limit + 1}
    assert sorted(texts(lib)) == sorted(["We made budget cuts today.", *(f"Sentence {i}." for i in range(limit))])
    (warning,) = report.warnings
    assert f"left out {100 - limit} passages" in warning.reason
    assert "sea.en.vtt" in warning.reason
    assert any(step.state == "reading" and step.done_s >= 1 for step in steps)
    assert lib.index(folder).passages == {}


def test_all_tracks_of_a_video_share_a_limit(lib, folder, monkeypatch):
    monkeypatch.setattr(indexing_passages, "_MAX_PASSAGES_OF_SOURCE", 4)  # two subtitles make a sentence
    cues = "".join(f"00:01.{number:03d} --> 00:03.000\nSentence {number}.\n\n" for number in range(5))
    (folder / "sea.fr.vtt").write_text("WEBVTT\n\n" + cues)  # is read after sea.en.srt
    report = lib.index(folder)
    assert sorted(texts(lib)) == ["Sentence 0.", "Sentence 1.", "We made budget cuts today."]
    (warning,) = report.warnings
    assert "left out 3 passages" in warning.reason
    assert "sea.fr.vtt" in warning.reason


def test_progress_never_goes_back(lib, folder, monkeypatch):
    bar = []
    display = IndexDisplay()
    monkeypatch.setattr(display, "show", lambda **fields: bar.append((fields["completed"], fields["total"])))
    shutil.rmtree(lib.folder / THUMBNAILS)
    write_clip(folder / "sky.mp4", ["white"])
    cue = "00:0{:.3f} --> 00:04.000\nSentence {}.\n\n"
    for language in ("de", "en"):
        (folder / f"sea.{language}.vtt").write_text(
            "WEBVTT\n\n" + "".join(cue.format(number / 100, number) for number in range(390))
        )
    steps = []
    lib.index(folder, thumbnails=True, progress=lambda step: (steps.append(step), display(step)))
    assert {"done", "thumbnails", "reading", "passages"} <= {step.state for step in steps}
    assert bar == sorted(bar)
    assert bar[-1][0] <= bar[-1][1]
    assert [step.video_s for step in steps] == sorted(step.video_s for step in steps)
    times_s = [step.done_s for step in steps if (step.path.name, step.source) == ("sea.mp4", "subtitle")]
    assert len(times_s) > 3
    assert times_s == sorted(times_s)


def test_a_repair_removes_files_that_a_killed_process_has_left(lib, folder):
    data = lib.folder / PASSAGES / "data"
    table = PassageTable(lib.folder)._open_table()
    write_fragments(table.to_table(), table.uri, mode="append")
    left = max(data.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    (folder / "sun.vtt").write_text("WEBVTT\n\n00:01.000 --> 00:02.000\nThe sun rises\n")
    lib.index(folder)
    assert left.exists(), "another machine could be writing it"
    lib.repair()
    assert not left.exists()
    assert "We made budget cuts today." in texts(lib)


def test_a_repair_sets_a_damaged_table_aside_and_the_texts_are_read_again(lib, folder):
    for manifest in manifests(lib.folder / PASSAGES / VERSIONS):
        manifest.write_bytes(manifest.read_bytes()[:100])
    (lib.folder / READINGS_COPY).unlink()
    with refused(IndexMismatchError, "doctor --repair"):
        untrimmed.open(lib.folder).search("budget")
    aside = untrimmed.open(lib.folder).repair().passages
    assert list((aside / VERSIONS).iterdir())
    assert untrimmed.open(lib.folder).repair().passages is None
    library = untrimmed.open(lib.folder)
    assert library.search("blue")
    assert library.index(folder).passages == {"subtitle": 1}
    assert texts(library) == ["We made budget cuts today."]


def test_without_subtitles_nothing_is_read_until_they_are_turned_on(encoder, folder, tmp_path):
    library = untrimmed.open(tmp_path / "other")
    library.index(folder, sources={"subtitle": None})
    assert not (library.folder / PASSAGES).exists()
    library.index(folder)
    assert texts(library) == []
    assert library.index(folder, sources={"subtitle": {}}).passages == {"subtitle": 1}
    assert library.index(folder, sources={"subtitle": None}).passages == {}
    assert texts(library) == ["We made budget cuts today."], "turning a source off keeps its passages"


def test_removed_text_is_read_again_when_its_source_is_named(lib, folder):
    lib.remove_text("subtitle", [folder])
    assert lib.index(folder).passages == {}
    steps = []
    report = lib.index(folder, sources={"subtitle": {}}, progress=steps.append)
    assert report.passages == {"subtitle": 1}
    assert [step.path.name for step in steps if step.state == "passages"] == ["sea.mp4"], "sun.mp4 never had text"
    assert texts(lib) == ["We made budget cuts today."]
    assert lib.index(folder, sources={"subtitle": {}}).passages == {}


def test_passages_are_removed_with_their_video(lib, folder):
    lib.remove([folder / "sea.mp4"])
    assert PassageTable(lib.folder).search(TextQuery.of("budget"), "said", limit=5) == []
    assert [reading.num_passages for reading in PassageTable(lib.folder).readings()] == [0]


def test_passages_stay_with_a_moved_video_and_go_with_a_changed_one(lib, folder):
    (folder / "sea.mp4").rename(folder / "ocean.mp4")
    (folder / "sea.en.srt").rename(folder / "ocean.en.srt")
    lib.index(folder)
    assert texts(lib) == ["We made budget cuts today."]
    write_clip(folder / "ocean.mp4", ["green", "white", "red"])
    (folder / "ocean.en.srt").unlink()
    lib.index(folder)
    assert texts(lib) == []


def test_parts_keep_their_passages_in_a_merge(encoder, folder, tmp_path):
    for part in ("1/2", "2/2"):
        untrimmed.open(tmp_path / "films-lib").index(folder, part=part)
    merged = untrimmed.open(tmp_path / "merged")
    parts = [tmp_path / f"films-lib.part-{number}-of-2" for number in (1, 2)]
    merged.merge(parts)
    assert texts(merged) == ["We made budget cuts today."]
    (match,) = PassageTable(merged.folder).search(TextQuery.of('"budget cuts"'), "said", limit=5)
    assert match.video_id in {record.video_id for record in merged.videos()}
    version = PassageTable(merged.folder).version()
    merged.merge(parts)
    assert PassageTable(merged.folder).version() == version, "nothing is copied twice"
    assert merged.index(folder).passages == {}, "a merged reading is not repeated"


def test_a_merge_takes_new_text_of_videos_that_both_libraries_know(encoder, lib, folder, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "_SOURCES", dict(sources._SOURCES))

    @register_source("lyrics")
    @dataclass(frozen=True)
    class Lyrics(PassageSource):
        mode = "said"
        identity = "lyrics-1"

        def read(self, media, report):
            if media.path.name == "sun.mp4":
                yield Passage("La la la.", 0.0, 1.0, source=self.name)

    (folder / "sea.en.srt").write_text(SRT.replace("today", "tomorrow"))
    other = untrimmed.open(tmp_path / "other")
    other.index(folder, sources={"lyrics": {}})
    expected = ["We made budget cuts tomorrow.", "La la la."]
    lib.merge([other.folder])
    assert texts(lib) == expected
    other.merge([lib.folder])
    untrimmed.open(tmp_path / "third").merge([other.folder, lib.folder])
    assert texts(other) == texts(untrimmed.open(tmp_path / "third")) == expected, "the latest reading wins"
    assert lib.repair().texts == ()


def test_text_stays_with_a_file_that_a_merge_finds_at_a_new_path(encoder, folder, tmp_path):
    old = untrimmed.open(tmp_path / "old")
    old.index(folder)
    (folder / "sea.mp4").rename(folder / "ocean.mp4")
    (folder / "sea.en.srt").rename(folder / "ocean.en.srt")
    new = untrimmed.open(tmp_path / "new")
    new.index(folder)
    new.merge([old.folder])
    assert texts(new) == ["We made budget cuts today."]
    assert new.search("budget cuts", limit=1)[0].video.name == "ocean.mp4"
    assert new.repair().texts == ()


def test_a_library_without_the_table_opens_and_searches(lib, folder, tmp_path):
    shutil.rmtree(lib.folder / PASSAGES)
    (lib.folder / READINGS_COPY).unlink()
    old = untrimmed.open(lib.folder)
    assert old.search("blue")[0].video.name == "sea.mp4"
    assert read_readings(old.folder) == []
    assert old.index(folder).passages == {"subtitle": 1}


@pytest.mark.parametrize(
    ("column", "value"), [("content", "X'00'"), ("content", "NULL"), ("start_s", "0.25"), ("number", "1")]
)
def test_damaged_passages_are_reported_and_repaired(lib, folder, column, value):
    table = PassageTable(lib.folder)
    table._open_table().update({column: value}, where="number = 0")
    with pytest.raises(IndexMismatchError):
        table.search(TextQuery.of("budget"), "said", limit=5)
    report = untrimmed.open(lib.folder).repair()
    assert [record.path for record in report.texts] == [str(folder / "sea.mp4")]
    assert texts(lib) == []
    lib.index(folder)
    assert texts(lib) == ["We made budget cuts today."]


@pytest.mark.parametrize(("column", "value"), [("vector", "NULL"), ("said", "'other words'"), ("said", "NULL")])
def test_repair_finds_passages_whose_vector_or_words_are_lost(lib, folder, column, value):
    PassageTable(lib.folder)._open_table().update({column: value}, where="number = 0")
    report = untrimmed.open(lib.folder).repair()
    assert [record.path for record in report.texts] == [str(folder / "sea.mp4")]
    lib.index(folder)
    assert texts(lib) == ["We made budget cuts today."]
    assert not untrimmed.open(lib.folder).repair().texts


@pytest.fixture
def library_with_old_words(encoder, folder, tmp_path, monkeypatch):
    (folder / "sea.en.srt").write_text(SRT.replace("today", "मेरा स्कूल"), encoding="utf-8")
    with monkeypatch.context() as old:
        old.setattr(indexing_passages, "WORDS_VERSION", 1)
        old.setattr(store_passages, "indexed_text", lambda text: "old")
        untrimmed.open(tmp_path / "library").index(folder)
    return untrimmed.open(tmp_path / "library")


def test_an_old_index_of_words_is_updated_without_reading_files(library_with_old_words, folder, tmp_path):
    library = library_with_old_words
    video_id = library.videos()[0].video_id
    vector = library.engine.view().passages.corpus("said").video(video_id).vectors
    assert not library.repair().texts, "words of an old version are not damaged"
    assert library.index(folder).passages == {}, "no file is read again"
    (match,) = PassageTable(library.folder).search(TextQuery.of("स्कूल"), "said", limit=5)
    assert match.sentence.passage.text == "We made budget cuts मेरा स्कूल."
    updated = untrimmed.open(tmp_path / "library").engine.view().passages.corpus("said").video(video_id).vectors
    np.testing.assert_array_equal(updated, vector)
    version = PassageTable(library.folder).version()
    library.index(folder)
    assert PassageTable(library.folder).version() == version, "the words are updated once"


def test_searches_warn_about_old_words_until_the_next_run(library_with_old_words, folder):
    (warning,) = library_with_old_words.search("budget").warnings
    assert "run: untrimmed index" in warning
    assert warning in library_with_old_words.search(Query("", said="budget")).warnings
    assert library_with_old_words.search(Query("budget", modes=("seen",))).warnings == ()
    library_with_old_words.index(folder)
    assert library_with_old_words.search("budget").warnings == ()


def test_a_run_updates_old_words_and_replaces_changed_passages(library_with_old_words, folder):
    (folder / "sea.en.srt").write_text(SRT.replace("today", "tomorrow"))
    assert library_with_old_words.index(folder).passages == {"subtitle": 1}
    assert texts(library_with_old_words) == ["We made budget cuts tomorrow."]


def test_current_words_are_not_read_again(lib, monkeypatch):
    table = PassageTable(lib.folder)
    readings = table.readings()
    monkeypatch.setattr(table, "_open_table", lambda: pytest.fail("the table was read"))
    assert table.update_words(readings) == readings


@pytest.fixture
def lyrics(monkeypatch):
    """A plug-in source. It fails for the video in `broken` after its first passage."""
    monkeypatch.setattr(sources, "_SOURCES", dict(sources._SOURCES))
    broken = set()

    @register_source("lyrics")
    @dataclass(frozen=True)
    class Lyrics(PassageSource):
        mode = "written"
        verse: int = 1

        @property
        def identity(self):
            return f"lyrics {self.verse}"

        def read(self, media, report):
            assert media.shot_starts_s()[0] == 0.0
            words = (Word("la", 0.25, 0.5), Word("lo", 0.5, 0.75))
            yield Passage(f"la lo {self.verse}", 0.25, 0.75, self.name, "it", 0.5, words)
            if self.verse == 9:
                end_s = media.duration_s
                words = (Word("la", end_s - 1, end_s + 1), Word("lo", end_s + 1, end_s + 2))
                yield Passage("la lo", end_s - 1, end_s + 2, self.name, words=words)
                yield Passage("late", end_s, end_s + 1, self.name)
            if media.path.name in broken:
                raise FeatureError("the singer is ill; wait")
            report.warn("only one verse")

    return broken


def test_a_plug_in_source_is_read_with_its_settings(lib, folder, lyrics):
    report = lib.index(folder, sources={"lyrics": {"verse": 2}})
    assert report.passages == {"lyrics": 2}
    assert {failure.reason for failure in report.warnings} == {"only one verse"}
    match = next(PassageTable(lib.folder).read([lib.videos()[1].video_id]))
    passage = match.sentence.passage
    assert (passage.text, passage.confidence, passage.words[1]) == ("la lo 2", 0.5, Word("lo", 0.5, 0.75))
    assert lib.engine.view().passages.modes == {"said", "written"}
    assert lib.index(folder).passages == {}, "its settings are stored"
    assert lib.index(folder, sources={"lyrics": {"verse": 3}}).passages == {"lyrics": 2}
    assert sorted(texts(lib)) == ["We made budget cuts today.", "la lo 3", "la lo 3"]


def test_passages_end_with_their_video(lib, folder, lyrics):
    report = lib.index(folder / "sea.mp4", sources={"lyrics": {"verse": 9}})
    (record,) = [record for record in lib.videos() if record.path.endswith("sea.mp4")]
    last = lib.transcript("sea.mp4")[-1]
    end_s = record.duration_s
    assert (last.text, last.start_s, last.end_s) == ("la lo", end_s - 1, end_s)
    assert last.words == (Word("la", end_s - 1, end_s), Word("lo", end_s, end_s))
    assert any("left out 1 passage after the end" in warning.reason for warning in report.warnings)


def test_a_failed_reading_leaves_nothing_and_is_repeated(lib, folder, lyrics):
    lyrics.add("sun.mp4")
    report = lib.index(folder, sources={"lyrics": {}})
    assert report.passages == {"lyrics": 1}
    assert any("ill" in failure.reason for failure in report.warnings)
    assert texts(lib).count("la lo 1") == 1
    lyrics.clear()
    assert lib.index(folder).passages == {"lyrics": 1}
    assert texts(lib).count("la lo 1") == 2
