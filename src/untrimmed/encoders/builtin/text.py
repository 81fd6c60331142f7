"""all-MiniLM-L6-v2 (a BERT of 6 layers, Devlin et al. 2019, arXiv 1810.04805; distilled by Wang et al. 2020).

`transformers` reads the same files, but importing it, or torch alone, takes longer than the rest of a search from the
command line. So the layers are an ONNX graph (`text_graph`), the weights are mapped from the released file without
being copied, and a test holds both equal to `transformers`.
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
from jaxtyping import Float
from tokenizers import Encoding, Tokenizer

from untrimmed.encoders.builtin.released import read_safetensors
from untrimmed.encoders.builtin.weights import TEXT_TOKENIZER, TEXT_WEIGHTS
from untrimmed.encoders.reading import known_words, reading_of
from untrimmed.types import Reading

DIM = 384
GRAPH = Path(__file__).with_name("minilm.onnx")
_MAX_TOKENS = 256  # the limit in training; longer texts are truncated
_BATCH = 64


@dataclass(frozen=True)
class Sentence:
    """A text as a unit vector, with a vector and token per word piece, without the two special tokens."""

    vector: Float[np.ndarray, " D"]
    words: Float[np.ndarray, "W D"]
    tokens: tuple[str, ...]
    reading: Reading


def is_layer_weight(name: str) -> bool:
    """Whether the graph uses a released weight. Embeddings are looked up outside the graph."""
    return name.startswith(("encoder.layer.", "embeddings.LayerNorm."))


class MiniLM:
    """Texts -> unit vectors (the mean of the last states) and word vectors.

    Raises:
        EncoderError: Its package is missing or has other content.
    """

    def __init__(self) -> None:
        self._tokenizer = Tokenizer.from_file(str(TEXT_TOKENIZER.locate()))
        self._tokenizer.enable_truncation(_MAX_TOKENS)
        self._tokenizer.enable_padding(pad_id=0, pad_token="[PAD]")
        weights = read_safetensors(TEXT_WEIGHTS.locate())
        self._tokens = weights["embeddings.word_embeddings.weight"]
        # every text is a single segment, so the segment's embedding is a constant; it is added to the positions'
        # embeddings
        segment = weights["embeddings.token_type_embeddings.weight"][0]
        self._positions = weights["embeddings.position_embeddings.weight"] + segment
        options = onnxruntime.SessionOptions()
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # idle threads must not spin
        # keep the mapped weights: packing them takes longer than encoding ten sentences
        options.add_session_config_entry("session.disable_prepacking", "1")
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        layers = {name: weight for name, weight in weights.items() if is_layer_weight(name)}
        values = [onnxruntime.OrtValue.ortvalue_from_numpy(weight) for weight in layers.values()]
        options.add_external_initializers(list(layers), values)
        self._layers = onnxruntime.InferenceSession(GRAPH, options, providers=["CPUExecutionProvider"])

    def encode(self, texts: Sequence[str]) -> list[Sentence]:
        """One `Sentence` per text, in order. Texts of similar length share a batch, which limits padding."""
        sentences: dict[int, Sentence] = {}
        by_length = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        for start in range(0, len(texts), _BATCH):
            rows = by_length[start : start + _BATCH]
            encodings = self._tokenizer.encode_batch([texts[i] for i in rows])
            readings = [_read(texts[i], encoding) for i, encoding in zip(rows, encodings, strict=True)]
            if any(reading.unknown for reading in readings):
                parts = [known_words(texts[i], reading) for i, reading in zip(rows, readings, strict=True)]
                encodings = self._tokenizer.encode_batch(parts)
            mask = np.array([e.attention_mask for e in encodings], dtype=bool)
            embedded = self._tokens[np.array([e.ids for e in encodings])] + self._positions[: mask.shape[1]]
            hidden = np.where(mask, 0.0, -np.inf).astype(np.float32)[:, None, None]
            (states,) = self._layers.run(None, {"embedded": embedded, "hidden": hidden})
            for row, encoding, reading, state, real in zip(rows, encodings, readings, states, mask, strict=True):
                state = state[real]
                mean = state.mean(axis=0)
                tokens = tuple(encoding.tokens[1 : len(state) - 1])
                sentences[row] = Sentence(mean / np.linalg.norm(mean), state[1:-1], tokens, reading)
        return [sentences[i] for i in range(len(texts))]


def _read(text: str, encoding: Encoding) -> Reading:
    """Return which words of a text the model knows. It was trained on English.

    Its vocabulary contains single letters of many scripts. A Greek or Russian word is therefore split into letters and
    does not become `[UNK]`, but it has no meaning for the model. A word in Latin letters can be split and still have a
    meaning (`ww2`, `4x4`).
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
        if is_unknown or any(map(str.isalnum, text[start:end])):  # punctuation is neither known nor unknown
            words.append((start, end, is_latin and not is_unknown))
    return reading_of(text, words, is_cut=bool(encoding.overflowing))
