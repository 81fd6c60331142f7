import argparse
import collections
import pickle
import sys
import types
import zipfile

import numpy
import pytest
import torch

from tests.bounded_memory import run_bounded
from tests.refusals import require_named
from untrimmed.errors import CheckpointError
from untrimmed.models.checkpoint_file import read_checkpoint

STATE = collections.OrderedDict(a=torch.arange(6.0).reshape(2, 3), b=torch.nn.Parameter(torch.ones(2).half()))


class _Mark:
    """Normal unpickling of an object of this class sets a mark."""

    touched = False

    def __reduce__(self):
        return (_touch, ())


def _touch():
    _Mark.touched = True


def _schedule_of_the_authors():
    """An object of a class that exists only while it is saved, like the classes in the released files."""
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
    tensors = read_checkpoint(checkpoint).tensors
    assert tensors.keys() == {"a", "b"}
    assert torch.equal(tensors["a"], STATE["a"])
    assert tensors["b"].dtype == torch.float16
    assert not tensors["b"].requires_grad
    assert not _Mark.touched


def test_the_entry_may_be_called_model_or_be_the_file_itself(tmp_path):
    for i, content in enumerate(({"model": STATE, "epoch": 1}, STATE)):
        path = tmp_path / f"{i}.ckpt"
        torch.save(content, path)
        assert torch.equal(read_checkpoint(path).tensors["a"], STATE["a"])


def test_views_and_shared_storage_keep_their_values(tmp_path):
    base = torch.arange(12.0).reshape(3, 4)
    torch.save({"state_dict": {"rows": base[1:], "turned": base.T, "whole": base}}, tmp_path / "v.ckpt")
    tensors = read_checkpoint(tmp_path / "v.ckpt").tensors
    assert torch.equal(tensors["rows"], base[1:])
    assert torch.equal(tensors["turned"], base.T)


def test_a_truncated_file_is_refused(checkpoint):
    checkpoint.write_bytes(checkpoint.read_bytes()[:-200])
    with pytest.raises(CheckpointError):
        read_checkpoint(checkpoint)


def test_files_that_are_not_checkpoints_are_refused(tmp_path):
    path = tmp_path / "x.ckpt"
    with pytest.raises(CheckpointError):
        read_checkpoint(path)
    path.write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(CheckpointError):
        read_checkpoint(path)
    torch.save({"epoch": 1}, path)
    with pytest.raises(CheckpointError):
        read_checkpoint(path)


class _Settings(dict):
    """A mapping with a class of its own, like EasyDict."""


def test_settings_and_results_come_out_of_a_mapping_of_any_class(tmp_path):
    config = _Settings(sft_factor=0.6, neg_factor=[0.15, 32, 1], window=torch.zeros(3), schedule=_Mark())
    results = [17.3, numpy.float64(39.0), torch.tensor(50.5), 87.4, 194.2]
    for number, protocol in enumerate((2, 4)):
        path = tmp_path / f"{number}.ckpt"
        torch.save(
            {"config": config, "epoch": 96, "model_val": results, "state_dict": STATE}, path, pickle_protocol=protocol
        )
        checkpoint = read_checkpoint(path)
        assert checkpoint.config == {
            "sft_factor": 0.6,
            "neg_factor": [0.15, 32, 1],
            "window": None,
            "schedule": None,
        }
        assert checkpoint.validation == pytest.approx((17.3, 39.0, 50.5, 87.4, 194.2))
        assert checkpoint.epoch == 96
    assert not _Mark.touched


def test_the_settings_of_a_namespace_come_out(tmp_path):
    torch.save({"model_cfg": argparse.Namespace(margin=0.1, name="x"), "model": STATE}, tmp_path / "model.ckpt")
    checkpoint = read_checkpoint(tmp_path / "model.ckpt")
    assert checkpoint.config == {"margin": 0.1, "name": "x"}
    assert checkpoint.validation == ()
    assert checkpoint.epoch is None


def write_checkpoint(path, pickled, storages=(), **options):
    """Write a zip file with this pickle and these storages."""
    with zipfile.ZipFile(path, "w", **options) as archive:
        archive.writestr("archive/data.pkl", pickled)
        for key, raw in storages:
            archive.writestr(f"archive/data/{key}", raw)


def pickled_tensor(shape, stride, *, count=4):
    """The pickle of {"state_dict": {"a": a tensor of storage "0"}}."""
    numbers = "".join(f"L{number}L\n" for number in shape).encode()
    strides = "".join(f"L{number}L\n" for number in stride).encode()
    storage = b"(Vstorage\nctorch\nFloatStorage\nV0\nVcpu\n" + f"L{count}L\n".encode() + b"tQ"
    tensor = b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"I0\n(" + numbers + b"t(" + strides + b"tI00\n}tR"
    return b"}(Vstate_dict\n}(Va\n" + tensor + b"uu."


def zeros_in_a_deflated_member(path):
    write_checkpoint(
        path, pickled_tensor([4], [1]), [("0", bytes(2**29))], compression=zipfile.ZIP_DEFLATED, compresslevel=1
    )


def huge_memo_index(path):
    write_checkpoint(path, b"\x80\x02}r\xff\xff\xff\x7f.")


def stride_zero(path):
    write_checkpoint(path, pickled_tensor([100_000, 100_000], [0, 0]), [("0", bytes(16))])


def many_tensors_of_one_storage(path):
    shared = torch.zeros(250_000)
    torch.save({"state_dict": {f"t{number}": shared for number in range(2_000)}}, path)


def billions_of_settings(path):
    nested = [1]
    for _ in range(12):
        nested = [nested] * 10
    torch.save({"config": {"nested": nested}, "state_dict": STATE}, path)


def a_list_that_contains_itself(path):
    settings = [0] * 9
    settings.append(settings)
    settings.append(settings)
    torch.save({"config": {"nested": settings}, "state_dict": STATE}, path)


def millions_of_lists(path):
    write_checkpoint(path, b"\x80\x02" + b"]" * 15_000_000 + b".")


def a_huge_pickle(path):
    write_checkpoint(path, b"\x80\x02" + bytes(2**25))


def overlapping_members(path):
    """Two names in the directory for one member."""
    write_checkpoint(path, pickled_tensor([4], [1]), [("0", bytes(2**20)), ("1", b"")])
    raw = path.read_bytes()
    entries = raw.index(b"PK\x01\x02")
    second = raw.index(b"PK\x01\x02", entries + 4)
    third = raw.index(b"PK\x01\x02", second + 4)
    end = raw.index(b"PK\x05\x06")
    entry = raw[second:third]
    directory = raw[entries:second] + entry * 600
    tail = bytearray(raw[end:])
    tail[8:12] = (601).to_bytes(2, "little") * 2
    tail[12:16] = len(directory).to_bytes(4, "little")
    path.write_bytes(raw[:entries] + directory + tail)


def an_extension_code(path):
    write_checkpoint(path, b"\x80\x02\x82\x01.")


def a_nested_key(path):
    nested = b")" + b"\x85" * 100_000
    write_checkpoint(path, b"\x80\x02}(X\x0a\x00\x00\x00state_dict}(" + nested + b"K\x01uu.")


def a_huge_number(path):
    write_checkpoint(path, b"\x80\x02}(X\x06\x00\x00\x00configL" + b"9" * 100_000 + b"L\nu.")


def a_name_of_two_lines(path):
    torch.save({"state_dict": {"a\nb": torch.zeros(2)}}, path)


HOSTILE = (
    a_name_of_two_lines,
    zeros_in_a_deflated_member,
    huge_memo_index,
    stride_zero,
    many_tensors_of_one_storage,
    billions_of_settings,
    a_list_that_contains_itself,
    millions_of_lists,
    a_huge_pickle,
    overlapping_members,
    an_extension_code,
    a_nested_key,
    a_huge_number,
)


def test_hostile_files_end_in_one_line_with_little_memory(tmp_path):
    paths = [tmp_path / f"{write.__name__}.ckpt" for write in HOSTILE]
    for write, path in zip(HOSTILE, paths, strict=True):
        write(path)
    outcomes = run_bounded("untrimmed.models.checkpoint_file:read_checkpoint", [[path] for path in paths])
    for path, outcome in zip(paths, outcomes, strict=True):
        assert outcome["outcome"] == "CheckpointError", (path.name, outcome)
        require_named(outcome["message"], str(path))
        assert outcome["growth"] < 2 * path.stat().st_size + 200 * 2**20, (path.name, outcome)
