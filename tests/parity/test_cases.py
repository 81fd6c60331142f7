"""Every recorded array of the released programs is reproduced, within the tolerance of its kind."""

from pathlib import Path

import pytest

from untrimmed.parity.registry import run_case

CASES = Path(__file__).parent / "cases"
METHODS = ("ms-sl", "gmmformer", "gmmformer-v2", "ral", "jsg", "dl-dkd", "hlformer", "dreamprvr", "holmes", "tf-prvr")
# least number of cases of a method; other methods have at least 12
FEWEST = {"ral": 8, "dreamprvr": 8, "hlformer": 11, "tf-prvr": 11}


def stored_cases() -> list[Path]:
    return sorted(path.parent for method in METHODS for path in (CASES / method).glob("*/config.json"))


@pytest.mark.parametrize("case", stored_cases(), ids=lambda case: f"{case.parent.name}-{case.name}")
def test_a_stored_case_is_reproduced(case):
    results = run_case(case)
    assert results
    assert [str(result) for result in results if not result.passed] == []


@pytest.mark.check
@pytest.mark.shared
@pytest.mark.parametrize("method", METHODS)
def test_every_case_beside_the_project_is_reproduced(shared, method):
    cases = sorted(path.parent for path in (shared / "parity" / method).glob("*/config.json"))
    assert len(cases) >= FEWEST.get(method, 12)
    failures = [f"{case.name}: {result}" for case in cases for result in run_case(case) if not result.passed]
    assert failures == []
