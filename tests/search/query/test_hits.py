"""The JSON form of hits."""

import json
from pathlib import Path

import pytest

from untrimmed.search.query.hits import Hit, Hits, WeighedWord
from untrimmed.span import Moment

PLAIN = Hit(Path("/a.mp4"), "0" * 16, 1.0, 2.0, 1 / 3, 9.0, (Moment(1.0, 2.0, 0.1), Moment(4.0, 5.0, 0.05)))
PAIR = Hit(
    Path("/\udcff.mp4"), "1" * 16, 0.0, 1.0, 0.3, 9.0, (Moment(0.0, 1.0, 0.1),), 0.7, (Moment(2.0, 3.0),), (Path("/b"),)
)


def test_hits_are_unchanged_after_a_round_trip_through_json():
    words = [WeighedWord("dog", 0.5)]
    hits = Hits([PLAIN, PAIR], ["no such word"], partial=True, words=words, filters_exclude_all=True)
    read = Hits.from_json(json.loads(json.dumps(hits.to_json())))
    assert list(read) == list(hits)
    assert vars(read) == vars(hits)


def test_json_omits_empty_then_and_folded_and_has_null_for_no_confidence_message():
    plain, pair = Hits([PLAIN, PAIR]).to_json()["hits"]
    assert {"then", "folded"} & plain.keys() == set()
    assert {"then", "folded"} < pair.keys()
    assert [plain["rank"], pair["rank"], plain["confidence"]] == [1, 2, None]


@pytest.mark.parametrize("data", [{}, {"video": "a"}, {"hits": [1]}, []])
def test_other_json_is_not_read_as_a_hit(data):
    with pytest.raises((AttributeError, KeyError, TypeError)):
        Hit.from_json(data)
