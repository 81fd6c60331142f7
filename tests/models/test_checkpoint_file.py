import collections
import pickle
import sys
import types

import pytest
import torch

from untrimmed.errors import CheckpointError
from untrimmed.models.checkpoint_file import read_checkpoint_tensors

STATE = collections.OrderedDict(a=torch.arange(6.0).reshape(2, 3), b=torch.nn.Parameter(torch.ones(2).half()))


class _Mark:
    """Unpickling this by the usual means would set a mark."""

    touched = False

    def __reduce__(self):
        return (_touch, ())


def _touch():
    _Mark.touched = True


def _schedule_of_the_authors():
    """An object of a class that exists while saving and not while loading, as in the released files."""
    module = types.ModuleType("Opts.optimization")
    schedule = type("WarmupLinearSchedule", (), {"__module__": "Opts.optimization"})
    schedule.__qualname__ = "WarmupLinearSchedule"
    module.WarmupLinearSchedule = schedule
    sys.modules["Opts"], sys.modules["Opts.optimization"] = types.ModuleType("Opts"), module
    made = schedule()
    made.warmup = 0.01
    return made


@pytest.fixture
def checkpoint(tmp_path):
    path = tmp_path / "model.ckpt"
    optimizer = {"param_groups": [{"schedule": _schedule_of_the_authors(), "mark": _Mark()}]}
    torch.save({"config": {"lr": 0.1}, "epoch": 3, "state_dict": STATE, "optimizer": optimizer}, path)
    for name in ("Opts", "Opts.optimization"):
        del sys.modules[name]
    return path


def test_tensors_are_read_and_no_pickled_code_is_executed(checkpoint):
    tensors = read_checkpoint_tensors(checkpoint)
    assert tensors.keys() == {"a", "b"}
    assert torch.equal(tensors["a"], STATE["a"])
    assert tensors["b"].dtype == torch.float16
    assert not tensors["b"].requires_grad
    assert not _Mark.touched


def test_the_entry_may_be_called_model_or_be_the_file_itself(tmp_path):
    for i, content in enumerate(({"model": STATE, "epoch": 1}, STATE)):
        path = tmp_path / f"{i}.ckpt"
        torch.save(content, path)
        assert torch.equal(read_checkpoint_tensors(path)["a"], STATE["a"])


def test_views_and_shared_storage_keep_their_values(tmp_path):
    base = torch.arange(12.0).reshape(3, 4)
    torch.save({"state_dict": {"rows": base[1:], "turned": base.T, "whole": base}}, tmp_path / "v.ckpt")
    tensors = read_checkpoint_tensors(tmp_path / "v.ckpt")
    assert torch.equal(tensors["rows"], base[1:])
    assert torch.equal(tensors["turned"], base.T)


def test_a_truncated_file_is_refused(checkpoint):
    checkpoint.write_bytes(checkpoint.read_bytes()[:-200])
    with pytest.raises(CheckpointError):
        read_checkpoint_tensors(checkpoint)


def test_files_that_are_not_checkpoints_are_refused(tmp_path):
    path = tmp_path / "x.ckpt"
    with pytest.raises(CheckpointError):
        read_checkpoint_tensors(path)
    path.write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(CheckpointError):
        read_checkpoint_tensors(path)
    torch.save({"epoch": 1}, path)
    with pytest.raises(CheckpointError):
        read_checkpoint_tensors(path)
