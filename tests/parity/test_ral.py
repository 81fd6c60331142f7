"""Every recorded array of RAL is reproduced, within the tolerance of its kind."""

from pathlib import Path

import pytest

from untrimmed.parity.registry import run_case

CASES = Path(__file__).parent / "cases" / "ral"
KINDS = {
    "dropout-probe",
    "feature-pipeline",
    "forward-full",
    "forward-masked",
    "loss",
    "loss-random-negatives",
    "optim",
    "retrieval-metrics",
}


@pytest.mark.parametrize("kind", ["forward-masked", "loss", "retrieval-metrics"])
def test_a_stored_case_is_reproduced(kind):
    results = run_case(CASES / kind)
    assert results
    assert [str(result) for result in results if not result.passed] == []


@pytest.mark.check
@pytest.mark.shared
def test_every_case_beside_the_project_is_reproduced(shared):
    cases = sorted(path.parent for path in (shared / "parity" / "ral").glob("*/config.json"))
    assert {case.name for case in cases} >= KINDS
    failures = [f"{case.name}: {result}" for case in cases for result in run_case(case) if not result.passed]
    assert failures == []
