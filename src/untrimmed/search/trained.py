"""A trained model in the place of the training-free windows: it encodes a library's stored frames and its queries.

A checkpoint trained on features of an encoder serves every library made with that encoder: frames are resampled as in
training (32 clips and at most 128 frames of a released model), so nothing is decoded again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from untrimmed.batches import EncodedQueries, EncodedVideos, QueryBatch, VideoBatch
from untrimmed.config import read_yaml
from untrimmed.data.resampling import prepare_video, prepare_words
from untrimmed.errors import CheckpointError, IndexMismatchError
from untrimmed.models.base import RetrievalModel
from untrimmed.models.storage import WEIGHTS, load_model
from untrimmed.moments.localise import LocateSettings
from untrimmed.search.video_names import absolute
from untrimmed.search.windows import RankedVideo
from untrimmed.types import FrameFeatures, Moment, TextFeatures

_VIDEOS_AT_A_TIME = 512
_FORMER_NAMES = {"prototypes.unit_attention": "unit_attention"}  # in libraries of the first versions
_RUN_SETTINGS = "config.yaml"  # where `untrimmed.running.run` keeps them, which search does not depend on


class TrainedModel:
    """A model in the folder of a run, or one that was imported."""

    def __init__(self, folder: str | os.PathLike[str]):
        """Raises: CheckpointError where there is no model, or a damaged one."""
        self.folder = absolute(folder)
        if not (self.folder / WEIGHTS).is_file():
            raise CheckpointError(f"{self.folder}: no {WEIGHTS} here; name the folder that `untrimmed train` wrote")
        self.model: RetrievalModel = load_model(self.folder)
        digest = hashlib.blake2b((self.folder / WEIGHTS).read_bytes(), digest_size=6).hexdigest()
        self.identity = f"{self.model.name}:{digest}"

    def check_encoder(self, identity: str) -> None:
        """Refuse the features of another encoder than the one whose features the run learned on, where it knows that.

        Raises:
            IndexMismatchError: Naming found and wanted.
            ConfigError: The run's settings are damaged.
        """
        wanted = self._trained_on()
        if wanted is not None and wanted != identity:
            raise IndexMismatchError(
                f"{self.folder}: trained on features of encoder {wanted}, the library's are of {identity}; train on "
                "features of this library (untrimmed features --library), or index into a new --library with that "
                "encoder"
            )

    def _trained_on(self) -> str | None:
        """The encoder that the settings of the run name; an imported model has none, nor have benchmarks' features."""
        if not (self.folder / _RUN_SETTINGS).is_file():
            return None
        data = read_yaml(self.folder / _RUN_SETTINGS).get("data")
        return data.get("encoder_identity") if isinstance(data, dict) else None

    def check_widths(self, *, frame_dim: int, word_dim: int) -> None:
        """Refuse features of other widths than the model was trained on.

        Raises:
            IndexMismatchError: Naming found and wanted.
        """
        config = self.model.config
        for what, found, wanted in (("frames", frame_dim, config.video_dim), ("words", word_dim, config.query_dim)):
            if found != wanted:
                raise IndexMismatchError(
                    f"{self.folder}: trained on {what} of width {wanted}, the library's encoder gives {found}; use a "
                    "model trained on features of this encoder (untrimmed features, untrimmed train)"
                )

    @torch.inference_mode()
    def encode_video(self, features: FrameFeatures) -> bytes:
        """What the index keeps of a video for this model: its encoding as safetensors, floats in half precision."""
        config = self.model.config
        clips, frames = prepare_video(features.vectors, num_clips=config.num_clips, max_frames=config.max_frames)
        batch = VideoBatch(
            clips=torch.from_numpy(clips)[None],
            frames=torch.from_numpy(frames)[None],
            frame_mask=torch.ones(1, len(frames), dtype=torch.bool),
        )
        encoded = self.model.encode_videos(batch).to("cpu", torch.float16)
        return save_tensors({name: tensor.contiguous() for name, tensor in encoded.tensors().items()})

    @torch.inference_mode()
    def encode_query(self, query: TextFeatures) -> EncodedQueries:
        """One query through the model's own word tower."""
        words = torch.from_numpy(prepare_words(query.words, max_words=self.model.config.max_words))[None]
        return self.model.encode_queries(QueryBatch(words=words, mask=torch.ones(words.shape[:2], dtype=torch.bool)))

    def corpus(self, encoded: Sequence[bytes], durations_s: Sequence[float]) -> TrainedCorpus:
        """The videos laid out for search."""
        return TrainedCorpus(self, encoded, durations_s)

    def restore(self, encoded: Sequence[bytes]) -> EncodedVideos:
        """What `encode_video` gave for several videos, as one record in single precision."""
        template = self.model.encode_videos(self._one_frame())
        videos = [template.with_tensors(self._named_as_now(load_tensors(blob), template)) for blob in encoded]
        return videos[0].cat(videos).to("cpu", torch.float32)

    def _one_frame(self) -> VideoBatch:
        config = self.model.config
        clips, frames = torch.zeros(1, config.num_clips, config.video_dim), torch.zeros(1, 1, config.video_dim)
        return VideoBatch(clips=clips, frames=frames, frame_mask=torch.ones(1, 1, dtype=torch.bool))

    def _named_as_now(self, stored: dict[str, Tensor], template: EncodedVideos) -> dict[str, Tensor]:
        """Stored tensors by their present names."""
        names = {name: name if name in stored else _FORMER_NAMES.get(name, name) for name in template.tensors()}
        if lacking := [name for name in names.values() if name not in stored]:
            raise IndexMismatchError(
                f"{self.folder}: the model gives {', '.join(lacking)}, which the library's encodings lack; encode "
                f"the library again with: untrimmed index --model none, then --model {self.folder}"
            )
        return {name: stored[former] for name, former in names.items()}


class TrainedCorpus:
    """Encoded videos in memory, ranked by the model's own score; moments by its own windows."""

    @torch.inference_mode()
    def __init__(self, model: TrainedModel, encoded: Sequence[bytes], durations_s: Sequence[float]):
        self._model = model
        self._videos = model.restore(encoded)
        self._durations_s = list(durations_s)

    def __len__(self) -> int:
        return len(self._durations_s)

    @torch.inference_mode()
    def rank(
        self, query: TextFeatures, *, limit: int, allowed: Bool[np.ndarray, " V"] | None = None
    ) -> list[RankedVideo]:
        """The best videos, best first; ties are decided by the row."""
        encoded = self._model.encode_query(query)
        parts = [
            self._model.model.score(encoded, self._videos.select(slice(start, start + _VIDEOS_AT_A_TIME))).fused[0]
            for start in range(0, len(self), _VIDEOS_AT_A_TIME)
        ]
        scores = torch.cat(parts).numpy()
        if allowed is not None:
            scores = np.where(allowed, scores, -np.inf)
        order = np.argsort(-scores, kind="stable")[:limit]
        return [RankedVideo(int(row), float(scores[row])) for row in order if np.isfinite(scores[row])]

    @torch.inference_mode()
    def moments(self, query: TextFeatures, row: int, *, limit: int) -> list[Moment]:
        """Separate spans of one video in seconds, best first: the best window, then the best that does not meet it."""
        ranked = self._model.model.locate(
            self._model.encode_query(query),
            self._videos.select(slice(row, row + 1)),
            torch.tensor([self._durations_s[row]], dtype=torch.float32),
            LocateSettings(limit=limit, per_video=1000, max_overlap=0.0),
        )
        spans = zip(ranked.span_s[0].tolist(), ranked.score[0].tolist(), ranked.video_index[0], strict=True)
        return [Moment(start_s, end_s, score) for (start_s, end_s), score, video in spans if video >= 0]

    @torch.inference_mode()
    def relevance(self, query: TextFeatures, row: int) -> tuple[Float[np.ndarray, " T"], Float[np.ndarray, " T"]]:
        """Times in seconds and how the model's own vectors there fit the query, by its own similarity."""
        encoded = self._model.encode_query(query)
        units, mask = self._model.model.timeline(self._videos.select(slice(row, row + 1)))
        fits = self._model.model.similarity(encoded, units if mask is None else units[:, mask[0]])[0, 0].numpy()
        return (np.arange(len(fits)) + 0.5) * (self._durations_s[row] / len(fits)), fits.astype(np.float64)
