"""How far prototypes' readings differ: the figures by hand, and runs of one form in one row."""

import sys
from unittest import mock

import pytest
import torch

from benchmarks import prototype_readings
from untrimmed.nn.prototypes import Prototypes
from untrimmed.training.train import train


def test_figures_of_two_readings_worked_out_by_hand():
    # Two videos of two prototypes each; all vectors lie on two axes.
    x, y = [1.0, 0.0], [0.0, 2.0]
    first = torch.tensor([[x, x], [x, y]])  # pairs of a video: 1, 0; one prototype in both: 1, 0
    last = torch.tensor([[x, y], [y, x]])  # the second, third and fourth have turned
    looks = torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[0.5, 0.5], [0.5, 0.5]]])  # half of four pairs differ by 1
    made = prototype_readings.figures([Prototypes(first, looks), Prototypes(last, looks)])
    assert made == pytest.approx([0.25, 0.5, 0.0, 0.5, 0.0, 0.25])


@pytest.fixture
def runs(data_root, small, tmp_path):
    for seed in (0, 1):
        proto = small | {"model.iterations": 2, "model.max_words": 30}
        train("proto", data="tvr", root=data_root, out=tmp_path / f"proto,form-0.01-8-{seed}", seed=seed, **proto)
    train("gmmformer", data="tvr", root=data_root, out=tmp_path / "gmmformer-0.01-8-0", **small)
    (tmp_path / "something else").mkdir()
    return tmp_path


@pytest.mark.check
def test_runs_of_one_form_are_one_row_before_and_after_training(runs, capsys):
    single = prototype_readings.by_form([runs / "proto,form-0.01-8-1"])
    assert {form: len(found) for form, found in single.items()} == {"proto,form-0.01-8": 1}
    with mock.patch.object(sys, "argv", ["prototype_readings", "--runs", str(runs)]):
        prototype_readings.main()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row[:4] for row in rows] == [
        ["proto,form-0.01-8", state, branch, "2"] for state in ("start", "trained") for branch in ("clips", "frames")
    ]
    assert all("±" in cell for row in rows for cell in row[4:9])
    assert ["±" in row[-1] for row in rows] == [False, False, True, True]
    assert rows[0][4:9] != rows[2][4:9]
