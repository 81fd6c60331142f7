"""Image-text models of `transformers` (CLIP, SigLIP, SigLIP 2, Chinese-CLIP and others) as encoders.

Any `AutoModel` with image and text features of the same width works. Model families differ in how they preprocess
frames (`preprocessing.py`), and in whether the text projection also maps single tokens into the shared space. Both are
detected by a trial when a model is loaded, not from its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.nn import functional

from untrimmed.devices import choose_device
from untrimmed.encoders.hub.preprocessing import create_pipeline
from untrimmed.encoders.hub.pretrained import load_pretrained
from untrimmed.encoders.hub.text import dual_text_recipe, text_batches
from untrimmed.encoders.hub.weights import locate, weights_digest
from untrimmed.encoders.reading import known_words
from untrimmed.errors import ConfigError, EncoderError, FeatureError, one_line
from untrimmed.precision import NumberFormat, Precision, choose_format
from untrimmed.types import TextFeatures

_PROBE_TEXT = "a dog runs along the beach"


class TransformersEncoder:
    """An encoder made of a `transformers` model, its tokenizer and its image processor.

    `name` is the hub id, or the absolute path of the folder, and can be used to load the encoder again. `identity` is
    the model family and a digest of the weight files. It does not include the precision, because vectors in bfloat16
    and float32 differ only by rounding (cosine > 0.99) and can share an index.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        processor: Any,
        *,
        name: str,
        identity: str,
        device: torch.device,
        number_format: NumberFormat,
        batch_size: int,
    ):
        if not (hasattr(model, "get_image_features") and hasattr(model, "get_text_features")):
            raise EncoderError(_not_dual(name, model, "no image and text features"))
        self.name = name
        self.identity = identity
        self._model: Any = model.eval().to(torch.float32)
        self._tokenizer = tokenizer
        self._device = torch.device("cpu")
        self._dtype = torch.float32
        self._batch_size = batch_size
        self._recipe = dual_text_recipe(model, tokenizer)
        side = int(getattr(model.config.vision_config, "image_size", 224))
        self._pipeline, self.short_side = create_pipeline(processor, model.get_image_features, side=side)
        self.frame_dim, self.word_dim, self._word_projection = self._probe()
        self.number_format = number_format
        self._device = device
        self._dtype = getattr(torch, number_format.name)
        # convert after `_probe`, which compares numbers in float32
        self._model.to(device=device, dtype=self._dtype)

    @classmethod
    def load(
        cls,
        source: str | Path,
        *,
        name: str | None = None,
        digest: str | None = None,
        device: str = "auto",
        precision: Precision = "auto",
        batch_size: int = 16,
        local_files_only: bool = False,
        timeout_s: float = 5.0,
    ) -> TransformersEncoder:
        """Load an encoder from a local folder or by hub id. Files that are not in the hub's cache are downloaded.

        Code in a repository is never run.

        Args:
            name: The name to record instead of `source`, for example if the folder is a copy of a hub model.
            digest: The digest of the weights (`weights_digest`), if the caller has already computed it.

        Raises:
            ConfigError: The device is unknown or does not exist, or `batch_size` is less than 1.
            EncoderError: The model does not exist, its weights are not safetensors or do not fit, or it is not a dual
                encoder.
        """
        chosen_device = choose_device(device, mps=True)
        number_format = choose_format(precision, str(chosen_device))
        if batch_size < 1:
            raise ConfigError(f"batch_size is {batch_size}, expected 1 or more")
        folder = locate(source, local_files_only=local_files_only, timeout_s=timeout_s)
        if name is None:
            name = str(folder) if Path(source).expanduser().is_dir() else str(source)
        digest = digest or weights_digest(folder)
        model, tokenizer, processor = load_pretrained(folder, name, "AutoTokenizer", "AutoImageProcessor")
        return cls(
            model,
            tokenizer,
            processor,
            name=name,
            identity=f"{model.config.model_type}:{digest}",
            device=chosen_device,
            number_format=number_format,
            batch_size=batch_size,
        )

    def encode_frames(self, frames: UInt8[np.ndarray, "T Y X 3"]) -> Float[np.ndarray, "T D"]:
        """Return unit vectors (float32) of RGB frames, one per frame.

        Frames can have any size. More than `short_side` pixels on the shorter side have no benefit.

        Raises:
            FeatureError: The frames are not an array of bytes of shape [T, height, width, 3].
        """
        if frames.dtype != np.uint8 or frames.ndim != 4 or frames.shape[3] != 3:
            raise FeatureError(
                f"frames are {frames.dtype} of shape {frames.shape}, expected uint8 [T, height, width, 3]"
            )
        vectors = np.empty((len(frames), self.frame_dim), dtype=np.float32)
        for start in range(0, len(frames), self._batch_size):
            stop = start + self._batch_size
            vectors[start:stop] = self._encode_batch(frames[start:stop])
        return vectors

    def encode_texts(self, texts: Sequence[str]) -> list[TextFeatures]:
        """Return a unit sentence vector and the word vectors of each text (float32).

        Long texts are truncated at the model's limit. Words are tokens of the model's tokenizer, without start, end and
        padding. The vector of a word is its last hidden state, which is not normalised. If the model's text projection
        can be applied to single tokens (CLIP, SigLIP and Chinese-CLIP, but not BLIP), it maps the vectors of words into
        the space of frames.

        Raises:
            ConfigError: A text is empty.
        """
        batches = text_batches(texts, self._batch_size)
        return [features for batch in batches for features in self._encode_text_batch(batch)]

    @torch.inference_mode()
    def _encode_batch(self, frames: np.ndarray) -> np.ndarray:
        inputs = {name: self._to_device(value) for name, value in self._pipeline(frames).items()}
        features = _pooled(self._model.get_image_features(**inputs))
        return functional.normalize(features.float(), dim=-1).cpu().numpy()

    @torch.inference_mode()
    def _encode_text_batch(self, texts: Sequence[str]) -> list[TextFeatures]:
        readings = self._recipe.read(self._tokenizer, texts)
        written = map(self._recipe.prepare, texts)
        parts = [known_words(text, reading) for text, reading in zip(written, readings, strict=True)]
        inputs = self._recipe.tokenize(self._tokenizer, parts)
        sentences, states = self._text_features(inputs)
        if self._word_projection is not None:
            states = self._word_projection(states)
        rows = functional.normalize(sentences.float(), dim=-1).cpu().numpy()
        words = states.float().cpu().numpy()
        features = []
        for row, text in enumerate(texts):
            places, tokens = self._recipe.real_tokens(self._tokenizer, inputs["input_ids"][row])
            features.append(TextFeatures(text, rows[row], words[row, places], tokens, readings[row]))
        return features

    def _text_features(self, inputs: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the pooled features [Q, D] and the last hidden states [Q, W, E] of tokenized texts."""
        on_device = {name: self._to_device(value) for name, value in inputs.items()}
        output = self._model.get_text_features(**on_device)
        if isinstance(output, Tensor):  # transformers 4 returns only the pooled features
            return output, self._model.text_model(**on_device).last_hidden_state
        return _pooled(output), output.last_hidden_state

    def _to_device(self, value: Tensor) -> Tensor:
        return value.to(self._device, self._dtype if value.is_floating_point() else None)

    @torch.inference_mode()
    def _probe(self) -> tuple[int, int, nn.Module | None]:
        """Return the widths of frame and word vectors, and the module that maps tokens into the shared space, or None.

        Models with such a module apply it to a single token to compute the sentence vector. To find it, each candidate
        is applied to all tokens of a text. It is the right one if one result equals the sentence vector.
        """
        black = np.zeros((1, self.short_side, self.short_side, 3), dtype=np.uint8)
        try:
            frames = _pooled(self._model.get_image_features(**self._pipeline(black)))
            sentence, states = self._text_features(self._recipe.tokenize(self._tokenizer, [_PROBE_TEXT]))
        except (RuntimeError, IndexError, ValueError, TypeError, AttributeError) as error:
            raise EncoderError(_not_dual(self.name, self._model, one_line(error))) from error
        if frames.ndim != 2 or sentence.ndim != 2 or frames.shape[1] != sentence.shape[1]:
            result = f"image features {list(frames.shape)} and text features {list(sentence.shape)}"
            raise EncoderError(_not_dual(self.name, self._model, result))
        text_model = getattr(self._model, "text_model", None)
        for module in (getattr(self._model, "text_projection", None), getattr(text_model, "head", None)):
            if isinstance(module, nn.Linear) and module.in_features == states.shape[-1]:
                rows = module(states[0])
                if torch.isclose(rows, sentence, rtol=1e-3, atol=1e-5).all(dim=-1).any():
                    return frames.shape[1], module.out_features, module
        return frames.shape[1], states.shape[-1], None


def _not_dual(name: str, model: nn.Module, result: str) -> str:
    return (
        f"{name}: a {type(model).__name__} gives {result}, expected vectors of the same width for an image and a "
        "text; choose a dual encoder such as CLIP or SigLIP"
    )


def _pooled(output: Any) -> Tensor:
    """Return the pooled features in a model's output: the output itself in transformers 4, a field from 5 on."""
    return output if isinstance(output, Tensor) else output.pooler_output
