"""Tokenize texts for models of `transformers`, and encode words with a text model such as RoBERTa."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from untrimmed.encoders.hub.pretrained import load_pretrained
from untrimmed.encoders.hub.weights import weight_files
from untrimmed.encoders.reading import reading_of
from untrimmed.errors import ConfigError, EncoderError
from untrimmed.types import Reading, TextFeatures

_LAYER = -2  # index of the hidden layer whose states are the word vectors: the second-to-last
_BATCH = 16


@dataclass(frozen=True)
class TextRecipe:
    """How to tokenize texts for a model family in the same way as in its training."""

    lower_case: bool
    padding: bool | str
    max_length: int
    inputs: frozenset[str]
    special_ids: frozenset[int]

    def prepare(self, text: str) -> str:
        """Return a text in the form that the tokenizer needs."""
        return text.lower() if self.lower_case else text

    def tokenize(self, tokenizer: Any, texts: Sequence[str]) -> dict[str, Tensor]:
        """Return the model's input for texts, without tensors that the model does not accept."""
        batch = tokenizer(
            [self.prepare(text) for text in texts],
            padding=self.padding,
            padding_side="right",
            truncation=True,
            max_length=self.max_length,
            return_tensors="pt",
        )
        return {name: value for name, value in batch.items() if name in self.inputs}

    def read(self, tokenizer: Any, texts: Sequence[str]) -> list[Reading]:
        """Return which words of each text the tokenizer does not know, and how many words fit into the model's limit.

        Byte-level tokenizers know all words. Tokenizers in pure Python do not report the positions of tokens, so all
        words count as known.
        """
        if not tokenizer.is_fast:
            return [Reading()] * len(texts)
        written = [self.prepare(text) for text in texts]
        unknown = {tokenizer.unk_token_id} - self.special_ids
        readings = []
        for text, encoding in zip(
            written, tokenizer(written, truncation=True, max_length=self.max_length).encodings, strict=True
        ):
            real = [place for place, token in enumerate(encoding.ids) if token not in self.special_ids]
            pieces = [(*encoding.offsets[place], encoding.ids[place] not in unknown) for place in real]
            readings.append(reading_of(text, pieces, is_cut=bool(encoding.overflowing)))
        return readings

    def real_tokens(self, tokenizer: Any, ids: Tensor) -> tuple[list[int], tuple[str, ...]]:
        """Return the positions and the texts of the tokens in one row of ids, without start, end and padding."""
        listed = ids.tolist()
        places = [place for place, token in enumerate(listed) if token not in self.special_ids]
        return places, tuple(tokenizer.convert_ids_to_tokens([listed[place] for place in places]))


def dual_text_recipe(model: Any, tokenizer: Any) -> TextRecipe:
    """Return the recipe for the text part of a dual encoder.

    SigLIP and SigLIP 2 were trained on lower-case texts, padded to a fixed length, without an attention mask. SigLIP
    2's tokenizer (Gemma) does not convert texts to lower case, so the recipe does. The two families share one recipe,
    because SigLIP 2 models of fixed resolution also have the type `siglip`.
    """
    config = model.config
    siglip = config.model_type in ("siglip", "siglip2")
    inputs = frozenset(inspect.signature(model.get_text_features).parameters)
    return TextRecipe(
        lower_case=siglip,
        padding="max_length" if siglip else True,
        max_length=_text_limit(config.text_config, tokenizer),
        inputs=frozenset({"input_ids"}) if siglip else inputs,
        special_ids=_special_ids(tokenizer),
    )


def text_batches(texts: Sequence[str], size: int) -> list[Sequence[str]]:
    """Return the texts in batches of `size`. The last batch can be smaller.

    Raises:
        ConfigError: A text is empty.
    """
    for number, text in enumerate(texts, start=1):
        if not text.strip():
            raise ConfigError(f"text {number} of {len(texts)} is empty; expected at least one word")
    return [texts[start : start + size] for start in range(0, len(texts), size)]


class WordEncoder:
    """Encodes words with a text model. The vectors are the hidden states of the second-to-last layer.

    A text model has no sentence vectors in the space of frames, so `TextFeatures.sentence` is empty.
    """

    def __init__(self, model: Any, tokenizer: Any, *, device: torch.device, dtype: torch.dtype):
        self.word_dim = int(model.config.hidden_size)
        self._model: Any = model.eval().to(device=device, dtype=dtype)
        self._tokenizer = tokenizer
        self._device = device
        self._recipe = TextRecipe(
            lower_case=False,  # the tokenizer converts to lower case if the model needs it
            padding=True,
            max_length=_text_limit(model.config, tokenizer),
            inputs=frozenset(inspect.signature(model.forward).parameters),
            special_ids=_special_ids(tokenizer),
        )

    @classmethod
    def load(cls, folder: Path, *, name: str, device: torch.device, dtype: torch.dtype = torch.float32) -> WordEncoder:
        """Load the text model in a folder. Code in the folder is never run. `name` is for error messages.

        Raises:
            EncoderError: The folder has no safetensors weights, or no text model.
        """
        weight_files(folder)
        model, tokenizer = _load_text_model(folder, name)
        return cls(model, tokenizer, device=device, dtype=dtype)

    def encode_texts(self, texts: Sequence[str]) -> list[TextFeatures]:
        """Return the word vectors of each text (float32). Long texts are truncated at the model's limit.

        Raises:
            ConfigError: A text is empty.
        """
        return [features for batch in text_batches(texts, _BATCH) for features in self._encode_batch(batch)]

    @torch.inference_mode()
    def _encode_batch(self, texts: Sequence[str]) -> list[TextFeatures]:
        readings = self._recipe.read(self._tokenizer, texts)
        inputs = self._recipe.tokenize(self._tokenizer, texts)
        on_device = {name: value.to(self._device) for name, value in inputs.items()}
        words = self._model(**on_device, output_hidden_states=True).hidden_states[_LAYER].float().cpu().numpy()
        features = []
        for row, text in enumerate(texts):
            places, tokens = self._recipe.real_tokens(self._tokenizer, inputs["input_ids"][row])
            features.append(TextFeatures(text, np.empty(0, np.float32), words[row, places], tokens, readings[row]))
        return features


def _load_text_model(folder: Path, name: str) -> tuple[Any, Any]:
    # Word vectors need no pooler, and language models lack one.
    model, tokenizer = load_pretrained(folder, name, "AutoTokenizer", unused=("pooler.",))
    if not hasattr(model.config, "hidden_size") or not hasattr(model.config, "max_position_embeddings"):
        raise EncoderError(f"{name}: is a {type(model).__name__}, expected a text model such as RoBERTa")
    return model, tokenizer


def _special_ids(tokenizer: Any) -> frozenset[int]:
    """Return the token ids that mark start, end and padding."""
    specials = {tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id}
    specials |= {tokenizer.cls_token_id, tokenizer.sep_token_id}
    return frozenset(token for token in specials if token is not None)


def _text_limit(text_config: Any, tokenizer: Any) -> int:
    """Return the maximum number of tokens of a text.

    It is the tokenizer's limit, or the model's number of positions if that is lower.
    """
    positions = int(text_config.max_position_embeddings)
    if text_config.model_type in ("altclip_text_model", "roberta", "xlm-roberta", "camembert"):
        # RoBERTa numbers its positions from the padding's position + 1, so fewer positions remain for tokens
        positions -= int(text_config.pad_token_id) + 1
    return min(int(tokenizer.model_max_length), positions)
