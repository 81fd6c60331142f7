"""all-MiniLM-L6-v2 (a BERT of 6 layers, Devlin et al. 2019, arXiv 1810.04805; distilled by Wang et al. 2020).

The layers run as an ONNX graph (`text_graph`), because importing torch takes longer than the rest of a search from the
command line. A package provides the weights as 8-bit integers with scales. We convert them to float32, so that vectors
are equal on all processors. The package also contains a graph, but it takes longer to load and gives the same result.
"""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
from jaxtyping import Float
from tokenizers import Encoding, Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import BertProcessing

from untrimmed.encoders.builtin.graph import load_session
from untrimmed.encoders.builtin.released import read_onnx
from untrimmed.encoders.builtin.weights import TEXT_WEIGHTS, VOCABULARY
from untrimmed.encoders.reading import known_words, reading_of
from untrimmed.types import Reading

DIM = 384
NUM_LAYERS = 6
GRAPH = Path(__file__).with_name("minilm.onnx")
_MAX_TOKENS = 256  # the model was trained on at most this many tokens; longer texts are truncated
_BATCH = 64
# the matrices of a layer, in the package's order; the package names them by numbers
_MATRICES = (
    *(f"attention.self.{part}" for part in ("query", "key", "value")),
    "attention.output.dense",
    "intermediate.dense",
    "output.dense",
)
_TOKENS = "inner.embeddings.word_embeddings.weight"


@dataclass(frozen=True)
class EncodedSentence:
    """The unit vector of a text, and its word pieces with their vectors (without the two special tokens)."""

    vector: Float[np.ndarray, " D"]
    words: Float[np.ndarray, "W D"]
    tokens: tuple[str, ...]
    reading: Reading


def is_layer_weight(name: str) -> bool:
    """Whether a released weight is part of the graph. Embeddings are not: they are looked up before the graph runs."""
    return name.startswith(("encoder.layer.", "embeddings.LayerNorm."))


def load_tokenizer() -> Tokenizer:
    """Build the tokenizer of all-MiniLM-L6-v2 (BERT's lower-case tokenizer) from its vocabulary."""
    tokenizer = Tokenizer(WordPiece.from_file(str(VOCABULARY), unk_token="[UNK]"))
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    tokenizer.normalizer = BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.post_processor = BertProcessing(("[SEP]", 102), ("[CLS]", 101))
    tokenizer.enable_truncation(_MAX_TOKENS)
    tokenizer.enable_padding(pad_id=0, pad_token="[PAD]")
    return tokenizer


def layer_weights(stored: Mapping[str, np.ndarray]) -> dict[str, Float[np.ndarray, "..."]]:
    """Return the weights of the graph by their released names, from the package's tensors.

    Matrices have the shape [inputs, outputs].
    """
    weights = {name.removeprefix("inner."): weight for name, weight in stored.items()}
    weights = {name: np.array(weight) for name, weight in weights.items() if is_layer_weight(name)}
    numbered = [name.removesuffix("_q") for name in stored if name.startswith("val_") and name.endswith("_q")]
    names = (f"encoder.layer.{layer}.{part}.weight" for layer in range(NUM_LAYERS) for part in _MATRICES)
    return weights | {name: _floats(stored, number) for name, number in zip(names, numbered, strict=True)}


def _floats(stored: Mapping[str, np.ndarray], name: str) -> Float[np.ndarray, "N M"]:
    return np.multiply(stored[f"{name}_q"], stored[f"{name}_scale"], dtype=np.float32)


class MiniLM:
    """Encodes texts as unit vectors (the mean of the last hidden states) and word vectors.

    Raises:
        EncoderError: The package with the weights is missing, or a file in it is not the pinned version.
    """

    def __init__(self) -> None:
        self._tokenizer = load_tokenizer()
        weights = read_onnx(TEXT_WEIGHTS.locate())
        self._tokens = weights[f"{_TOKENS}_q"]
        self._token_scales = weights[f"{_TOKENS}_scale"]
        # a text is a single segment, so the constant segment embedding is added to the position embeddings
        segment = weights["inner.embeddings.token_type_embeddings.weight"][0]
        self._positions = _floats(weights, "inner.embeddings.position_embeddings.weight") + segment
        options = onnxruntime.SessionOptions()
        # idle threads must not keep a core busy
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        # rearranging the weights would take longer than encoding ten sentences
        options.add_session_config_entry("session.disable_prepacking", "1")
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        self._layers = load_session(GRAPH, layer_weights(weights), options)

    def encode(self, texts: Sequence[str]) -> list[EncodedSentence]:
        """Return one `EncodedSentence` per text, in order.

        Texts of similar length are encoded together, which limits padding.
        """
        sentences: dict[int, EncodedSentence] = {}
        by_length = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        for start in range(0, len(texts), _BATCH):
            rows = by_length[start : start + _BATCH]
            encodings = self._tokenizer.encode_batch([texts[i] for i in rows])
            readings = [_read(texts[i], encoding) for i, encoding in zip(rows, encodings, strict=True)]
            if any(reading.unknown for reading in readings):
                parts = [known_words(texts[i], reading) for i, reading in zip(rows, readings, strict=True)]
                encodings = self._tokenizer.encode_batch(parts)
            mask = np.array([e.attention_mask for e in encodings], dtype=bool)
            ids = np.array([e.ids for e in encodings])
            embedded = self._tokens[ids] * self._token_scales[ids] + self._positions[: mask.shape[1]]
            hidden = np.where(mask, 0.0, -np.inf).astype(np.float32)[:, None, None]
            (states,) = self._layers.run(None, {"embedded": embedded, "hidden": hidden})
            for row, encoding, reading, state, real in zip(rows, encodings, readings, states, mask, strict=True):
                state = state[real]
                mean = state.mean(axis=0)
                tokens = tuple(encoding.tokens[1 : len(state) - 1])
                sentences[row] = EncodedSentence(mean / np.linalg.norm(mean), state[1:-1], tokens, reading)
        return [sentences[i] for i in range(len(texts))]


def _read(text: str, encoding: Encoding) -> Reading:
    """Return which words of a text the model knows.

    The model was trained on English, so a word without Latin letters or digits counts as unknown, even if its single
    letters are in the vocabulary. A word in Latin letters counts as known, even if it is split (`ww2`, `4x4`).
    """
    pieces: dict[int, list[int]] = {}
    for place, word in enumerate(encoding.word_ids):
        if word is not None:
            pieces.setdefault(word, []).append(place)
    words = []
    for places in pieces.values():
        start, end = encoding.offsets[places[0]][0], encoding.offsets[places[-1]][1]
        is_latin = any(c.isdigit() or "LATIN" in unicodedata.name(c, "") for c in text[start:end])
        is_unknown = encoding.tokens[places[0]] == "[UNK]"
        if is_unknown or any(map(str.isalnum, text[start:end])):  # punctuation counts neither as known nor as unknown
            words.append((start, end, is_latin and not is_unknown))
    return reading_of(text, words, is_cut=bool(encoding.overflowing))
