"""The parity command: its output and its exit status."""

import dataclasses
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from untrimmed.errors import FeatureError, UnknownNameError
from untrimmed.models.gmmformer import GMMFormer
from untrimmed.parity.__main__ import main
from untrimmed.parity.case import Case, load_case
from untrimmed.parity.compare import RULES, Tolerance, compare, tolerance_of
from untrimmed.parity.gmmformer import GMMFormerV2Parity
from untrimmed.parity.registry import run_case

CASES = Path(__file__).parent / "cases"


def test_a_reproduced_case_exits_with_zero_and_prints_a_line_per_array(capsys):
    assert main([str(CASES / "ms-sl" / "preprocessing")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 7
    assert lines[0].startswith("expected/")
    assert lines[-1].startswith("6 ")


def test_a_wrong_folder_is_refused_with_the_place_of_the_cases(capsys):
    assert main(["nowhere"]) == 2
    assert "e.g. tests/parity/cases/ms-sl/loss" in capsys.readouterr().err


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
    with pytest.raises(UnknownNameError):
        run_case(case)


def test_a_folder_that_is_no_case_exits_with_two_and_one_line(tmp_path, capsys):
    assert main([str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert [error.count("\n"), str(tmp_path) in error] == [1, True]


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda case: (case / "expected.npz").write_bytes(b"no"), r"expected\.npz"),
        (lambda case: (case / "config.json").write_text("{"), r"config\.json"),
        (lambda case: (case / "config.json").write_text('{"case": "unheard-of"}'), "unheard-of"),
        (lambda case: (case / "batch.npz").unlink(), "seq_lengths"),
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


def test_raw_scores_are_held_to_the_stated_limit_or_to_eight_roundings_of_the_largest():
    rule = tolerance_of("expected/clip_scores_raw", RULES)
    assert rule.of(np.array([20.0, -3.0], dtype=np.float32)) == 2e-5
    assert rule.of(np.array([400.0], dtype=np.float32)) == pytest.approx(8 * 400 * 2**-23)


def test_rounding_widens_a_limit_up_to_a_bound_and_is_printed():
    theirs, limit = np.zeros(3), Tolerance(1e-6)
    ours = np.array([0.0, 1.4e-6, 0.0])
    assert not compare("x", ours, theirs, limit).passed
    assert not compare("x", ours, theirs, limit, rounding=1e-7, widest=2.0).passed
    wide = compare("x", ours, theirs, limit, rounding=5e-7, widest=2.0)
    assert wide.passed
    assert "5e-07" in str(wide)
    assert not compare("x", 10 * ours, theirs, limit, rounding=1e-2, widest=2.0).passed
    assert "rounding" not in str(compare("x", ours, theirs, Tolerance(1e-5), rounding=5e-7, widest=2.0))


def test_half_precision_fails_although_its_rounding_is_measured(monkeypatch):
    """Otherwise a network that computes in fewer bits would raise its own tolerance."""
    encode = GMMFormer.compute_video_vectors

    def coarse(model, videos):
        made = encode(model, videos)
        if made.clips.dtype == torch.float64:
            return made
        return dataclasses.replace(made, clips=made.clips.bfloat16().float())

    monkeypatch.setattr(GMMFormer, "compute_video_vectors", coarse)
    failed = {result.name for result in run_case(CASES / "gmmformer" / "forward-masked") if not result.passed}
    assert {"expected/encoded_clips", "expected/clip_scores", "expected/clip_scores_raw"} <= failed


def test_only_elements_whose_gradient_is_rounding_are_left_out_of_final_weights(tmp_path):
    schedule = {"case": "optim", "lr": 0.001, "t_total": 400, "lr_warmup_proportion": 0.01, "n_steps": 8}
    np.savez(tmp_path / "expected.npz", nothing=np.zeros(1))
    case = Case(tmp_path, "gmmformer-v2", schedule)
    ours, theirs = np.zeros(4), np.array([1e-4, 1e-4, 0.1, 0.0])
    null = {"null_gradient/unit.bias": np.array([True, False, True, False])}
    kept, recorded = GMMFormerV2Parity().align(case, "weights_final/unit.bias", ours, theirs, null)
    assert recorded.tolist() == [1e-4, 0.1, 0.0]  # eight updates cannot change a weight by 0.1
    assert kept.shape == recorded.shape


def test_bias_units_that_cancel_are_found_by_their_gradient_in_double_precision():
    """In this case the ReLU after unit 11 is active for every sample and layer.

    Its bias then shifts all weights of the consolidation equally, and the softmax cancels the shift. The released
    update of the bias is only rounding noise.
    """
    exact = GMMFormerV2Parity().exact(load_case(CASES / "gmmformer-v2" / "optim"))
    assert np.flatnonzero(exact["null_gradient/clip_encoder.layer1.bias"]).tolist() == [11]
    assert exact["null_gradient/query_encoder.self.key.bias"].all()
    assert not exact["null_gradient/query_pos_embed.position_embeddings.weight"].any()  # unused rows: exactly zero


def altered(name, tmp_path, change):
    """A copy of a case with other inputs."""
    case = tmp_path / Path(name).parent / "altered"
    shutil.copytree(CASES / name, case)
    with np.load(case / "batch.npz") as stored:
        arrays = dict(stored)
    change(arrays)
    np.savez(case / "batch.npz", **arrays)
    return case


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda arrays: arrays.pop("text_labels"), "text_labels.* 13 "),
        (lambda arrays: arrays.update(text_labels=arrays["text_labels"] + 9), "text_labels.* 14"),
        (lambda arrays: arrays.update(text_labels=arrays["text_labels"][1:]), r"text_labels.*\(12,\)"),
        (lambda arrays: arrays.update(videos_mask=arrays["videos_mask"][:, 1:]), r"videos_mask.*\(6, 127\)"),
        (lambda arrays: arrays.update(text_feat=arrays["text_feat"][None]), "text_feat"),
        (lambda arrays: arrays.update(text_mask=np.array(["a"])), "text_mask"),
        (lambda arrays: arrays.update(clip_video_features=arrays["clip_video_features"][:3]), "clip_video_features"),
    ],
)
def test_inputs_that_do_not_fit_each_other_end_in_one_line(change, message, tmp_path, capsys):
    assert main([str(altered("gmmformer/loss", tmp_path, change))]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert re.search(f"batch.npz: .*{message}", error)


def test_settings_that_do_not_fit_the_method_end_in_one_line(tmp_path, capsys):
    case = altered("gmmformer/loss", tmp_path, lambda arrays: None)
    settings = json.loads((case / "config.json").read_text())
    (case / "config.json").write_text(json.dumps(settings | {"loss_factor": 3}))
    assert main([str(case)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "gmmformer" in error


@pytest.mark.parametrize("kept_bytes", [0, 10, 5000])
def test_a_truncated_file_is_named(kept_bytes, tmp_path, capsys):
    case = altered("gmmformer/loss", tmp_path, lambda arrays: None)
    content = (case / "weights.npz").read_bytes()
    (case / "weights.npz").write_bytes(content[:kept_bytes])
    assert main([str(case)]) == 2
    assert "weights.npz" in capsys.readouterr().err
