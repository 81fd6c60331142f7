"""Orders of methods, compared with the papers' orders and between worlds."""

from dataclasses import replace

import pytest

from tests.refusals import require_named
from tests.study.test_page import found
from untrimmed.data.benchmarks.benchmark import SPLITS
from untrimmed.study.orders import Agreement, across_worlds, notes, papers_order, published_sum_r, worlds_grid
from untrimmed.study.setup import DataFacts

OURS = {"ms_sl": [264.0, 265.0], "dl_dkd": [264.1, 264.3], "gmmformer": [244.0, 244.5], "proto": [185.0, 186.0]}
PAPERS = {"ms_sl": 172.4, "dl_dkd": 179.9, "gmmformer": 176.6, "proto": 185.1, "holmes": 194.2}


def test_tau_of_orders_worked_out_by_hand():
    """Of six pairs, one is in another order: tau is (5 - 1) / 6."""
    agreement = Agreement.of({"a": 4, "b": 3, "c": 2, "d": 1}, {"a": 4, "b": 2, "c": 3, "d": 1, "e": 5})
    assert agreement.tau == pytest.approx(4 / 6)
    assert agreement.differences == (("b", "c"),)
    assert (agreement.first, agreement.second) == (("a", "b", "c", "d"), ("a", "c", "b", "d"))
    assert Agreement.of({"a": 1, "b": 2}, {"a": 1, "b": 2, "c": 3}) is None


def test_pairs_in_another_order_than_the_papers_are_named_with_their_significance():
    table, sentence = papers_order(OURS, PAPERS)
    assert [line.split(" | ")[1:] for line in table.splitlines()[2:]] == [
        ["`ms_sl`", "`proto` |"],
        ["`dl_dkd`", "`dl_dkd` |"],
        ["`gmmformer`", "`gmmformer` |"],
        ["`proto`", "`ms_sl` |"],
    ]
    significant, uncertain = sentence.strip().split(". Differences that are not significant")
    require_named(significant, "-0.67", "`ms_sl` is ahead of `gmmformer`, `proto`", "`dl_dkd` is ahead of `proto`")
    require_named(uncertain, "`ms_sl` is ahead of `dl_dkd`")
    _, sentence = papers_order(OURS | {"jsg": [1.0], "ms_sl,model.dropout=0.1": [2.0]}, PAPERS)
    require_named(sentence.strip().rpartition(". ")[2], "`jsg`", "`ms_sl,model.dropout=0.1`")
    assert list(papers_order({"ms_sl": [1.0]}, PAPERS)) == []


def test_only_candidates_with_published_settings_have_a_figure_of_a_paper():
    results = found("tvr", ms_sl=100.0, dl_dkd_with_evidence=110.0, **{"proto,model.iterations=1": 90.0})
    assert published_sum_r(results) == {"ms_sl": 172.4}


def world(name, simulation, **sum_r):
    facts = DataFacts(videos=dict.fromkeys(SPLITS, 9), captions={}, benchmark="tvr", simulation=simulation)
    results = found(name, **sum_r)
    vars(results.setup)["facts"] = facts
    return results


STANDARD = world("tvr", {}, ms_sl=100.0, dl_dkd=110.0, gmmformer=90.0)
MIXED = world("tvr_mixed", {"words": "mixed"}, ms_sl=70.0, dl_dkd=60.0, gmmformer=50.0)


def test_worlds_are_beside_each_other_with_the_agreement_of_orders():
    grid = worlds_grid(
        {"tvr": {"a": [1.0], "b": [3.0, 5.0], "c": [2.0]}, "tvr_mixed": {"a": [2.0], "b": [9.0], "c": [1.0]}},
        {"a": 1.0, "b": 2.0, "c": 3.0},
    )
    assert grid.header == ("", "tvr", "tvr_mixed")
    assert grid.lines[:3] == (
        ("`b`", "4.0 ± 1.4 (1)", "9.0 (1)"),
        ("`c`", "2.0 (2)", "1.0 (3)"),
        ("`a`", "1.0 (3)", "2.0 (2)"),
    )
    assert [line[0] for line in grid.lines[3:]] == ["tau with tvr", "tau with the papers"]
    assert [line[1:3] for line in grid.lines[3:]] == [("", "0.33 (p 1)"), ("0.33 (p 1)", "-0.33 (p 1)")]


def test_a_simulated_world_names_what_it_favours():
    standard, mixed = (" ".join(notes(results)) for results in (STANDARD, MIXED))
    assert all(name in standard for name in ("RAL", "MS-SL", "DL-DKD"))
    assert "RAL" not in mixed
    assert "MS-SL" in mixed
    assert "favours" not in " ".join(notes(world("tvr", None, ms_sl=1.0)))


def test_worlds_are_joined_only_if_there_are_several_of_one_benchmark():
    text = " ".join(across_worlds([STANDARD, MIXED]))
    assert all(part in text for part in ("110.0 (1)", "70.0 (1)", "`words=mixed`"))
    real, other = world("tvr2", None, ms_sl=1.0), world("charades", {}, ms_sl=1.0)
    vars(other.setup)["facts"] = replace(other.setup.facts, benchmark="charades")
    assert list(across_worlds([STANDARD, real, other])) == []
    assert list(across_worlds([])) == []
