"""all-MiniLM-L6-v2 (a BERT of 6 layers, Devlin et al. 2019, arXiv 1810.04805; distilled by Wang et al. 2020).

`transformers` reads the same files, but importing it and building its model takes longer than all else a search does
from the command line. BERT's layers are PyTorch's own `TransformerEncoderLayer`, so the network is built from that and
a test holds it equal to `transformers`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from safetensors.torch import load_file
from tokenizers import Encoding, Tokenizer
from torch import Tensor, nn

from untrimmed.encoders.builtin.weights import TEXT_TOKENIZER, TEXT_WEIGHTS
from untrimmed.encoders.reading import reading_of
from untrimmed.types import Reading

DIM = 384
_NUM_LAYERS = 6
_NUM_HEADS = 12
_HIDDEN = 1536
_EPSILON = 1e-12
_VOCABULARY = 30522
_MAX_TOKENS = 256  # what the weights were trained for; longer texts are cut
_MAX_POSITIONS = 512
_BATCH = 64


@dataclass(frozen=True)
class Sentence:
    """A text as its unit vector and one vector and token a word piece (the two special tokens left out)."""

    vector: Float[np.ndarray, " D"]
    words: Float[np.ndarray, "W D"]
    tokens: tuple[str, ...]
    reading: Reading


class _Bert(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Embedding(_VOCABULARY, DIM)
        self.position = nn.Embedding(_MAX_POSITIONS, DIM)
        self.norm = nn.LayerNorm(DIM, eps=_EPSILON)
        layer = nn.TransformerEncoderLayer(
            DIM, _NUM_HEADS, _HIDDEN, dropout=0.0, activation="gelu", layer_norm_eps=_EPSILON, batch_first=True
        )
        self.layers = nn.TransformerEncoder(layer, _NUM_LAYERS, enable_nested_tensor=False)

    def forward(self, tokens: Int[Tensor, "Q W"], mask: Bool[Tensor, "Q W"]) -> Float[Tensor, "Q W D"]:
        positions = torch.arange(tokens.shape[1])
        states = self.norm(self.token(tokens) + self.position(positions))
        return self.layers(states, src_key_padding_mask=~mask)


def _translate(released: dict[str, Tensor]) -> dict[str, Tensor]:
    """The released weights under our names; query, key and value become one matrix, as PyTorch stores them."""
    # every text here is one segment, so its embedding is a constant and joins the position's
    segment = released["embeddings.token_type_embeddings.weight"][0]
    ours = {
        "token.weight": released["embeddings.word_embeddings.weight"],
        "position.weight": released["embeddings.position_embeddings.weight"] + segment,
        "norm.weight": released["embeddings.LayerNorm.weight"],
        "norm.bias": released["embeddings.LayerNorm.bias"],
    }
    names = {
        "self_attn.out_proj": "attention.output.dense",
        "norm1": "attention.output.LayerNorm",
        "linear1": "intermediate.dense",
        "linear2": "output.dense",
        "norm2": "output.LayerNorm",
    }
    for i in range(_NUM_LAYERS):
        source, target = f"encoder.layer.{i}", f"layers.layers.{i}"
        for kind in ("weight", "bias"):
            parts = [released[f"{source}.attention.self.{part}.{kind}"] for part in ("query", "key", "value")]
            ours[f"{target}.self_attn.in_proj_{kind}"] = torch.cat(parts)
            ours |= {f"{target}.{name}.{kind}": released[f"{source}.{theirs}.{kind}"] for name, theirs in names.items()}
    return ours


class MiniLM:
    """Texts -> unit vectors (the mean of the last states) and word vectors.

    Raises:
        EncoderError: its package is missing or of other content.
    """

    def __init__(self) -> None:
        self._tokenizer = Tokenizer.from_file(str(TEXT_TOKENIZER.locate()))
        self._tokenizer.enable_truncation(_MAX_TOKENS)
        self._tokenizer.enable_padding(pad_id=0, pad_token="[PAD]")
        self._bert = _Bert()
        self._bert.load_state_dict(_translate(load_file(TEXT_WEIGHTS.locate())))
        self._bert.eval().requires_grad_(False)

    def encode(self, texts: Sequence[str]) -> list[Sentence]:
        """One `Sentence` a text, in order; texts of like length share a batch, so padding stays small."""
        sentences: dict[int, Sentence] = {}
        by_length = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        for start in range(0, len(texts), _BATCH):
            rows = by_length[start : start + _BATCH]
            encodings = self._tokenizer.encode_batch([texts[i] for i in rows])
            mask = torch.tensor([e.attention_mask for e in encodings], dtype=torch.bool)
            with torch.inference_mode():
                states = self._bert(torch.tensor([e.ids for e in encodings]), mask)
            for row, encoding, state, real in zip(rows, encodings, states, mask, strict=True):
                state = state[real]
                vector = nn.functional.normalize(state.mean(0), dim=0)
                tokens = tuple(encoding.tokens[1 : len(state) - 1])
                reading = _read(texts[row], encoding)
                sentences[row] = Sentence(vector.numpy(), state[1:-1].numpy(), tokens, reading)
        return [sentences[i] for i in range(len(texts))]


def _read(text: str, encoding: Encoding) -> Reading:
    """Which words of a text mean something to a model that was trained on English.

    Its vocabulary holds single letters of many scripts, so that a Greek or a Russian word is spelt out and never
    `[UNK]`; what is spelt out says nothing, nor does a character outside the Latin script.
    """
    pieces: dict[int, list[int]] = {}
    for place, word in enumerate(encoding.word_ids):
        if word is not None:
            pieces.setdefault(word, []).append(place)
    found = []
    for places in pieces.values():
        start, end = encoding.offsets[places[0]][0], encoding.offsets[places[-1]][1]
        tokens = [encoding.tokens[place].removeprefix("##") for place in places]
        is_spelt_out = len(tokens) > 2 and max(map(len, tokens)) == 1
        is_latin = any(c.isdigit() or "LATIN" in unicodedata.name(c, "") for c in text[start:end])
        if tokens == ["[UNK]"] or any(map(str.isalnum, text[start:end])):  # punctuation is neither known nor unknown
            found.append((start, end, is_latin and not is_spelt_out and tokens != ["[UNK]"]))
    return reading_of(text, found, is_cut=bool(encoding.overflowing))
