"""A module outside the package with a method, an attachment, a loss and a layout works with all commands."""

import json

import pytest

from tests import outside_code
from tests.refusals import require_named

METHOD = "diary_frames+diary_bias+diary_short"


@pytest.fixture
def world(tmp_path, monkeypatch):
    with outside_code.written(tmp_path, monkeypatch) as folder:
        yield folder


@pytest.fixture
def anew(run):
    """A function that runs a command as in a new process."""

    def type_it(*words):
        outside_code.forget()
        code, out, err = run(*words)
        assert code == 0, err
        return out + err

    return type_it


@pytest.fixture
def trained(world, anew):
    code, data = world / "code", ("--data", "mine", "--root", world / "data")
    anew("train", METHOD, *data, "--out", world / "run", "--preset", code / "diary.yaml", "--import", code / "diary.py")
    return world / "run"


def test_a_run_with_an_imported_method_is_used_without_naming_the_module_again(trained, anew, videos, tmp_path):
    report = anew("evaluate", trained)
    assert METHOD in report
    anew("plot", "moment-ratio", trained, "-o", tmp_path / "ratio.svg")
    assert (tmp_path / "ratio.svg").is_file()
    anew("index", videos)
    assert "diary_frames" in anew("index", "--model", trained)
    assert "flag.mp4" in anew("search", "red")


def test_names_of_a_module_are_known_with_the_import_option(world, anew):
    listed = json.loads(anew("models", "--json", "--import", world / "code" / "diary.py"))
    assert listed["methods"]["diary_frames"]["paper"] == "Diary: the mean word against the best frame."
    assert {"diary_bias", "diary_short"} <= listed["attachments"].keys()
    data = ("mine", "--root", world / "data", "--import", world / "code" / "diary.py")
    anew("data", "check", *data)
    assert json.loads(anew("data", "describe", *data, "--json"))[0]["captions"] == 8
    pages = anew("data", "prepare", "pages", "--annotations", world, "--out", world / "out", *data[3:])
    assert "Pages" in pages


def test_a_module_that_has_changed_can_be_named_to_doctor(trained, world, run):
    file = world / "code" / "diary.py"
    file.write_text(file.read_text() + "\n# more\n")
    outside_code.forget()
    _, out, _ = run("doctor", "--model", trained)
    assert f"--import {file}" in " ".join(out.split())
    code, out, _ = run("doctor", "--model", trained, "--import", file)
    assert (code, METHOD in out) == (0, True)


def test_a_method_without_a_preset_needs_only_weights(world, run, refusal):
    data = ("--data", "mine", "--root", world / "data", "--import", world / "code" / "diary.py")
    train = ("train", "diary_frames", *data, "--out", world / "run", "model.dim=8", "train.epochs=1")
    assert "weights.nce" in refusal(*train)
    assert run(*train, "weights.nce=1.0")[0] == 0


@pytest.mark.parametrize("method", ["diary_frames", "ms_sl+diary_bias"])
def test_an_unknown_method_or_attachment_leads_to_the_import_option(method, world, refusal):
    outside_code.forget()
    train = ("train", method, "--data", "mine", "--root", world / "data", "--out", world / "run")
    assert "--import" in refusal(*train)
    assert "--import" not in refusal(*train, "--import", world / "code" / "diary_losses.py")


SPREAD = """
from dataclasses import dataclass
from torch import nn
from untrimmed.models.attachment import AttachedLoss, AttachmentConfig
from untrimmed.models.registry import register

{above}
class Spread({base}):
    training_defaults = {{"weights": {{"{weight}": 0.1}}}}

    @dataclass(frozen=True, kw_only=True)
    class Config(AttachmentConfig):
        margin: float = 0.1

    def term(self, batch, encoded):
        return 0
"""
REGISTER = '@register("diary_spread")'


@pytest.mark.parametrize(
    ("above", "base", "weight", "setting", "named"),
    [
        (REGISTER, "nn.Module", "diary_spread", "train.epochs=1", ("Spread", "AttachedLoss")),
        ("", "AttachedLoss", "diary_spread", "train.epochs=1", ("diary_spread.py", '@register("diary_spread")')),
        (REGISTER, "AttachedLoss", "diary_spred", "train.epochs=1", ("weights.diary_spread", "weights.diary_spred")),
        (REGISTER, "AttachedLoss", "diary_spread", "model.diary_spread.margin=1", ("losses.diary_spread",)),
        (REGISTER, "AttachedLoss", "diary_spread", "diary_spread.margin=1", ("losses.diary_spread.margin",)),
        (REGISTER, "AttachedLoss", "diary_spread", "trian.epochs=1", ("trian.epochs", "train")),
        (REGISTER, "AttachedLoss", "diary_spread", "ms_sl", ("ms_sl", "KEY=VALUE")),
        (REGISTER, "AttachedLoss", "diary_spread", "--epochs=1", ("epochs", "train.epochs=30")),
    ],
)
def test_a_mistake_in_a_loss_or_its_settings_names_the_remedy(above, base, weight, setting, named, world, run):
    outside_code.forget()
    file = world / "diary_spread.py"
    file.write_text(SPREAD.format(above=above, base=base, weight=weight))
    data = ("--data", "mine", "--root", world / "data", "--out", world / "run", "--import", file)
    code, _, err = run("train", "ms_sl+diary_spread", *data, setting)
    assert code == 2
    require_named(" ".join(err.replace("│", " ").split()), *named)


def test_a_setting_in_the_place_of_the_method_is_named(world, refusal):
    require_named(
        refusal("train", "model.dim=8", "--data", "mine", "--root", world / "data").strip(), "model.dim=8", "METHOD"
    )


def test_a_missing_file_in_outside_code_keeps_its_traceback(world, typed):
    code = world / "code" / "late.py"
    code.write_text("def late(progress):\n    if progress.epoch:\n        open('/nowhere/negatives.npy')\n")
    data = ("--data", "mine", "--root", world / "data", "--import", world / "code" / "diary.py")
    train = ("train", "diary_frames", *data, "--out", world / "run", "model.dim=8", "train.epochs=2", "weights.nce=1.0")
    with pytest.raises(FileNotFoundError) as stop:
        typed(*train, "--callback", f"{code}:late")
    assert "late failed" in stop.value.__notes__[-1]


def test_a_study_does_not_reuse_runs_of_other_code(world, run, refusal):
    file = world / "code" / "diary.py"
    row = "diary_frames,weights.nce=1.0,model.dim=8"
    data = ("--data", "mine", "--root", world / "data", "--import", file)
    study = ("study", row, *data, "--out", world / "study", "--steps", "2", "--seeds", "1", "--rates", "1e-3")
    outside_code.forget()
    code, _, err = run(*study)
    assert code == 0, err
    outside_code.forget()
    assert run(*study)[0] == 0
    file.write_text(file.read_text() + "\n# another formula\n")
    outside_code.forget()
    assert "diary.py" in refusal(*study)
