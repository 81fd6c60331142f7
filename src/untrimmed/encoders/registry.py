"""The named encoders, and functions that load and test an encoder.

Importing this module is fast; torch and transformers are imported only when an encoder is loaded.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import numpy as np

from untrimmed.devices import check_device
from untrimmed.encoders.encoder import ClipEncoder, Encoder
from untrimmed.encoders.features.kinds import CLIP, DEFAULT_CLIP, FeatureSpec, NetworkSpec, is_feature_name, read_spec
from untrimmed.encoders.hub.weights import is_hub_id, locate, missing_packages
from untrimmed.errors import EncoderError, UnknownNameError, install_advice
from untrimmed.precision import BUILTIN_PRODUCTS, Precision

DEFAULT = "siglip2-base"
BUILTIN = "builtin"
HUB_TIMEOUT_S = 5.0  # if the hub has not answered by then, it counts as unreachable

_SELF_TEST_SIDE = 96
# In the self-test, unit vectors of two different inputs must have at least this distance. Vectors of equal inputs
# differ by 1e-7 in float32 and by 0 in bfloat16.
_SELF_TEST_DISTANCE = 1e-3


@dataclass(frozen=True)
class EncoderCard:
    """Facts about a named encoder that are known before its weights are loaded.

    Attributes:
        hub_id: None for `builtin`, whose weights come with installed packages.
        width: The width of a frame vector.
        image_px: The side of the input picture in pixels.
        parameters_m: The number of parameters in millions, image and text together. A download has 4 bytes per
            parameter.
    """

    name: str
    hub_id: str | None
    licence: str
    width: int
    image_px: int
    parameters_m: int
    note: str


_CARDS = (
    EncoderCard(DEFAULT, "google/siglip2-base-patch16-224", "Apache-2.0", 768, 224, 375, "the default; many languages"),
    EncoderCard("siglip2-large", "google/siglip2-large-patch16-256", "Apache-2.0", 1024, 256, 882, "many languages"),
    EncoderCard(
        "siglip2-so400m",
        "google/siglip2-so400m-patch14-384",
        "Apache-2.0",
        1152,
        384,
        1136,
        "best results; needs a GPU",
    ),
    EncoderCard("clip-b32", "laion/CLIP-ViT-B-32-laion2B-s34B-b79K", "MIT", 512, 224, 151, "quickest; English"),
    EncoderCard("clip-b16", "laion/CLIP-ViT-B-16-laion2B-s34B-b88K", "MIT", 512, 224, 150, "English"),
    EncoderCard("clip-l14", "openai/clip-vit-large-patch14", "MIT", 768, 224, 428, "English; the papers' CLIP"),
    EncoderCard("chinese-clip-b16", "OFA-Sys/chinese-clip-vit-base-patch16", "MIT", 512, 224, 188, "Chinese"),
    EncoderCard(BUILTIN, None, "Apache-2.0", 397, 224, 27, "weights come with the extra 'offline'; English"),
)
ENCODERS: Mapping[str, EncoderCard] = MappingProxyType({card.name: card for card in _CARDS})
_FETCH = f"`hf download {ENCODERS[DEFAULT].hub_id}`, then index into a new --library"


@dataclass(frozen=True)
class LoadedEncoder:
    """A loaded encoder and its number format. `notice` is a text for the user if a fallback was loaded."""

    encoder: Encoder
    notice: str | None
    products: str = "float32"  # number format of matrix products
    why: str = "the encoder has no other"  # reason for this number format


def load_encoder(
    name: str | None = None,
    *,
    device: str = "auto",
    precision: Precision = "auto",
    fallback: bool = True,
    images: bool = True,
) -> LoadedEncoder:
    """Load and test an encoder.

    Args:
        name: A short name (see `ENCODERS`), a hub id, a local folder, the `name` of an encoder, or a name such as
            `resnet152+i3d=FILE+roberta` for benchmark features (`untrimmed.encoders.features.kinds`). None is the
            default encoder.
        fallback: Whether `builtin` replaces the default encoder, with a notice, if torch or transformers is missing, or
            if the weights are not cached and the hub does not answer. A named encoder is never replaced.
        images: Whether to test the image part too. A search needs only the text part, so the image part may be loaded
            later.

    Raises:
        UnknownNameError: The name is unknown.
        ConfigError: The device does not exist.
        EncoderError: The encoder cannot be loaded, fails its self-test, or does not support the precision.
    """
    check_device(device, mps=True)
    if name is None:
        loaded = _load_default(device=device, precision=precision, fallback=fallback)
    elif name == BUILTIN:
        loaded = _load_builtin(precision, None)
    elif is_feature_name(name):
        loaded = _load_features(_feature_spec(name), device=device, precision=precision)
    else:
        loaded = _load_hub(_source(name), device=device, precision=precision)
    self_test(loaded.encoder, images=images)
    return loaded


def self_test(encoder: Encoder, *, images: bool = True) -> None:
    """Check that an encoder distinguishes two images and two texts, and that its vectors have the right shape.

    Raises:
        EncoderError: A check fails.
    """
    features = encoder.encode_texts(["a dog runs along the beach", "three people sit in a kitchen"])
    if images:
        _check_vectors(encoder, encoder.encode_frames(_two_images()), "images")
    if not isinstance(encoder, ClipEncoder):
        _check_vectors(encoder, np.stack([text.sentence for text in features]), "texts")
    for text in features:
        if text.words.shape != (len(text.tokens), encoder.word_dim) or not np.isfinite(text.words).all():
            raise EncoderError(
                f"{encoder.name}: the self-test failed: word vectors of {text.text!r} are of shape {text.words.shape}, "
                f"expected {(len(text.tokens), encoder.word_dim)} and finite; choose another encoder"
            )


def _load_default(*, device: str, precision: Precision, fallback: bool) -> LoadedEncoder:
    source = _source(DEFAULT)
    try:
        folder = locate(source, timeout_s=HUB_TIMEOUT_S)
    except EncoderError as error:
        if not fallback:
            raise
        try:
            why = str(error).partition("; ")[0].partition(" (")[0].replace(source, DEFAULT)
            better = f"{install_advice('hub')}, {_FETCH}" if missing_packages() else _FETCH
            return _load_builtin(precision, f"encoder 'builtin' in use ({why}); for better results: {better}")
        except EncoderError as builtin_error:
            raise EncoderError(f"{error}; the encoder 'builtin' cannot replace it: {builtin_error}") from error
    return _load_hub(folder, name=source, device=device, precision=precision)


def _load_hub(
    source: str | Path, *, name: str | None = None, digest: str | None = None, device: str, precision: Precision
) -> LoadedEncoder:
    try:
        from untrimmed.encoders.hub.encoder import TransformersEncoder
    except ImportError as error:
        raise EncoderError(f"{source}: {error}; {install_advice('hub')}") from error
    encoder = TransformersEncoder.load(
        source, name=name, digest=digest, device=device, precision=precision, timeout_s=HUB_TIMEOUT_S
    )
    return LoadedEncoder(encoder, None, encoder.number_format.name, encoder.number_format.reason)


def _feature_spec(name: str) -> FeatureSpec:
    """Return the networks in a name, with the short name of a CLIP model replaced by the model's hub id."""

    def resolved(part: NetworkSpec) -> NetworkSpec:
        return replace(part, weights=_source(part.weights or DEFAULT_CLIP)) if part.kind == CLIP else part

    return FeatureSpec(tuple(map(resolved, read_spec(name).parts)))


def _load_features(spec: FeatureSpec, *, device: str, precision: Precision) -> LoadedEncoder:
    """Load an encoder of benchmark features.

    CLIP alone is loaded as an ordinary encoder, which can search without training.
    """
    try:
        from untrimmed.encoders.features.encoder import FeatureEncoder
        from untrimmed.encoders.features.weights import find_weights
    except ImportError as error:
        raise EncoderError(f"{spec}: {error}; {install_advice('hub')}") from error
    if spec.is_clip:
        weights = find_weights(spec.parts[0], timeout_s=HUB_TIMEOUT_S)  # `find_weights` checks the SHA-256
        return _load_hub(weights.name, digest=weights.digest, device=device, precision=precision)
    encoder = FeatureEncoder(spec, device=device, precision=precision, timeout_s=HUB_TIMEOUT_S)
    return LoadedEncoder(encoder, None, encoder.number_format.name, encoder.number_format.reason)


def _load_builtin(precision: Precision, notice: str | None) -> LoadedEncoder:
    from untrimmed.encoders.builtin.encoder import BuiltinEncoder

    if precision != "auto":
        raise EncoderError(
            f"precision is {precision!r}, but the encoder 'builtin' has one format, {BUILTIN_PRODUCTS}; leave it out, "
            "or choose another encoder (see: untrimmed encoders)"
        )
    return LoadedEncoder(BuiltinEncoder(), notice, BUILTIN_PRODUCTS, "fixed; its sentences are read in float32")


def _source(name: str) -> str:
    """Return the hub id of a short name. A folder or a hub id is returned unchanged."""
    if name in ENCODERS and (hub_id := ENCODERS[name].hub_id) is not None:
        return hub_id
    looks_like_path = name.startswith((".", "/", "~")) or Path(name).is_absolute()
    if looks_like_path or Path(name).is_dir() or is_hub_id(name):
        return name
    raise UnknownNameError.among("encoder", name, [*ENCODERS, "any hub id (OWNER/NAME) or a folder"])


def _two_images() -> np.ndarray:
    """Return a chessboard and a gradient from blue to orange, which differ in colour, shape and detail."""
    steps = np.arange(_SELF_TEST_SIDE)
    board = ((steps[:, None] // 12 + steps[None, :] // 12) % 2 * 255).astype(np.uint8)
    slope = np.linspace(0.0, 1.0, _SELF_TEST_SIDE)[None, :, None]
    colours = (1 - slope) * np.array([20, 60, 200]) + slope * np.array([250, 150, 20])
    sky = np.broadcast_to(colours, (_SELF_TEST_SIDE, _SELF_TEST_SIDE, 3)).astype(np.uint8)
    return np.stack([np.repeat(board[:, :, None], 3, axis=2), sky])


def _check_vectors(encoder: Encoder, vectors: np.ndarray, what: str) -> None:
    """Check that `vectors` are two different, finite unit vectors of the encoder's width."""
    if vectors.shape != (2, encoder.frame_dim):
        problem = f"vectors of shape {vectors.shape}, expected {(2, encoder.frame_dim)}"
    elif not np.isfinite(vectors).all():
        problem = "vectors that are not finite"
    elif np.abs(np.linalg.norm(vectors, axis=1) - 1).max() > 1e-3:
        problem = f"vectors of length {np.linalg.norm(vectors, axis=1).round(3).tolist()}, expected 1"
    elif np.linalg.norm(vectors[0] - vectors[1]) < _SELF_TEST_DISTANCE:
        problem = "the same vector for both"
    else:
        return
    raise EncoderError(
        f"{encoder.name}: the self-test failed: two different {what} give {problem}; "
        "the weights are damaged or unsuitable: fetch them again, or choose another encoder"
    )
