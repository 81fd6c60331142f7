"""The sentences on the page of a study, from invented results."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np

from tests.refusals import require_named
from untrimmed.data.benchmarks.benchmark import SPLITS
from untrimmed.evaluation.recall import recall
from untrimmed.evaluation.report import Report
from untrimmed.presets.published import RECALL
from untrimmed.study.costs import CandidateCosts
from untrimmed.study.greedy import CandidateResult, Growth
from untrimmed.study.page import _findings, section, table, winners
from untrimmed.study.setup import Candidate, DataFacts, Point, StudySetup
from untrimmed.study.study import StudyPlan, StudyResults

PLAIN, GROWN, OTHER = (Candidate.of(name) for name in ("ms_sl", "ms_sl+ral", "dl_dkd"))


def found(data, **sum_r):
    grown = Growth((CandidateResult(PLAIN, 1.0, PLAIN), CandidateResult(GROWN, 2.0, PLAIN, PLAIN)), (PLAIN, GROWN), {})
    reports = {
        Candidate.of(name.replace("_with_", "+")): (Report("", 1, {"fused": {"SumR": value}}, np.ones(1, int), ("0",)),)
        for name, value in sum_r.items()
    }
    setup = StudySetup(data=data, root=Path(), out=Path())
    facts = DataFacts(videos=dict.fromkeys(SPLITS, 100), captions={}, benchmark="tvr", simulation=None)
    vars(setup)["facts"] = facts  # no data set is there
    return StudyResults(
        setup=setup,
        plan=StudyPlan(methods=(PLAIN, OTHER)),
        points={PLAIN: Point(3e-4)},
        growths=(grown,),
        finalists=tuple(reports),
        untrained={},
        reports=reports,
    )


def test_the_best_is_compared_with_its_method_the_second_and_on_other_data():
    first = found("tvr", ms_sl=100.0, ms_sl_with_ral=240.0, dl_dkd=236.0)
    second = found("charades", ms_sl=100.0, ms_sl_with_ral=180.0, dl_dkd=200.0)
    assert list(winners([first, second])) == [
        "- On tvr, `ms_sl+ral` has the highest SumR of the trained methods on test videos: 240.0, 140.0 more than "
        "`ms_sl` (one seed, so no p over seeds; p over queries 1), 4.0 more than `dl_dkd` (one seed, so no p over "
        "seeds; p over queries 1); on charades, it is number 2 of 3.",
        "- On charades, `dl_dkd` has the highest SumR of the trained methods on test videos: 200.0, 20.0 more than "
        "`ms_sl+ral` (one seed, so no p over seeds; p over queries 1); on tvr, it is number 2 of 3.",
    ]


def ranked(own, **rank):
    """Replace the reports by those of the given ranks of captions."""
    reports = {
        Candidate.of(name): (Report("", 300, {"fused": recall(of)}, of, tuple(map(str, range(len(of))))),)
        for name, of in rank.items()
    }
    return replace(own, finalists=tuple(reports), reports=reports)


def test_differences_are_printed_with_p():
    own = ranked(found("tvr"), ms_sl=np.array([1] * 40), dl_dkd=np.array([300] * 40))
    require_named(next(winners([own])), "400.0", "`dl_dkd`", "< 0.0001")
    own = ranked(found("tvr"), ms_sl=np.array([1] * 21 + [300] * 20), dl_dkd=np.array([300] * 21 + [1] * 20))
    require_named(next(winners([own])), "9.8", "`dl_dkd`", "queries 1")


def test_a_better_untrained_baseline_is_named_unless_it_is_the_oracle():
    rows = {"chance": {"SumR": 29.0}, "ridge": {"SumR": 126.0}, "oracle": {"SumR": 390.0}}
    own = replace(found("tvr", ms_sl=100.0), untrained=rows)
    require_named(next(winners([own])), "`ridge`", "126.0")
    assert "ridge" not in next(winners([replace(found("tvr", ms_sl=130.0), untrained=rows)]))


def test_a_candidate_named_with_attachments_is_compared_with_its_method():
    own = found("tvr", dl_dkd=200.0, dl_dkd_with_evidence=210.0, gmmformer_with_ral=100.0)
    named, alone = Candidate.of("dl_dkd+evidence"), Candidate.of("gmmformer+ral")
    assert (own.compared_with(named), own.compared_with(alone)) == (OTHER, alone)
    require_named(next(winners([own])), "10.0", "`dl_dkd`")


def test_a_candidate_is_compared_without_the_settings_of_its_attachments():
    names = ["gmmformer_v2,model.dropout=0.1", "gmmformer_v2+registers,model.dropout=0.1,weights.register_kl=5"]
    own = found("tvr", **dict.fromkeys((*names, "gmmformer_v2"), 100.0))
    plain, tuned = map(Candidate.of, names)
    assert own.compared_with(tuned) == plain
    other = replace(tuned, settings=("model.dropout=0.2", "model.registers.num_steps=3"))
    assert own.compared_with(other) == other


def test_the_page_has_the_settings_that_the_search_chose():
    own = found("tvr", ms_sl=1.0, dl_dkd=2.0)
    own = replace(own, points={PLAIN: Point(3e-4), OTHER: Point(1e-3)}, reports={PLAIN: seeds(1.0), OTHER: seeds(2.0)})
    vars(own.setup)["facts"] = replace(own.setup.facts, captions={"test": 40})
    (line,) = (line for line in section(own) if "0.001" in line and "`dl_dkd`" in line)
    require_named(line.strip(), "`ms_sl` rate 0.0003")


def test_without_results_there_is_no_winner():
    assert list(winners([found("tvr")])) == []


def test_a_winner_without_results_on_other_data_has_no_place_there():
    first, second = found("tvr", ms_sl=100.0), found("charades", dl_dkd=200.0)
    require_named(next(winners([first, second])), "charades")


def test_an_attachment_without_gain_is_listed_with_its_sum():
    lower = Candidate.of("ms_sl+ral+transport")
    own = found("tvr")
    (growth,) = own.growths
    own = replace(own, growths=(replace(growth, results=(*growth.results, CandidateResult(lower, 1.5, PLAIN, GROWN))),))
    assert any({"ral", "2.0", "transport", "1.5"} <= set(re.findall(r"[\w.]*\w", line)) for line in _findings(own))


def test_a_method_that_was_not_extended_is_listed_with_its_sum():
    other = Growth((CandidateResult(OTHER, 1.5, OTHER),), (OTHER,), {})
    own = found("tvr")
    own = replace(own, growths=(*own.growths, other), plan=replace(own.plan, attachments=("ral",)))
    assert any("`dl_dkd`" in line and "1.5" in line for line in _findings(own))


def seeds(*sum_r):
    """Reports of seeds with these SumR, which find the same videos."""
    return tuple(
        Report("", 1, {"fused": dict.fromkeys(RECALL, value)}, np.ones(40, int), tuple(map(str, range(40))))
        for value in sum_r
    )


def test_the_headline_leads_with_p_over_seeds():
    near, far, wide = (230.0, 231.0, 232.0), (240.0, 241.0, 242.0), (221.0, 241.0, 261.0)
    for best, doubt in ((far, False), (wide, True)):
        own = replace(found("tvr"), reports={GROWN: seeds(*best), PLAIN: seeds(*near)})
        (line,) = winners([own])
        assert ("not significant" in line) == doubt
        assert line.index("over seeds") < line.index("over queries")


def test_the_best_row_comes_first_and_is_bold():
    costs = CandidateCosts(1, 0.1, 4)
    own = replace(
        found("tvr"),
        reports={PLAIN: seeds(1.0, 2.0), GROWN: seeds(8.0, 9.0), OTHER: seeds(5.0, 6.0)},
        costs=dict.fromkeys((PLAIN, GROWN, OTHER), costs),
        untrained={"chance": dict.fromkeys(RECALL, 0.5)},
    )
    rows = table(own).lines
    assert [row[0] for row in rows] == ["**`ms_sl+ral`**", "`dl_dkd`", "`ms_sl`", "chance"]
    assert rows[0][5:8] == ("**8.5 ± 0.7**", "", "")
    assert float(rows[2][6]) < float(rows[1][6]) < 0.1, "p to the best, over seeds"
    assert float(rows[0][8]) == float(rows[2][6]), "p to the base"
