"""Mistakes are found before the first step, and a run that ends before it saves anything leaves no folder."""

import pytest
import torch

from tests.refusals import refused, require_named
from untrimmed.errors import ConfigError
from untrimmed.models.ms_sl import MSSL
from untrimmed.running import memory
from untrimmed.scores.score import Score, Scores
from untrimmed.training import loop as loop_module
from untrimmed.training.train import train


@pytest.fixture
def begin(data_root, small, tmp_path):
    """A function that trains in one folder."""

    def run(method="ms_sl", **settings):
        return train(method, data="tvr", root=data_root, out=tmp_path / "run", **small | settings)

    return run


def test_a_branch_that_only_validation_reads_is_checked_before_the_first_step(begin, tmp_path, monkeypatch):
    def compute_scores(self, queries, videos):
        branch = "clip" if self.training else "clips"
        return Scores({branch: Score(queries.sentence @ videos.clips[:, 0].T)}, {"clip": 1.0})

    monkeypatch.setattr(MSSL, "compute_scores", compute_scores)
    with refused(ConfigError, "MSSL.compute_scores", "'clip'", "clips"):
        begin()
    assert not (tmp_path / "run").exists()


def test_scores_that_are_not_finite_are_refused_before_the_first_step(begin, tmp_path, monkeypatch):
    def compute_scores(self, queries, videos):
        return Scores({"clip": Score(queries.sentence @ videos.clips[:, 0].T / 0.0)}, {"clip": 1.0})

    monkeypatch.setattr(MSSL, "compute_scores", compute_scores)
    with refused(ConfigError, "ms_sl", "compute_scores"):
        begin()
    assert not (tmp_path / "run").exists()


def test_a_loss_without_a_parameter_is_refused(begin, monkeypatch):
    whole = MSSL.compute_losses
    detached = lambda self, step: {name: term.detach() for name, term in whole(self, step).items()}  # noqa: E731
    monkeypatch.setattr(MSSL, "compute_losses", detached)
    with refused(ConfigError, "ms_sl", "parameter"):
        begin()


def failing_step(error):
    def fail(self):
        raise error

    return fail


@pytest.mark.parametrize("error", [ZeroDivisionError("boom"), KeyboardInterrupt()])
def test_a_crash_before_anything_is_saved_frees_the_folder(begin, tmp_path, monkeypatch, error):
    with monkeypatch.context() as patch:
        patch.setattr(loop_module.TrainingLoop, "_update", failing_step(error))
        with pytest.raises(type(error)):
            begin()
    assert not (tmp_path / "run").exists()
    assert begin(**{"train.learning_rate": 1e-3}).is_finished


def test_a_crash_after_the_first_epoch_keeps_the_run(begin, tmp_path, monkeypatch):
    def stop(progress):
        if progress.epoch == 2:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        begin(callback=stop)
    require_named(caught.value.__notes__[-1], "stop", "'training'", "continue")
    with refused(ConfigError, "train.learning_rate", "(out)"):
        begin(**{"train.learning_rate": 1e-3})
    assert begin().is_finished


def test_a_hook_that_fails_in_training_is_named_below_its_traceback(begin, monkeypatch):
    whole = MSSL.compute_losses

    def compute_losses(self, step):
        return whole(self, step) if step.is_rehearsal or step.epoch == 0 else {}["nce"]

    monkeypatch.setattr(MSSL, "compute_losses", compute_losses)
    with pytest.raises(KeyError) as caught:
        begin()
    require_named(caught.value.__notes__[-1], "compute_losses", "epoch 2", "continue")


def test_a_term_that_is_not_a_scalar_in_training_is_named(begin, monkeypatch):
    whole = MSSL.compute_losses

    def compute_losses(self, step):
        terms = whole(self, step)
        return terms if step.is_rehearsal else {name: value.repeat(3) for name, value in terms.items()}

    monkeypatch.setattr(MSSL, "compute_losses", compute_losses)
    with refused(ConfigError, "[3]", "mean()"):
        begin()


def test_a_folder_of_a_killed_run_is_reported_as_without_a_saved_state(begin, tmp_path):
    begin()
    for file in (tmp_path / "run").iterdir():
        if file.name != "config.yaml":
            file.unlink()
    with refused(ConfigError, "train.learning_rate", "delete"):
        begin(**{"train.learning_rate": 1e-3})


@pytest.mark.parametrize(
    ("error", "more"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 has"), "3.0"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 2147483648 bytes."), "2.0"),
        (MemoryError("Unable to allocate 4.00 GiB for an array"), "4.0"),
    ],
)
def test_too_little_memory_names_the_batch_size_and_what_is_needed(begin, monkeypatch, error, more):
    monkeypatch.setattr(memory, "_used_and_total", lambda device: (5 * 2**30, 6 * 2**30))
    monkeypatch.setattr(loop_module.TrainingLoop, "_update", failing_step(error))
    with refused(ConfigError, "train.batch_size", "4", "cpu", "6.0", "5.0", more):
        begin()


def test_too_little_memory_for_validation_names_its_batch_sizes(begin, monkeypatch):
    monkeypatch.setattr(loop_module.TrainingLoop, "_figures", lambda self: torch.empty(2**60))
    with refused(ConfigError, "train.eval_video_batch", "train.eval_query_batch", "200", "50"):
        begin()
