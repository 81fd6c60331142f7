"""Growth by attachments, with gains that are known beforehand."""

from untrimmed.study.greedy import grow
from untrimmed.study.setup import Candidate

BASE = Candidate.of("ms_sl")


def grown(gains, *, together=None, refused=(), most=None):
    """Grow where each attachment gains its own number, those of `together` another."""
    asked = []

    def reach(candidates):
        asked.extend(map(str, candidates))
        names = [frozenset(each.name.attachments) for each in candidates]
        return [(together or {}).get(own, 100 + sum(gains[name] for name in own)) for own in names]

    growth = grow(
        BASE, list(gains), lambda each: "no" if set(each.name.attachments) & set(refused) else "", reach, most
    )
    return growth, asked


def test_what_gains_most_comes_first_and_what_gains_nothing_ends_it():
    growth, asked = grown({"evidence": 2, "ral": 5, "transport": -1})
    assert [str(each) for each in growth.kept] == ["ms_sl", "ms_sl+ral", "ms_sl+ral+evidence"]
    assert asked == [
        *("ms_sl", "ms_sl+evidence", "ms_sl+ral", "ms_sl+transport"),
        *("ms_sl+ral+evidence", "ms_sl+ral+transport", "ms_sl+ral+evidence+transport"),
    ]
    assert [each.sum_r for each in growth.tried] == [100, 102, 105, 99, 107, 104, 106]


def test_gains_that_do_not_add_up_are_not_kept():
    together = {frozenset({"ral", "evidence"}): 105.0}
    growth, _ = grown({"evidence": 4, "ral": 5}, together=together)
    assert [str(each) for each in growth.kept] == ["ms_sl", "ms_sl+ral"]


def test_what_does_not_fit_is_told_once_and_never_trained():
    growth, asked = grown({"ral": 5, "registers": 9}, refused=["registers"])
    assert {str(each): why for each, why in growth.refused.items()} == {"ms_sl+registers": "no"}
    assert asked == ["ms_sl", "ms_sl+ral"]


def test_without_attachments_a_method_stands_alone():
    growth, _ = grown({})
    assert (growth.kept, growth.refused) == ((BASE,), {})


def test_growth_ends_where_it_is_told_to():
    growth, asked = grown({"evidence": 2, "ral": 5}, most=1)
    assert [str(each) for each in growth.kept] == ["ms_sl", "ms_sl+ral"]
    assert asked == ["ms_sl", "ms_sl+evidence", "ms_sl+ral"]


def test_what_is_to_be_trained_later_waits_and_the_rest_counts():
    def reach(candidates):
        return [None if "transport" in each.name.attachments else 100.0 + len(str(each)) for each in candidates]

    growth = grow(BASE, ["transport", "ral"], lambda each: "", reach)
    assert [str(each) for each in growth.kept] == ["ms_sl", "ms_sl+ral"]
    assert [str(each) for each in growth.waiting] == ["ms_sl+transport", "ms_sl+ral+transport"]
