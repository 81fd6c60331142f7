"""The parity command: what it prints and how it exits."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from untrimmed.errors import FeatureError, UnknownNameError
from untrimmed.parity.__main__ import main
from untrimmed.parity.case import Case
from untrimmed.parity.compare import Tolerance, compare, tolerance_of
from untrimmed.parity.ms_sl import MSSLParity
from untrimmed.parity.registry import run_case

CASES = Path(__file__).parent / "cases"


def test_a_reproduced_case_exits_with_zero_and_prints_a_line_per_array(capsys):
    assert main([str(CASES / "ms-sl" / "preprocessing")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 7
    assert lines[0].startswith("expected/")
    assert "max |difference|" in lines[0]
    assert lines[-1] == "6 arrays, 0 past their tolerance"


def test_an_altered_number_makes_the_command_fail(tmp_path, capsys):
    case = tmp_path / "ms-sl" / "preprocessing"
    shutil.copytree(CASES / "ms-sl" / "preprocessing", case)
    with np.load(case / "expected.npz") as stored:
        arrays = dict(stored)
    arrays["l2_output"][3, 2] += 1e-4
    np.savez(case / "expected.npz", **arrays)
    assert main([str(case)]) == 1
    assert capsys.readouterr().out.count("FAIL") == 1


def test_an_array_that_is_not_produced_counts_as_a_failure(tmp_path):
    case = tmp_path / "ms-sl" / "preprocessing"
    shutil.copytree(CASES / "ms-sl" / "preprocessing", case)
    with np.load(case / "expected.npz") as stored:
        np.savez(case / "expected.npz", novelty=np.zeros(2), **stored)
    failed = [result for result in run_case(case) if not result.passed]
    assert [result.name for result in failed] == ["expected/novelty"]


def test_the_method_can_be_given_when_neither_settings_nor_folder_name_it(tmp_path):
    case = tmp_path / "somewhere"
    shutil.copytree(CASES / "gmmformer" / "gaussian-window", case)
    settings = json.loads((case / "config.json").read_text())
    del settings["method"]
    (case / "config.json").write_text(json.dumps(settings))
    assert all(result.passed for result in run_case(case, "gmmformer_v2"))
    with pytest.raises(UnknownNameError, match="no parity code for method"):
        run_case(case)


def test_a_folder_that_is_no_case_exits_with_two_and_one_line(tmp_path, capsys):
    assert main([str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "is not a case" in error


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda case: (case / "expected.npz").write_bytes(b"no"), "cannot be read as arrays"),
        (lambda case: (case / "config.json").write_text("{"), "not JSON"),
        (lambda case: (case / "config.json").write_text('{"case": "unheard-of"}'), "unknown kind"),
        (lambda case: (case / "batch.npz").unlink(), "no seq_lengths"),
    ],
)
def test_a_damaged_case_is_refused_with_its_file_named(tmp_path, break_it, message):
    case = tmp_path / "preprocessing"
    shutil.copytree(CASES / "ms-sl" / "preprocessing", case)
    break_it(case)
    with pytest.raises(FeatureError, match=message):
        run_case(case, "ms-sl")


def test_nan_on_one_side_never_passes():
    assert not compare("x", np.array([np.nan]), np.array([1.0]), Tolerance(1.0)).passed
    assert compare("x", np.array([np.nan]), np.array([np.nan]), Tolerance(0.0)).passed


def test_whole_numbers_are_compared_exactly():
    result = compare("x", np.array([1, 2, 4]), np.array([1, 2, 3]), Tolerance(10.0))
    assert not result.passed
    assert result.difference == 1


def test_no_limit_is_below_the_rounding_of_what_was_recorded():
    third = np.array([1 / 3])
    assert compare("x", third, third.astype(np.float32), Tolerance(1e-12)).passed
    assert not compare("x", third, third + 1e-8, Tolerance(1e-12)).passed
    assert not compare("x", third + 1e-6, third.astype(np.float32), Tolerance(1e-12)).passed


@pytest.mark.parametrize(
    ("kind", "settings", "scores", "raw", "weights"),
    [
        ("loss", {"hidden_size": 16}, 1e-6, 2e-5, 1e-5),
        ("loss", {"hidden_size": 8}, 1e-6, 2e-5, 1e-5),
        ("loss", {"hidden_size": 40}, 1e-6, 5e-5, 1e-5),
        ("optim", {"hidden_size": 16, "lr": 0.001}, 5e-6, 5e-5, 1e-5),
        ("optim", {"hidden_size": 16, "lr": 0.01}, 2.5e-5, 2.5e-4, 5e-5),
    ],
)
def test_limits_grow_with_width_and_rates_beyond_the_golden_data_only(kind, settings, scores, raw, weights, tmp_path):
    # eight updates at rates 0, 0.1, ... 0.7 of lr: 2.8 * 0.01 = 0.028 is five times 0.0056, the golden data's 0.0055
    config = {"t_total": 100, "lr_warmup_proportion": 0.1, "n_steps": 8} | settings | {"case": kind}
    np.savez(tmp_path / "expected.npz", nothing=np.zeros(1))
    rules = MSSLParity().rules(Case(tmp_path, "ms-sl", config))
    limits = [tolerance_of(name, rules).absolute for name in ("expected/clip_scores", "expected/clip_scores_raw")]
    assert limits == pytest.approx([scores, raw])
    assert tolerance_of("weights_final/query.weight", rules).absolute == pytest.approx(weights)
    assert tolerance_of("expected/lr_multiplier_per_step", rules).absolute == 1e-12
