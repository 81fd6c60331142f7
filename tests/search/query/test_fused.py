"""Pictures and passages become one ranking, and each hit says why it matches."""

from pathlib import Path
from types import SimpleNamespace

import pytest

import untrimmed
from tests.search.conftest import use_encoder
from tests.toy import COLOURS, ToyEncoder, write_clip
from untrimmed import Query
from untrimmed.errors import ConfigError
from untrimmed.passages import words as passage_words
from untrimmed.passages.words import TextQuery, words_of, words_strength
from untrimmed.search.query import answer
from untrimmed.search.query.fusion import FusionCandidate, FusionSettings, fuse
from untrimmed.search.query.hits import Hits
from untrimmed.search.query.query import Place
from untrimmed.types import Reading, TextFeatures

CLIPS = {"sea": ["blue", "white", "blue"], "sun": ["yellow", "red"], "wood": ["green", "blue"], "snow": ["white"]}
SEA = """1
00:00:00,500 --> 00:00:01,500
We made budget

2
00:00:01,600 --> 00:00:03,000
cuts today.

3
00:00:04,100 --> 00:00:05,400
The blue whale sings.
"""


class ColourEncoder(ToyEncoder):
    """An encoder that knows only colours; a text without a colour has no meaning for it."""

    def _text(self, text):
        features = super()._text(text)
        unknown = tuple(token for token in features.tokens if token not in COLOURS)
        is_understood = len(unknown) < len(features.tokens)
        reading = Reading(unknown, is_understood)
        return TextFeatures(text, features.sentence, features.words, features.tokens, reading)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("films")
    for name, colours in CLIPS.items():
        write_clip(folder / f"{name}.mp4", colours)
    (folder / "sea.en.srt").write_text(SEA)
    (folder / "wood.vtt").write_text("WEBVTT\n\n00:00.500 --> 00:02.000\nThe budget of the zoo.\n")
    return folder


@pytest.fixture(scope="module")
def indexed(folder, tmp_path_factory):
    library = untrimmed.open(tmp_path_factory.mktemp("library") / "library")
    with pytest.MonkeyPatch.context() as patch:
        use_encoder(patch, ColourEncoder())
        library.index(folder)
        untrimmed.open(library.folder.with_name("plain")).index(folder, sources={"subtitle": None})
    return library.folder


@pytest.fixture
def lib(indexed, monkeypatch):
    use_encoder(monkeypatch, ColourEncoder())
    return untrimmed.open(indexed)


@pytest.fixture
def plain(indexed, monkeypatch):
    """A library of the same videos without passages."""
    use_encoder(monkeypatch, ColourEncoder())
    return untrimmed.open(indexed.with_name("plain"))


def names(hits):
    return [hit.video.stem for hit in hits]


def test_words_that_are_said_find_the_sentence_and_name_the_matching_words(lib):
    hits = lib.search("budget cuts", limit=2)
    assert names(hits) == ["sea", "wood"]
    moment = hits[0].moments[0]
    why = moment.evidence[0]
    assert (why.mode, why.text, why.source, why.language) == ("said", "We made budget cuts today.", "subtitle", "en")
    assert [why.text[word.start : word.end] for word in why.words] == ["budget", "cuts"]
    assert (why.start_s, why.end_s) == (0.5, 3.0)
    assert [(word.start_s, word.end_s) for word in why.words] == [(0.5, 1.5), (1.6, 3.0)], "the times of the cues"
    assert moment.start_s <= 0.5
    assert 3.0 <= moment.end_s <= 3.5


def test_there_is_no_warning_about_words_that_a_passage_contains(lib):
    assert lib.search('"budget cuts"').warnings == ()
    assert lib.search("budget").warnings == ()
    assert "knows no word" in " ".join(lib.search("penguin").warnings)


def test_quotes_demand_the_exact_phrase(lib):
    assert names(lib.search('"budget cuts"')) == ["sea"]
    assert names(lib.search('"the budget"')) == ["wood"]
    hits = lib.search('"cuts budget"')
    assert (names(hits), len(hits.warnings) > 0) == ([], True)


def test_a_visual_query_has_the_ranking_scores_and_moments_of_a_library_without_passages(lib, plain):
    for sentence in ("yellow", "green", "red white"):
        ours, theirs = lib.search(sentence), plain.search(sentence)
        assert [(hit.video, hit.score) for hit in ours] == [(hit.video, hit.score) for hit in theirs]
        assert [hit.moments for hit in ours] == [hit.moments for hit in theirs]
        assert not any(moment.evidence for hit in ours for moment in hit.moments)


def test_modes_restrict_the_search(lib, plain):
    assert names(lib.search(Query("blue whale", modes=("said",)))) == ["sea"]
    assert names(lib.search(Query("budget", modes=("written",)))) == []
    seen = lib.search(Query("blue", modes=("seen",)))
    assert [(hit.video, hit.score) for hit in seen] == [(hit.video, hit.score) for hit in plain.search("blue")]
    nothing = plain.search(Query("budget", modes=("said",)))
    assert (list(nothing), len(nothing.warnings)) == ([], 1)


def test_words_in_quotes_match_no_picture(lib, plain):
    for hits in (plain.search('"blue"'), lib.search(Query('"blue"', modes=("seen",)))):
        assert list(hits) == []
        assert hits.warnings
    assert lib.search(Query('"blue" whale', modes=("seen", "said"))).warnings == ()


@pytest.mark.parametrize(
    "query", ['""', 'blue ""', '"blue', "“blue", "«blue", Query("blue", said='"budget'), Query("", said='""')]
)
def test_quotes_that_are_empty_or_not_closed_are_one_warning(lib, query):
    (warning,) = lib.search(query).warnings
    assert "quot" in warning


def test_an_unclosed_quote_is_not_reported_if_quoted_words_cannot_match(lib, plain):
    for hits in (plain.search('blue "white'), lib.search(Query('blue "white', modes=("seen",)))):
        assert (len(hits) > 0, any("quot" in warning for warning in hits.warnings)) == (True, False)


@pytest.mark.parametrize("text", ['""', '"?'])
def test_empty_quotes_do_not_change_the_hits_of_an_example(lib, text):
    like = (Place(lib.videos()[0].path, 1.0),)
    hits, alone = lib.search(Query(text, like=like)), lib.search(Query(like=like))
    assert [(hit.video, hit.score) for hit in hits] == [(hit.video, hit.score) for hit in alone]
    assert (len(hits) > 0, any("quot" in warning for warning in hits.warnings)) == (True, True)
    assert list(lib.search(Query("", said='""', like=like))) == []


def test_excluded_sentences_are_compared_with_pictures_only(lib):
    hits = lib.search(Query("blue", without=('"budget cuts"',)))
    assert [(hit.video, hit.score) for hit in hits] == [(hit.video, hit.score) for hit in lib.search("blue")]


@pytest.mark.parametrize("query", [Query("budget", modes=("written",)), Query("blue", written="budget")])
def test_a_mode_without_any_passage_is_named_with_the_way_to_add_it(lib, query):
    hits = lib.search(query)
    assert (list(hits), len(hits.warnings)) == ([], 1)
    assert "--screen-text" in hits.warnings[0]


def test_both_text_modes_are_named_if_both_are_missing(plain):
    warnings = plain.search(Query("budget", modes=("said", "written"))).warnings
    assert [option in line for option, line in zip(("--speech", "--screen-text"), warnings, strict=True)] == [True] * 2


def test_where_picture_and_speech_agree_their_intersection_is_first(lib):
    hit = lib.search(Query("blue", said="whale"))[0]
    moment = hit.moments[0]
    assert hit.video.stem == "sea"
    assert [why.mode for why in moment.evidence] == ["said", "seen"]
    said, seen = moment.evidence
    assert max(said.start_s, seen.start_s) - 0.51 <= moment.start_s <= moment.peak_s <= moment.end_s
    assert moment.end_s <= min(said.end_s + 0.51, seen.end_s)


def test_a_required_text_leaves_only_videos_with_it(lib):
    assert names(lib.search(Query("green", said="budget"))) == ["wood", "sea"]
    assert names(lib.search(Query(said="whale"))) == ["sea"]
    assert names(lib.search(Query("blue", said="penguin"))) == []


def test_both_moments_of_a_pair_have_evidence(lib, plain):
    streamed = []
    query = Query("white budget cuts", then="blue whale")
    hits = lib.search(query, on_hit=streamed.append)
    (sea,) = [hit for hit in hits if hit.video.stem == "sea"]
    assert streamed == list(hits)
    assert [hit.score for hit in hits] == [hit.score for hit in plain.search(query)]
    pair = [moments[0] for moments in (sea.moments, sea.then)]
    for moment, words in zip(pair, ["budget", "whale"], strict=True):
        seen, said = moment.evidence
        assert (seen.mode, seen.start_s, seen.end_s) == ("seen", moment.start_s, moment.end_s)
        assert (said.mode, words in said.text) == ("said", True)
        assert said.start_s < moment.end_s
        assert said.end_s > moment.start_s
    assert sea.to_json(1)["then"][0]["evidence"][1]["text"] == "The blue whale sings."
    (other,) = lib.search(Query("blue", then="white", modes=["seen"]))[:1]
    assert other.then[0].evidence == ()


def test_moments_as_hits_limits_and_json(lib):
    hits = lib.search(Query("budget", group_by="moment"), limit=3)
    assert names(hits)[:2] == ["sea", "wood"]
    assert len(hits) == 2
    one = lib.search("budget cuts", limit=1, moments="all")
    assert Hits.from_json(one.to_json())[0].moments[0].evidence == one[0].moments[0].evidence
    assert len(lib.search("budget", min_score=10.0)) == 0
    assert names(lib.search("budget", within=lib.search("budget")[1].video)) == ["wood"]
    seen = []
    lib.search("budget cuts", on_hit=seen.append)
    assert names(seen) == names(lib.search("budget cuts"))


@pytest.mark.parametrize("group_by", ["video", "moment"])
def test_every_hit_has_the_curve_of_its_pictures(lib, plain, group_by):
    curves = {}
    for library in (lib, plain):
        hits = library.search(Query("blue", group_by=group_by), limit=9, curve_points=6)
        curves[library] = {hit.video: hit.curve for hit in hits}
        assert all(len(hit.curve) == 6 for hit in hits)
    assert curves[lib] == curves[plain]
    assert max(curves[plain].values())


def test_the_relevance_obeys_the_modes(lib, plain):
    sea = lib.search("whale")[0].video
    for query in ("blue", Query("blue", modes=("seen",)), Query("blue", said="whale")):
        for ours, theirs in zip(lib.relevance(query, sea), plain.relevance("blue", sea), strict=True):
            assert ours.tolist() == theirs.tolist()
    for query in (Query("blue", modes=("said",)), Query(said="whale"), "whale"):
        times_s, values = lib.relevance(query, sea)
        inside = (times_s >= 4.1) & (times_s <= 5.4)
        assert values[inside].min() > 0
        assert values[~inside].max() == 0
        (hit,) = lib.search(query, curve_points=6, limit=1)
        assert hit.curve[:4] == (0, 0, 0, 0)
        assert hit.curve[4] == pytest.approx(values.max(), abs=1e-4)
    assert lib.relevance(Query("penguin", modes=("said",)), sea)[1].tolist() == [0, 0]
    with pytest.raises(ConfigError, match="--speech"):
        plain.relevance(Query("blue", modes=("said",)), sea)


@pytest.mark.parametrize(
    "values",
    [
        {"text": "a", "modes": ("heard",)},
        {"text": "a", "then": "b", "said": "c"},
        {"text": "a", "without": ("b",), "modes": ("said",)},
        {},
        {"said": " "},
    ],
)
def test_impossible_queries_are_refused(values):
    with pytest.raises(ConfigError):
        Query(**values)


def test_words_alone_give_a_strength():
    budget = TextQuery.of("budget cuts in May")
    assert words_strength(budget, "nothing of it") == 0.0
    # 2 of 3 words: 2/3 * (1 - 1/4)
    assert words_strength(budget, "the budget of May") == 0.5
    assert words_strength(TextQuery.of("the who"), "The Who?") == 0.95


def test_fusion_keeps_the_score_of_frames_and_ranks_agreement_first():
    candidates = [FusionCandidate("a", 0.5), FusionCandidate("b", 0.4, 0.5, 0.3), FusionCandidate("c", 0.6, 0.1, 0.1)]
    scores = fuse(candidates, 0.1, FusionSettings(weight=10.0))
    assert scores == {"a": 0.5, "b": 0.8, "c": 0.6}
    ranks = fuse(candidates, 0.1, FusionSettings(method="reciprocal rank", rank_offset=0.0))
    # by frames c, a, b; by passages b, c
    assert ranks == {"a": 1 / 2, "b": 1 / 3 + 1, "c": 1 + 1 / 2}


@pytest.fixture
def talks(tmp_path, monkeypatch):
    """Return a function that indexes talks: videos of 28 colours with one subtitle per second."""
    use_encoder(monkeypatch, ColourEncoder())

    def index(**lines_of):
        films = tmp_path / "films"
        films.mkdir()
        for name, lines in lines_of.items():
            write_clip(films / f"{name}.mp4", ["blue", "white"] * 14)
            cues = (f"{n}\n00:00:{n:02},000 --> 00:00:{n:02},400\n{line}\n" for n, line in enumerate(lines))
            (films / f"{name}.srt").write_text("\n".join(cues))
        library = untrimmed.open(tmp_path / "library")
        library.index(films)
        return library

    return index


def test_all_moments_include_every_place_of_a_word(talks):
    library = talks(talk=["Words about pay.", "Words about tax."] * 12)
    (hit,) = library.search(Query("tax", modes=("said",)), moments="all")
    assert [round(moment.start_s) for moment in hit.moments] == list(range(1, 24, 2))
    assert len(library.search(Query("tax", modes=("said",)), moments=3)[0].moments) == 3


def test_a_phrase_in_quotes_has_a_moment_at_each_of_its_places(talks):
    lines = ["so welcome back", "to the", "blue lake", "now we wait", "and the", "blue lake", "is far"]
    (hit,) = talks(talk=lines).search(Query('"blue lake"'), moments="all")
    said = [moment for moment in hit.moments if any(why.mode == "said" for why in moment.evidence)]
    for moment, start_s in zip(said, (2.0, 5.0), strict=True):
        assert moment.start_s <= start_s
        assert moment.end_s >= start_s + 0.4 - 1e-6
    assert all(moment.end_s - moment.start_s < 4 for moment in said)


@pytest.mark.parametrize(("end", "span_s"), [("", (2.0, 3.4)), (".", (0.0, 5.4))])
def test_without_punctuation_a_moment_spans_the_subtitles_with_the_words(talks, end, span_s):
    lines = ["so welcome back", "to our", "big lake", "and zoo", "where we", f"wait{end}"]
    (hit,) = talks(talk=lines).search(Query("lake zoo", modes=("said",)))
    assert (hit.start_s, hit.end_s) == pytest.approx(span_s, abs=0.01)


def test_a_sentence_that_is_said_outranks_a_picture_that_differs_from_all_others(talks):
    library = talks(talk=["The red tax law rules."])
    folder = Path(library.videos()[0].path).parent
    write_clip(folder / "talk.mp4", ["blue"])
    for number in range(1, 31):
        write_clip(folder / f"blue-{number}.mp4", ["blue"] * number)
    write_clip(folder / "red.mp4", ["red"])
    library.index(folder)
    assert names(library.search("red tax law rules", limit=1)) == ["talk"]


def test_a_moment_ends_with_its_video(talks):
    library = talks(talk=["tax rules"])
    file = library.videos()[0].path
    Path(file).with_suffix(".srt").write_text("1\n00:00:01,000 --> 00:09:00,000\ntax rules\n")
    library.index(file)
    (hit,) = library.search(Query("tax rules", modes=("said",)), moments="all")
    assert hit.moments[0].start_s == 1.0
    assert hit.moments[0].end_s == hit.duration_s


def test_a_list_of_moments_has_the_best_of_all_videos(talks):
    library = talks(a=["Tax law rules.", *["Tax."] * 11], b=["Pay.", "Tax law rules."])
    query = Query("tax law rules", modes=("said",), group_by="moment")
    best = library.search(query, moments=3, limit=3)
    assert [hit.video.stem for hit in best[:2]] == ["a", "b"]
    assert len(library.search(Query("tax", modes=("said",)), moments=10)[0].moments) == 10


@pytest.mark.parametrize(("confidence", "first"), [(None, "talk"), (0.49, "talk"), (0.51, "sun")])
def test_a_spoken_word_does_not_outrank_a_picture_that_certainly_shows_it(tmp_path, monkeypatch, confidence, first):
    use_encoder(monkeypatch, ColourEncoder())
    write_clip(tmp_path / "sun.mp4", ["yellow", "red"])
    write_clip(tmp_path / "talk.mp4", ["blue"])
    (tmp_path / "talk.srt").write_text(
        "1\n00:00:00,200 --> 00:00:01,500\nThe yellow cab had a red, a green and a white door.\n"
    )
    library = untrimmed.open(tmp_path / "library")
    library.index(tmp_path)
    measured = None if confidence is None else SimpleNamespace(of=lambda score: confidence)
    monkeypatch.setattr(answer, "_confidence", lambda *_: measured)
    assert names(library.search("yellow", limit=1)) == [first]
    assert names(library.search(Query("yellow", said="cab"), limit=1)) == ["talk"]
    assert names(library.search("yellow cab", limit=1)) == ["talk"], "all words are said"


def test_a_cue_that_repeats_a_word_very_often_is_searched_as_fast_as_another(tmp_path, monkeypatch):
    use_encoder(monkeypatch, ColourEncoder())
    calls = []
    monkeypatch.setattr(passage_words, "words_of", lambda text: calls.append(text) or words_of(text))
    counts = []
    for count in (2, 1000):
        folder = tmp_path / str(count)
        folder.mkdir()
        write_clip(folder / "film.mp4", ["blue", "white"])
        (folder / "film.srt").write_text(f"1\n00:00:00,500 --> 00:00:02,000\n{'ha ' * count}\n")
        library = untrimmed.open(tmp_path / f"library-{count}")
        library.index(folder)
        calls.clear()
        (hit,) = library.search('"ha"')
        assert [(moment.start_s, moment.end_s) for moment in hit.moments] == [(0.5, 2.0)]
        assert len(hit.moments[0].evidence[0].words) == count
        counts.append(len(calls))
    assert counts[0] == counts[1]


@pytest.fixture
def crowd(tmp_path, monkeypatch):
    """60 videos with a word in short cues (300 of them in one video), and a green one with the word in a longer cue."""
    use_encoder(monkeypatch, ColourEncoder())
    (tmp_path / "films").mkdir()
    write_clip(tmp_path / "films" / "target.mp4", ["green"])
    (tmp_path / "films" / "target.srt").write_text("1\n00:00:00,000 --> 00:00:01,500\nNow we see the zorblax again.\n")
    for number in range(60):
        write_clip(tmp_path / "films" / f"{number:02}.mp4", ["red", "blue"], size=(64, 32 + 2 * number))
        count = 300 if number == 0 else 1
        cues = (f"{cue}\n00:00:00,{3 * cue:03} --> 00:00:00,{3 * cue + 2:03}\nZorblax.\n" for cue in range(count))
        (tmp_path / "films" / f"{number:02}.srt").write_text("\n".join(cues))
    library = untrimmed.open(tmp_path / "library")
    library.index(tmp_path / "films")
    return library


def test_many_short_matches_hide_no_other_video(crowd):
    found = names(crowd.search(Query("zorblax", modes=("said",)), limit=100))
    assert len(found) == 61
    assert "target" in found


@pytest.mark.parametrize("limit", [1, 10, 40])
def test_the_picture_decides_among_all_videos_with_a_required_text(crowd, limit):
    assert names(crowd.search(Query("green", said="zorblax"), limit=limit))[0] == "target"
    assert names(crowd.search('green "zorblax"', limit=limit))[0] == "target"


def test_of_two_texts_with_the_same_meaning_the_one_with_all_words_is_first(tmp_path, monkeypatch):
    use_encoder(monkeypatch, ColourEncoder())
    (tmp_path / "films").mkdir()
    for name, year in (("a", 2019), ("b", 2018), ("c", 2017)):
        write_clip(tmp_path / "films" / f"{name}.mp4", ["white"])
        (tmp_path / "films" / f"{name}.srt").write_text(f"1\n00:00:00,500 --> 00:00:02,000\nGreen report {year}.\n")
    library = untrimmed.open(tmp_path / "library")
    library.index(tmp_path / "films")
    hits = library.search(Query("green report 2018", modes=("said",)))
    assert names(hits)[0] == "b"
    assert hits[0].score > hits[1].score
