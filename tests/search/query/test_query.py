"""Queries of several parts in a library, compared with their definitions in plain NumPy."""

import os
import shutil
from datetime import date, datetime

import numpy as np
import pytest

import untrimmed
from tests.refusals import refused, require_named
from tests.search.cluster.test_sharded import sharded, shards_that_separate
from untrimmed.errors import ConfigError, UnknownNameError
from untrimmed.search.cluster.sharded import shard_of
from untrimmed.search.query.find import span_vector
from untrimmed.search.query.query import Cutoff, Filters, Place, Query, Weights
from untrimmed.types import Reading

RED, WHITE = np.full((8, 8, 3), (255, 0, 0), np.uint8), np.full((8, 8, 3), 255, np.uint8)


def unit(vector):
    return vector / np.linalg.norm(vector)


def names(hits):
    return [hit.video.name for hit in hits]


def scores_by_hand(lib, vector):
    """Return each video's score for a vector from the corpus of frames, which has its own tests."""
    view = lib.engine.view()
    text = untrimmed.search.query.answer._as_text(vector.astype(np.float32))
    ranked = view.frames().prepare(text).rank(limit=99)
    return {os.path.basename(view.records.of(video.video_id).path): video.score for video in ranked}


def test_a_query_of_one_sentence_equals_the_plain_sentence(lib):
    assert lib.search(Query("green")) == lib.search("green")
    assert lib.search("green")[0].then == ()


def test_then_finds_both_moments_in_order(lib):
    best = lib.search(Query("red", then="green"))[0]
    assert best.video.name == "flag.mp4"
    (first, *_), (second, *_) = best.moments, best.then
    assert (first.start_s, second.end_s) == pytest.approx((0.0, 6.0), abs=0.3)
    assert first.end_s <= 2.5
    assert second.start_s >= 3.5
    assert best.score == pytest.approx((first.score + second.score) / 2)
    assert lib.search(Query("green", then="red"))[0].score < best.score
    near = lib.search(Query("red", then="green", within_s=1.0))[0]
    assert near.score < best.score, "two seconds of white are between them"


def test_without_lowers_the_score_of_excluded_content(lib):
    assert set(names(lib.search("white", limit=2))) == {"flag.mp4", "sea # 1.mp4"}
    without = lib.search(Query("blue", without=("white",)), limit=4)
    assert without[0].video.name == "sea # 1.mp4"
    assert without[0].start_s != pytest.approx(4.0, abs=0.5), "the video is white there"
    heavy = lib.search(Query("white", without=("white",), weights=Weights(without=3.0)))[0]
    assert heavy.score < lib.search("white")[0].score


def test_examples_are_combined_by_rocchios_formula(lib):
    view = lib.engine.view()
    records = {os.path.basename(record.path): record.video_id for record in view.records}
    place, avoided = Place(lib.search("yellow")[0].video, 0.0, 1.5), Place(records["wood.mp4"], 0.5)
    yellow = span_vector(view.index.get(records["sun.mp4"]).features, 0.0, 1.5)
    green = span_vector(view.index.get(records["wood.mp4"]).features, 0.5, 0.5)
    image = lib._ready_encoder(view.encoder).encode_frames(RED[None])[0]
    weights = Weights(text=2.0, image=1.0, like=0.5, unlike=0.25)
    example = image + 0.5 * yellow - 0.25 * green
    actual = lib.search(Query(image=RED, like=(place,), unlike=(avoided,), weights=weights), limit=4)
    expected = scores_by_hand(lib, unit(example))
    assert {hit.video.name: hit.score for hit in actual} == pytest.approx(expected, abs=1e-4)
    text = lib._ready_encoder(view.encoder).encode_texts(["blue"])[0].sentence
    spreads = [np.std(list(scores_by_hand(lib, unit(vector)).values())) for vector in (text, example)]
    both = 2.0 * unit(text) / spreads[0] + example / spreads[1]
    actual = lib.search(Query("blue", image=RED, like=(place,), unlike=(avoided,), weights=weights), limit=4)
    assert {hit.video.name: hit.score for hit in actual} == pytest.approx(scores_by_hand(lib, unit(both)), abs=1e-3)


def test_similar_equals_a_query_with_an_image_alone(lib):
    assert lib.search(Query(image=WHITE)) == lib.similar(WHITE)


@pytest.mark.parametrize(
    ("filters", "admitted"),
    [
        ({"min_duration_s": 6.5}, {"sea # 1.mp4"}),
        ({"max_duration_s": 4.5}, {"sun.mp4", "wood.mp4"}),
        ({"since": date(2001, 9, 9)}, {"flag.mp4", "sea # 1.mp4", "sun.mp4"}),
        ({"until": datetime(2001, 9, 9, 12, 0)}, {"sun.mp4", "wood.mp4"}),
        ({"until": date(2001, 9, 9), "min_duration_s": 1.0}, {"flag.mp4", "sun.mp4", "wood.mp4"}),
        ({"max_height": 47}, set()),
        ({"min_height": 48, "within": "sun.mp4"}, {"sun.mp4"}),
    ],
)
def test_filters_apply_before_the_limit(encoder, videos, tmp_path, filters, admitted):
    folder = tmp_path / "copies"
    shutil.copytree(videos, folder)
    changed = {"wood.mp4": datetime(2001, 9, 8), "sun.mp4": datetime(2001, 9, 9), "flag.mp4": datetime(2001, 9, 9, 18)}
    for name in ("wood.mp4", "sun.mp4", "flag.mp4", "sea # 1.mp4"):
        when = changed.get(name, datetime(2001, 9, 10, 0, 0, 1)).timestamp()
        os.utime(folder / name, (when, when))
    lib = untrimmed.open(tmp_path / "filtered")
    lib.index(folder)
    if "within" in filters:
        filters = filters | {"within": folder / filters["within"]}
    hits = lib.search(Query("blue", filters=Filters(**filters)), limit=4)
    assert (set(names(hits)), hits.filters_exclude_all) == (admitted, not admitted)
    said = lib.search(Query("blue", modes=("said",), filters=Filters(**filters)))
    assert said.filters_exclude_all == (not admitted), "although the library has no text either"
    if admitted:
        assert len(lib.search(Query("blue", filters=Filters(**filters)), limit=len(admitted))) == len(admitted)
    else:
        require_named(*hits.warnings, "47")


def test_byte_filters_use_the_size_of_the_file(lib):
    sizes = {os.path.basename(record.path): record.size for record in lib.videos()}
    middle = sorted(sizes.values())[1]
    small = lib.search(Query("red", filters=Filters(max_bytes=middle)), limit=4)
    assert set(names(small)) == {name for name, size in sizes.items() if size <= middle}
    large = lib.search(Query("red", filters=Filters(min_bytes=middle)), limit=4)
    assert set(names(large)) == {name for name, size in sizes.items() if size >= middle}


def test_grouping_by_moment_returns_one_ranked_list(lib):
    flat = lib.search(Query("white", group_by="moment"), limit=5, moments=9)
    assert all(len(hit.moments) == 1 for hit in flat)
    assert [hit.score for hit in flat] == sorted((hit.score for hit in flat), reverse=True)
    everything = lib.search(Query("white", group_by="moment"), limit=99, moments=9)
    assert flat == everything[:5], "the limit keeps the best of all moments"
    assert len({(hit.video, hit.start_s) for hit in everything}) == len(everything)
    pairs = lib.search(Query("red", then="green", group_by="moment"), limit=3)
    assert all(len(hit.then) == 1 for hit in pairs)


def test_fold_hides_near_duplicates(encoder, videos, tmp_path):
    folder = tmp_path / "doubled"
    shutil.copytree(videos, folder)
    shutil.copyfile(folder / "wood.mp4", folder / "wood again.mp4")
    (folder / "flag.mp4").unlink()  # its green frames would be near-duplicates
    lib = untrimmed.open(tmp_path / "folded")
    lib.index(folder)
    assert names(lib.search("green", limit=3)) == ["wood again.mp4", "wood.mp4", "sun.mp4"]
    copies = lib.search(Query("green", fold=1.0), limit=2)
    assert names(copies) == ["wood again.mp4", "sun.mp4"], "the next video moves up"
    assert copies[0].folded == (folder / "wood.mp4",)
    alike = lib.search(Query("green", fold=0.95), limit=9)
    remaining = [
        span_vector(lib.engine.view().index.get(hit.video_id).features, m.start_s, m.end_s)
        for hit in alike
        for m in hit.moments
    ]
    assert max(float(a @ b) for i, a in enumerate(remaining) for b in remaining[:i]) < 0.95


def test_warnings_name_the_unknown_words_of_each_part(encoder, lib, monkeypatch):
    read = type(encoder)._text

    def reading(self, text):
        actual = read(self, text)
        unknown = tuple(word for word in actual.tokens if word.startswith("x"))
        known = Reading(unknown, is_understood=len(unknown) < len(actual.tokens))
        return untrimmed.types.TextFeatures(text, actual.sentence, actual.words, actual.tokens, known)

    monkeypatch.setattr(type(encoder), "_text", reading)
    hits = lib.search(Query("red xa", then="xb green", without=("xc", "xd blue")))
    assert hits
    expected = [("'xa'",), ("then", "'xb'"), ("without", "'toy'"), ("without", "'xd'")]  # "xc" has no known word
    for line, words in zip(hits.warnings, expected, strict=True):
        require_named(line, *words)
    assert lib.search(Query("red", without=("xc",))) == lib.search("red"), "an unknown sentence excludes nothing"
    nothing = lib.search(Query("red", then="xb"))
    assert nothing == []
    require_named(nothing.warnings[0], "then", "'toy'")
    assert names(lib.search(Query("xa", image=RED), limit=1)) == names(lib.similar(RED, limit=1))
    with refused(ConfigError, "then", "'toy'"):
        lib.relevance(Query("red", then="xb"), hits[0].video)


def test_relevance_combines_all_parts_of_the_query(lib, videos):
    flag = videos / "flag.mp4"
    for query in (Query("red", without=("green",)), Query("red", like=(Place(flag, 5.0),)), Query(image=RED)):
        (hit,) = (hit for hit in lib.search(query) if hit.video == flag)
        assert lib.relevance(query, flag)[1].max() == pytest.approx(hit.score, abs=1e-6)
        times_s, values = lib.relevance(query, flag)
        assert values[np.abs(times_s - hit.peak_s).argmin()] == values.max()
    times_s, like = lib.relevance(Query(like=(Place(flag, 5.0),)), flag)
    assert times_s[like.argmax()] >= 4.0, "green is at the end"
    first = lib.relevance(Query("red", then="green"), flag)[1]
    assert np.allclose(first, lib.relevance("red", flag)[1], atol=1e-6)


PARTS = [
    {"then": "green"},
    {"without": ("white",)},
    {"then": "green", "without": ("white", "yellow"), "group_by": "moment"},
]


@pytest.mark.parametrize("parts", PARTS)
def test_shards_answer_queries_of_several_parts_like_one_process(lib, parts):
    query = Query("red", **parts, like=(Place(lib.search("yellow")[0].video, 0.5),))
    expected = lib.search(query, limit=99)
    count = shards_that_separate(expected)
    shards = sharded(lib, count)
    assert shards.search(query, limit=99) == expected
    dead = shard_of(expected[0].video_id, count)
    shards.engine._shards.dead.add(dead)
    hits = shards.search(query, limit=99)
    assert hits.partial
    assert {hit.video_id for hit in hits} == {h.video_id for h in expected if shard_of(h.video_id, count) != dead}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Query(" "), ()),
        (lambda: Query(then="red"), ()),
        (lambda: Query("red", without=("",)), ()),
        (lambda: Query(unlike=(Place("a", 1.0),)), ()),
        (lambda: Query("red", within_s=0.0), ("within_s", "0")),
        (lambda: Query("red", fold=2.0), ("2",)),
        (lambda: Query("red", without=("blue",) * 33), ("33",)),
        (lambda: Place("a.mp4", 3.0, 2.0), ("3.0", "2.0")),
        (lambda: Weights(like=0.0), ("like", "0.0")),
        (lambda: Filters(until=date.max), ("until", "9999-12-31")),
        (lambda: Filters(since=date.min), ("since", "0001-01-01")),
        (lambda: Filters(since=datetime.min), ("since", "0001-01-01 00:00:00")),
    ],
)
def test_invalid_queries_are_refused_in_one_line(make, message):
    with refused(ConfigError, *message) as caught:
        make()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("part", "name", "value", "message"),
    [
        (Query("dog"), "without", "rain", ("without", "'rain'", "tuple")),
        (Query("dog"), "like", Place("a", 1.0), ("like", "tuple")),
        (Query("dog"), "unlike", Place("a", 1.0), ("unlike", "tuple")),
        (Query("dog"), "weights", {"text": 1}, ("weights",)),
        (Filters(), "min_height", "a", ("min_height",)),
        (Filters(), "since", 20260501, ("since", "20260501")),
        (Cutoff(), "limit", 2.5, ("limit", "2.5")),
    ],
)
def test_values_of_another_type_are_refused_in_one_line(part, name, value, message):
    object.__setattr__(part, name, value)  # the type checks of tests would refuse it in the constructor
    with refused(ConfigError, *message) as caught:
        part.__post_init__()
    assert "\n" not in str(caught.value)


def test_places_outside_the_library_are_refused(lib):
    with refused(UnknownNameError, "no.mp4"):
        lib.search(Query(like=(Place("no.mp4", 1.0),)))
    wood = lib.search("green", limit=1)[0].video
    with refused(ConfigError, "99"):
        lib.search(Query(like=(Place(wood, 99.0),)))
    places = (Place(wood, 1.0),)
    with pytest.raises(ConfigError):
        lib.search(Query(like=places, unlike=places, weights=Weights(like=1.0, unlike=1.0)))


def test_a_folder_of_an_unknown_user_is_refused(lib):
    with refused(ConfigError, "~nouser", "./~NAME"):
        lib.search(Query("red", filters=Filters(within="~nouser")))


@pytest.mark.parametrize("image", [np.zeros((4, 4), np.uint8), np.zeros((4, 4, 3)), np.zeros((3, 4, 4), np.uint8), "a"])
def test_an_array_that_is_not_a_picture_is_refused(image):
    with pytest.raises(ConfigError):
        Query(image=image)
