"""Encoders through `torch.compile` against the same encoders as they are."""

import shutil
from concurrent.futures import ProcessPoolExecutor

import pytest

from tests.refusals import refused
from tests.running.compile_child import compare, compile_without_compiler
from tests.training.test_resume import PROCESSES
from tests.training.train_child import train_here
from untrimmed.errors import ConfigError
from untrimmed.running.run import open_run


def in_a_process(function, *given, **named):
    with ProcessPoolExecutor(1, PROCESSES) as pool:
        return pool.submit(function, *given, **named).result()


@pytest.mark.check
@pytest.mark.parametrize(
    "method",
    [
        "ms_sl",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("gmmformer", "gmmformer_v2", "proto", "ms_sl+ral")),
    ],
)
def test_encoders_are_read_once_for_batches_of_all_sizes_and_keep_their_gradients(method):
    found = in_a_process(compare, method)
    assert found["worst"] < 1e-4
    assert 2 <= found["graphs"] <= 4  # of queries and of videos; again where two sizes of the first batch were equal
    assert "scaled_dot_product_attention" in found["operations"]
    assert found["without gradients"] == 0  # what is not trained is not compiled


@pytest.mark.check
@pytest.mark.parametrize(
    ("missing", "named"),
    [("g++", "RuntimeError"), ("Triton", "TritonMissing")],
)
def test_without_a_compiler_the_advice_is_to_go_without(missing, named):
    with refused(ConfigError, "torch.compile", "cpu", named, "--compile"):
        in_a_process(compile_without_compiler, missing)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on the CPU: no g++ here")
def test_a_compiled_run_follows_the_plain_one(data_root, small, tmp_path):
    losses = {}
    for compiled in (False, True):
        options = {"data": "tvr", "root": data_root, "out": tmp_path / str(compiled), "compile": compiled}
        settings = small | {"model.dropout": 0.0, "model.input_dropout": 0.0}
        in_a_process(train_here, "ms_sl", options | settings)
        run = open_run(options["out"])
        assert run.config.compile == compiled
        losses[compiled] = [entry["loss"] for entry in run.history]
    assert losses[True] == pytest.approx(losses[False], rel=1e-4)
