"""Hits have one JSON form, which says all of them."""

import json
from pathlib import Path

import pytest

from untrimmed.search.query.hits import Hit, Hits, WeighedWord
from untrimmed.span import Moment

PLAIN = Hit(Path("/a.mp4"), "0" * 16, 1.0, 2.0, 1 / 3, 9.0, (Moment(1.0, 2.0, 0.1), Moment(4.0, 5.0, 0.05)))
PAIR = Hit(
    Path("/\udcff.mp4"), "1" * 16, 0.0, 1.0, 0.3, 9.0, (Moment(0.0, 1.0, 0.1),), 0.7, (Moment(2.0, 3.0),), (Path("/b"),)
)


def test_hits_are_the_same_after_json():
    hits = Hits([PLAIN, PAIR], ["no such word"], partial=True, words=[WeighedWord("dog", 0.5)])
    read = Hits.from_json(json.loads(json.dumps(hits.to_json())))
    assert list(read) == list(hits)
    assert (read.warnings, read.partial, read.words) == (hits.warnings, hits.partial, hits.words)


def test_what_was_not_asked_for_is_absent_and_an_unknown_confidence_is_null():
    plain, pair = Hits([PLAIN, PAIR]).to_json()["hits"]
    assert {"then", "folded"} & plain.keys() == set()
    assert {"then", "folded"} < pair.keys()
    assert [plain["rank"], pair["rank"], plain["confidence"]] == [1, 2, None]


@pytest.mark.parametrize("found", [{}, {"video": "a"}, {"hits": [1]}, []])
def test_another_form_is_no_hit(found):
    with pytest.raises((AttributeError, KeyError, TypeError)):
        Hit.from_json(found)
