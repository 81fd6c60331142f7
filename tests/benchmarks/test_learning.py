"""The comparison of methods: what its methods may bring along, and where their runs lie."""

import argparse

import pytest

from benchmarks import learning
from untrimmed.presets import load_preset

ARGS = argparse.Namespace(name="tvr", videos=2000, batch=16, dim=128, frames=32)
FORM = "proto,model.iterations=1,model.prototype_residual=all,train.weight_decay=1e-05"


def test_settings_of_a_method_reach_its_run_and_no_other():
    one, plain = (learning.Plan(method=name, rate=3e-4, steps=750, seed=2) for name in (FORM, "proto"))
    assert one.name == plain.name == "proto"
    changed = {"model.iterations": 1, "model.prototype_residual": "all", "train.weight_decay": 1e-5}
    assert one.overrides(ARGS) == plain.overrides(ARGS) | changed
    assert load_preset(one.name, "tvr", one.overrides(ARGS)).model["iterations"] == 1


def test_runs_lie_where_they_lay_and_those_of_each_form_apart():
    assert (
        learning.Plan(method="gmmformer_v2+ral", rate=3e-4, steps=750, seed=2).folder == "gmmformer_v2+ral-0.0003-750-2"
    )
    assert learning.Plan(method=FORM, rate=1e-3, steps=750, seed=0).folder == f"{FORM}-0.001-750-0"


@pytest.mark.parametrize("text", ["proto,", "proto,iterations", "proto,model.x=../y", "proto,model.x=[1", "a/b"])
def test_settings_that_cannot_be_part_of_a_name_are_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match="wanted METHOD or METHOD,KEY=VALUE"):
        learning.method_of(text)
    assert learning.method_of(FORM) == FORM


def test_a_single_rate_needs_no_search():
    assert learning.best_rate("proto", argparse.Namespace(rates=[1e-4])) == 1e-4  # nothing else is there to train with
