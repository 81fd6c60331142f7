"""The smallest table: one row, trained in a second."""

import pytest

from untrimmed.reproduction.runner import RunSettings, Scale
from untrimmed.reproduction.tables import Column, TableRow, TrainedTable

TINY = Scale()


@pytest.fixture
def settings(tmp_path):
    return RunSettings(tmp_path / "runs", seed=3, device="cpu", scale=TINY)


@pytest.fixture
def table():
    return TrainedTable(
        name="table9",
        title="Two systems",
        columns=(Column(name="tvr", metrics=("R@1", "SumR")), Column(name="activitynet", metrics=("R@1", "SumR"))),
        rows=(
            TableRow(name="mean", method="clip4clip", paper={"tvr": (9.9, 141.0)}),
            TableRow(name="closed", paper={"tvr": (50.0, 300.0)}, without="no program"),
        ),
        left_out="XML",
    )
