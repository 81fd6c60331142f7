"""Encoders with `torch.compile`, compared with the same encoders without it."""

import shutil
from concurrent.futures import ProcessPoolExecutor

import pytest

from tests.refusals import refused
from tests.running.compile_child import compare, compile_without_compiler
from tests.training.test_resume import PROCESSES
from tests.training.train_child import train_here
from untrimmed.errors import ConfigError
from untrimmed.running.run import open_run


def in_a_process(function, *args, **options):
    with ProcessPoolExecutor(1, PROCESSES) as pool:
        return pool.submit(function, *args, **options).result()


@pytest.mark.check
@pytest.mark.parametrize(
    "method",
    [
        "ms_sl",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("gmmformer", "gmmformer_v2", "proto", "ms_sl+ral")),
    ],
)
def test_encoders_are_compiled_once_for_all_batch_sizes_with_equal_gradients(method):
    result = in_a_process(compare, method)
    assert result["worst"] < 1e-4
    assert 2 <= result["graphs"] <= 4  # queries and videos; again if two sizes of the first batch were equal
    assert "scaled_dot_product_attention" in result["operations"]
    assert result["without gradients"] == 0  # without gradients nothing is compiled


@pytest.mark.check
@pytest.mark.parametrize(
    ("missing", "name"),
    [("g++", "RuntimeError"), ("Triton", "TritonMissing")],
)
def test_a_missing_compiler_is_refused_with_advice(missing, name):
    with refused(ConfigError, "torch.compile", "cpu", name, "(compile)"):
        in_a_process(compile_without_compiler, missing)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on the CPU: no g++ here")
def test_a_compiled_run_has_the_results_of_an_uncompiled_one(data_root, small, tmp_path):
    losses = {}
    for compiled in (False, True):
        options = {"data": "tvr", "root": data_root, "out": tmp_path / str(compiled), "compile": compiled}
        settings = small | {"model.dropout": 0.0, "model.input_dropout": 0.0}
        in_a_process(train_here, "ms_sl", options | settings)
        run = open_run(options["out"])
        assert run.config.compile == compiled
        losses[compiled] = [entry["loss"] for entry in run.history]
    assert losses[True] == pytest.approx(losses[False], rel=1e-4)
