"""Growth by attachments, with gains that are known beforehand."""

from untrimmed.study.greedy import grow
from untrimmed.study.setup import Candidate

BASE = Candidate.of("ms_sl")


def extend(gains, *, together=None, refused=(), max_attachments=None):
    """Grow where an attachment adds its gain to SumR; `together` has the SumR of some combinations."""
    requests = []

    def reach(candidates):
        requests.extend(map(str, candidates))
        names = [frozenset(each.name.attachments) for each in candidates]
        return [(together or {}).get(own, 100 + sum(gains[name] for name in own)) for own in names]

    def refusal(candidate):
        return "no" if set(candidate.name.attachments) & set(refused) else ""

    growth = grow(BASE, list(gains), refusal, reach, max_attachments)
    return growth, requests


def test_the_largest_gain_comes_first_until_nothing_gains():
    growth, requests = extend({"evidence": 2, "ral": 5, "transport": -1})
    assert [str(each) for each in growth.accepted] == ["ms_sl", "ms_sl+ral", "ms_sl+ral+evidence"]
    assert requests == [
        *("ms_sl", "ms_sl+evidence", "ms_sl+ral", "ms_sl+transport"),
        *("ms_sl+ral+evidence", "ms_sl+ral+transport", "ms_sl+ral+evidence+transport"),
    ]
    assert [each.sum_r for each in growth.results] == [100, 102, 105, 99, 107, 104, 106]


def test_an_attachment_without_further_gain_is_not_accepted():
    together = {frozenset({"ral", "evidence"}): 105.0}
    growth, _ = extend({"evidence": 4, "ral": 5}, together=together)
    assert [str(each) for each in growth.accepted] == ["ms_sl", "ms_sl+ral"]


def test_an_attachment_that_does_not_fit_is_reported_once_and_not_trained():
    growth, requests = extend({"ral": 5, "registers": 9}, refused=["registers"])
    assert {str(each): why for each, why in growth.refused.items()} == {"ms_sl+registers": "no"}
    assert requests == ["ms_sl", "ms_sl+ral"]


def test_without_attachments_only_the_method_is_accepted():
    growth, _ = extend({})
    assert (growth.accepted, growth.refused) == ((BASE,), {})


def test_growth_ends_at_the_maximum_number_of_attachments():
    growth, requests = extend({"evidence": 2, "ral": 5}, max_attachments=1)
    assert [str(each) for each in growth.accepted] == ["ms_sl", "ms_sl+ral"]
    assert requests == ["ms_sl", "ms_sl+evidence", "ms_sl+ral"]


def test_untrained_combinations_wait_while_others_are_compared():
    def reach(candidates):
        return [None if "transport" in each.name.attachments else 100.0 + len(str(each)) for each in candidates]

    growth = grow(BASE, ["transport", "ral"], lambda each: "", reach)
    assert [str(each) for each in growth.accepted] == ["ms_sl", "ms_sl+ral"]
    assert [str(each) for each in growth.waiting] == ["ms_sl+transport", "ms_sl+ral+transport"]
