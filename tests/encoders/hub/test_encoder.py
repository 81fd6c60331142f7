import json
import shutil
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.refusals import refused
from tests.rounding import assert_only_rounded, rounded_to_bfloat16
from tests.tiny_models import FAMILIES, save_clip
from untrimmed import precision
from untrimmed.encoders.hub.encoder import TransformersEncoder
from untrimmed.errors import ConfigError, EncoderError, FeatureError
from untrimmed.types import Reading, TextFeatures

TEXTS = ["A dog runs along the Beach", "the cat sleeps", "a red car drives down the road to the kitchen"]
IN_SHARED_SPACE = {"clip", "siglip", "siglip2", "siglip2_naflex", "chinese_clip", "altclip", "align"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    return {name: save(tmp_path_factory.mktemp(name)) for name, save in FAMILIES.items()}


@pytest.fixture(scope="module")
def encoders(folders) -> dict[str, TransformersEncoder]:
    return {name: TransformersEncoder.load(folder, precision="float32") for name, folder in folders.items()}


@pytest.fixture(params=FAMILIES)
def family(request) -> str:
    return request.param


@pytest.fixture
def encoder(encoders, family) -> TransformersEncoder:
    return encoders[family]


def random_frames(count: int, height: int = 36, width: int = 60) -> np.ndarray:
    return np.random.default_rng(5).integers(0, 256, (count, height, width, 3), dtype=np.uint8)


class Reference(NamedTuple):
    """The model's vectors of frames and `TEXTS`: unit vectors [T, D] and [Q, D], and word vectors [Q, W, D]."""

    frames: np.ndarray
    sentences: np.ndarray
    words: np.ndarray


def reference(folder: Path, family: str, frames: np.ndarray, *, rounded: bool = False) -> Reference:
    """The model's own output, computed as in its documentation. With `rounded`, it is rounded like bfloat16."""
    from transformers import AutoImageProcessor, AutoModel, AutoTokenizer

    model = AutoModel.from_pretrained(folder).float().eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if family.startswith("siglip"):
        lower = [text.lower() for text in TEXTS]
        ids = tokenizer(lower, padding="max_length", max_length=12, truncation=True, return_tensors="pt")["input_ids"]
        texts = {"input_ids": ids}
    else:
        texts = dict(tokenizer(TEXTS, padding=True, truncation=True, max_length=14, return_tensors="pt"))
        if family == "blip":
            del texts["token_type_ids"]
    images = AutoImageProcessor.from_pretrained(folder)(images=list(frames), return_tensors="pt")
    if rounded:
        images["pixel_values"] = images["pixel_values"].bfloat16().float()
    with torch.inference_mode(), rounded_to_bfloat16(model) if rounded else nullcontext():
        output = model(**images, **texts)
        states = model.text_model(**texts).last_hidden_state
        if family in IN_SHARED_SPACE:
            states = (model.text_projection if hasattr(model, "text_projection") else model.text_model.head)(states)
    unit = partial(torch.nn.functional.normalize, dim=-1)
    return Reference(unit(output.image_embeds).numpy(), unit(output.text_embeds).numpy(), states.numpy())


def words_of(rows: np.ndarray, family: str, features: list[TextFeatures]) -> list[np.ndarray]:
    """The rows of the reference that are words, without start, end and padding."""
    first = 0 if family in ("siglip", "siglip2", "siglip2_naflex", "altclip") else 1
    return [row[first : first + len(text.tokens)] for row, text in zip(rows, features, strict=True)]


def test_no_frames_give_no_vectors(encoder):
    assert encoder.encode_frames(random_frames(0)).shape == (0, encoder.frame_dim)


def test_texts_become_unit_vectors_and_one_vector_per_word(encoder):
    for text, features in zip(TEXTS, encoder.encode_texts(TEXTS), strict=True):
        assert features.text == text
        assert features.sentence.shape == (encoder.frame_dim,)
        assert np.linalg.norm(features.sentence) == pytest.approx(1, abs=1e-5)
        assert features.words.shape == (len(features.tokens), encoder.word_dim)
        assert features.words.dtype == features.sentence.dtype == np.float32
        letters = "".join(features.tokens).lower().replace("</w>", "").replace("▁", "").replace("#", "")
        assert text.lower().replace(" ", "").startswith(letters)  # no start, end or padding; the last may be cut off


def test_no_texts_give_no_features(encoder):
    assert encoder.encode_texts([]) == []


def test_a_batch_of_one_equals_a_batch_of_many(encoder):
    frames = random_frames(19)  # one more batch than one
    together = encoder.encode_frames(frames)
    alone = np.concatenate([encoder.encode_frames(frames[index : index + 1]) for index in range(19)])
    np.testing.assert_allclose(together, alone, atol=2e-6)


def test_a_text_vector_does_not_depend_on_longer_texts(encoder):
    for text, among in zip(TEXTS, encoder.encode_texts(TEXTS), strict=True):
        (alone,) = encoder.encode_texts([text])
        np.testing.assert_allclose(alone.sentence, among.sentence, atol=2e-6)
        np.testing.assert_allclose(alone.words, among.words, atol=2e-5)
        assert alone.tokens == among.tokens


def test_frames_equal_the_model_and_its_own_processor(encoder, folders, family):
    frames = random_frames(3, 32, 32)  # the size the model sees: nothing is resized, so nothing is rounded
    expected = reference(folders[family], family, frames).frames
    np.testing.assert_allclose(encoder.encode_frames(frames), expected, atol=1e-5)


def test_resized_frames_equal_the_processor_to_a_rounded_pixel(encoder, folders, family):
    frames = random_frames(3, 45, 83)
    expected = reference(folders[family], family, frames).frames
    assert (encoder.encode_frames(frames) * expected).sum(axis=1).min() > 0.9999


def test_sentences_equal_the_model_and_its_own_tokenizer(encoder, folders, family):
    expected = reference(folders[family], family, random_frames(1)).sentences
    ours = np.stack([features.sentence for features in encoder.encode_texts(TEXTS)])
    np.testing.assert_allclose(ours, expected, atol=1e-5)


def test_words_are_hidden_states_in_the_shared_space_where_the_projection_allows(encoder, folders, family):
    expected = reference(folders[family], family, random_frames(1)).words
    assert encoder.word_dim == (encoder.frame_dim if family in IN_SHARED_SPACE else 24)
    features = encoder.encode_texts(TEXTS)
    for rows, ours in zip(words_of(expected, family, features), features, strict=True):
        np.testing.assert_allclose(ours.words, rows, atol=2e-5)


def test_a_long_text_is_cut_at_the_models_limit(encoder):
    (features,) = encoder.encode_texts(["a dog " * 200])
    assert 8 <= len(features.tokens) <= 16
    assert np.isfinite(features.words).all()


@pytest.mark.parametrize("text", ["", "   ", "\n"])
def test_an_empty_text_is_refused(encoder, text):
    with refused(ConfigError, "2"):
        encoder.encode_texts(["a dog", text])


def test_siglip_2_reads_capitals_as_small_letters(encoders):
    for name in ("siglip", "siglip2", "siglip2_naflex"):
        small, capital = encoders[name].encode_texts(["a dog runs", "A DOG Runs"])
        np.testing.assert_array_equal(small.sentence, capital.sentence)
        assert small.tokens == capital.tokens


def test_one_model_loaded_twice_or_copied_has_one_identity(encoders, folders, family, tmp_path):
    copy = shutil.copytree(folders[family], tmp_path / "copy")
    again = TransformersEncoder.load(copy, precision="float32")
    assert again.identity == encoders[family].identity
    assert again.name == str(copy)
    frames = random_frames(2)
    np.testing.assert_array_equal(again.encode_frames(frames), encoders[family].encode_frames(frames))


def test_other_weights_have_another_identity(encoders, tmp_path):
    assert TransformersEncoder.load(save_clip(tmp_path, seed=1)).identity != encoders["clip"].identity


def test_the_name_of_a_loaded_folder_loads_it_again(folders, tmp_path, monkeypatch):
    monkeypatch.chdir(folders["clip"].parent)
    assert TransformersEncoder.load(folders["clip"].name).name == str(folders["clip"])
    assert TransformersEncoder.load(folders["clip"], name="acme/clip").name == "acme/clip"


@pytest.fixture(scope="module")
def halves(folders) -> dict[str, TransformersEncoder]:
    """The same encoders in bfloat16. If the processor has no bfloat16 instructions, torch emulates them."""
    return {name: TransformersEncoder.load(folder, precision="bfloat16") for name, folder in folders.items()}


def test_bfloat16_is_as_far_from_float32_as_rounding_takes_it(halves, folders, family):
    half, frames = halves[family], random_frames(8, 32, 32)
    features = half.encode_texts(TEXTS)
    exact = reference(folders[family], family, frames)
    rounded = reference(folders[family], family, frames, rounded=True)
    ours = half.encode_frames(frames), np.stack([text.sentence for text in features])
    for kind, vectors in zip(("frames", "sentences"), ours, strict=True):
        assert_only_rounded(vectors, getattr(rounded, kind), getattr(exact, kind))
    words, exact_words = (np.concatenate(words_of(batch.words, family, features)) for batch in (rounded, exact))
    assert_only_rounded(np.concatenate([text.words for text in features]), words, exact_words)


def test_bfloat16_keeps_identity_lengths_and_tokens(halves, encoder, family):
    half = halves[family]
    assert half.identity == encoder.identity
    assert (half.frame_dim, half.word_dim) == (encoder.frame_dim, encoder.word_dim)
    np.testing.assert_allclose(np.linalg.norm(half.encode_frames(random_frames(4)), axis=1), 1, atol=1e-5)
    for ours, full in zip(half.encode_texts(TEXTS), encoder.encode_texts(TEXTS), strict=True):
        assert ours.tokens == full.tokens
        assert np.linalg.norm(ours.sentence) == pytest.approx(1, abs=1e-5)
        assert ours.sentence.dtype == ours.words.dtype == np.float32


def test_auto_is_the_fast_format_of_the_processor(monkeypatch, folders):
    frames = random_frames(2)
    for quick, name in ((True, "bfloat16"), (False, "float32")):
        monkeypatch.setattr(precision, "has_fast_bfloat16", lambda device, quick=quick: quick)
        chosen, fixed = (
            TransformersEncoder.load(folders["clip"], device="cpu", precision=choice) for choice in ("auto", name)
        )
        assert chosen.number_format.name == fixed.number_format.name == name
        np.testing.assert_array_equal(chosen.encode_frames(frames), fixed.encode_frames(frames))


@pytest.mark.parametrize(
    ("setting", "message"), [({"device": "abacus"}, "'abacus'"), ({"batch_size": 0}, "batch_size")]
)
def test_an_unknown_setting_is_refused_by_name(folders, setting, message):
    with pytest.raises(ConfigError, match=message):
        TransformersEncoder.load(folders["clip"], **setting)


@pytest.mark.parametrize("frames", [np.zeros((2, 8, 8, 3), np.float32), np.zeros((8, 8, 3), np.uint8)])
def test_frames_that_are_not_a_stack_of_bytes_are_refused(encoders, frames):
    encode = getattr(TransformersEncoder.encode_frames, "__wrapped__", TransformersEncoder.encode_frames)
    with pytest.raises(FeatureError, match="uint8"):
        encode(encoders["clip"], frames)


def test_pickled_weights_beside_safe_ones_are_not_read(folders, tmp_path, encoders):
    folder = shutil.copytree(folders["clip"], tmp_path / "both")
    (folder / "pytorch_model.bin").write_bytes(b"not even a pickle")
    assert TransformersEncoder.load(folder).identity == encoders["clip"].identity


def test_missing_weights_are_refused(folders, tmp_path):
    folder = shutil.copytree(folders["clip"], tmp_path / "short")
    weights = load_file(folder / "model.safetensors")
    del weights["visual_projection.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(EncoderError, match=r"visual_projection\.weight"):
        TransformersEncoder.load(folder)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "vocab.json", "preprocessor_config.json"])
def test_a_damaged_folder_is_refused_in_one_line(folders, tmp_path, name):
    folder = shutil.copytree(folders["clip"], tmp_path / "damaged")
    (folder / name).write_bytes(b"\x00\x01 nonsense")
    with pytest.raises(EncoderError) as caught:
        TransformersEncoder.load(folder)
    assert "\n" not in str(caught.value)


def test_code_in_a_folder_is_never_run(folders, tmp_path):
    folder = shutil.copytree(folders["clip"], tmp_path / "code")
    ran = tmp_path / "ran"
    (folder / "own.py").write_text(f"open({str(ran)!r}, 'w')\n")
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoConfig": "own.Config", "AutoModel": "own.Model"}}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(EncoderError):
        TransformersEncoder.load(folder)
    assert not ran.exists()


def test_a_text_only_model_is_refused(tmp_path, folders):
    from transformers import BertConfig, BertModel

    folder = shutil.copytree(folders["chinese_clip"], tmp_path / "bert")
    size = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    BertModel(BertConfig(vocab_size=200, **size)).save_pretrained(folder)
    with pytest.raises(EncoderError):
        TransformersEncoder.load(folder)


def test_loading_is_silent_and_keeps_the_settings_of_transformers(folders, capfd):
    from transformers.utils import logging as transformers_logging

    before = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    TransformersEncoder.load(folders["siglip2"])
    assert (transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()) == before
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""


@pytest.mark.parametrize("name", ["chinese_clip", "siglip2"])
def test_words_outside_the_vocabulary_are_reported(encoders, name):
    known, mixed, strange = encoders[name].encode_texts(["the cat sleeps", "the 犬 sleeps", "犬犬 犬"])
    assert known.reading == Reading()
    assert mixed.reading == Reading(("犬",))
    assert strange.reading == Reading(("犬犬", "犬"), is_understood=False)
    (without,) = encoders[name].encode_texts(["the sleeps"])
    assert np.allclose(mixed.sentence, without.sentence, atol=1e-6)  # in another batch
    assert mixed.tokens == without.tokens


def test_a_text_above_the_limit_reports_how_many_words_were_read(encoders):
    (features,) = encoders["chinese_clip"].encode_texts(["the cat sleeps " * 20])
    assert features.reading == Reading(num_words_read=len(features.tokens))
