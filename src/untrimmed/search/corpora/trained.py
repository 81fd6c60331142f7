"""Search with a trained model, which encodes the stored frames of a library and the queries.

A model works with any library that has the encoder of its training features. No video is decoded again: the stored
frames are resampled as in training (for a released model, to 32 clips and at most 128 frames).
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, TypeVar

import numpy as np
import torch
from jaxtyping import Float32, Int
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from untrimmed.batches import EncodedQueries, EncodedVideos, QueryBatch, VideoBatch
from untrimmed.config import read_yaml
from untrimmed.data.resampling import prepare_video, prepare_words
from untrimmed.errors import CheckpointError, IndexMismatchError
from untrimmed.models.base import RetrievalModel
from untrimmed.models.storage import WEIGHTS, load_model
from untrimmed.search.corpora.corpus import LocalCorpus
from untrimmed.search.corpora.encoded_block import EncodedBlock, join_blocks, rows_by_branch, sequence_tensors
from untrimmed.search.corpora.exact_scores import ScoringModel
from untrimmed.search.corpora.trained_query import UNCERTAINTY, TrainedQuery, rank_together
from untrimmed.search.pruning.ranking import RankedVideo
from untrimmed.search.store.records import absolute, batched_by_size
from untrimmed.types import FrameFeatures, TextFeatures

if TYPE_CHECKING:
    from untrimmed.search.store.table import StoredVideo

_VIDEOS_AT_A_TIME = 512
_VIDEOS_OF_BLOCK = 4096  # with smaller blocks, function calls would take longer than scans
C = TypeVar("C", bound="TrainedCorpus")
# Names of files that `running.run` writes. They are repeated here because search may not import that module.
_RUN_SETTINGS = "config.yaml"
_RUN_METRICS = "metrics.jsonl"


class TrainedModel:
    """A model in the folder of a run, or an imported model."""

    def __init__(self, folder: str | os.PathLike[str]):
        """Load the model. Raises CheckpointError if the folder has no model, or a damaged one."""
        self.folder = absolute(folder)
        if not (self.folder / WEIGHTS).is_file():
            raise CheckpointError(f"{self.folder}: no {WEIGHTS} here; name the folder that `untrimmed train` wrote")
        self.model: RetrievalModel = load_model(self.folder)
        digest = hashlib.blake2b((self.folder / WEIGHTS).read_bytes(), digest_size=6).hexdigest()
        self.identity = f"{self.model.name}:{digest}"

    def check_encoder(self, identity: str) -> None:
        """Check that the model was trained on features of this encoder.

        Imported models and runs on benchmarks are always accepted, because they do not record their encoder.

        Raises:
            IndexMismatchError: The model was trained on features of another encoder.
            ConfigError: The run's settings are damaged.
        """
        settings = self.folder / _RUN_SETTINGS
        data = read_yaml(settings).get("data") if settings.is_file() else None
        expected = data.get("encoder_identity") if isinstance(data, dict) else None
        if expected is not None and expected != identity:
            raise IndexMismatchError(
                f"{self.folder}: trained on features of encoder {expected}, but the library has encoder {identity}; "
                "train on features of this library (untrimmed features --library), or index into a new --library with "
                "that encoder"
            )

    def check_widths(self, *, frame_dim: int, word_dim: int) -> None:
        """Raise an IndexMismatchError if the model was trained on features of other widths."""
        config = self.model.config
        for kind, width, expected in (("frames", frame_dim, config.video_dim), ("words", word_dim, config.query_dim)):
            if width != expected:
                raise IndexMismatchError(
                    f"{self.folder}: trained on {kind} of width {expected}, but the library's encoder gives {width}; "
                    "use a model trained on features of this encoder (untrimmed features, untrimmed train)"
                )

    def _usual_uncertainty(self) -> float | None:
        """Return `Uncertainty.usual` from the best validation of the run, or None if the run has not recorded it."""
        try:
            lines = (self.folder / _RUN_METRICS).read_text(encoding="utf-8").splitlines()
            metrics = [json.loads(line)["val"] for line in lines]
            # the metric by which training selects the best epoch
            best = max(metrics, key=lambda val: val.get("event SumR", val["SumR"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None
        usual = best.get(f"{UNCERTAINTY}_p90")
        return usual if isinstance(usual, float) else None

    @torch.inference_mode()
    def encode_video(self, features: FrameFeatures) -> bytes:
        """Return a video's encoding as safetensors in half precision."""
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
        """Return the encoding of one query."""
        words = torch.from_numpy(prepare_words(query.words, max_words=self.model.config.max_words))[None]
        return self.model.encode_queries(QueryBatch(words=words, mask=torch.ones(words.shape[:2], dtype=torch.bool)))

    @cached_property
    def scorer(self) -> ScoringModel:
        """The model in the form that computes scores."""
        return ScoringModel(self.model, self.template, self._usual_uncertainty())

    def corpus(self) -> TrainedCorpus:
        """Return a corpus without videos."""
        return TrainedCorpus(self)

    def restore(self, encoded: Iterable[bytes]) -> list[EncodedVideos]:
        """Return encoded videos from results of `encode_video`, in half precision and without padding."""
        template = self.template
        return [template.with_tensors(self._required_tensors(load_tensors(blob), template)) for blob in encoded]

    @cached_property
    @torch.inference_mode()
    def template(self) -> EncodedVideos:
        """The encoding of a video with one zero frame. It has the same tensors as any other encoded video."""
        config = self.model.config
        clips = torch.zeros(1, config.num_clips, config.video_dim)
        frames = torch.zeros(1, 1, config.video_dim)
        mask = torch.ones(1, 1, dtype=torch.bool)
        return self.model.encode_videos(VideoBatch(clips=clips, frames=frames, frame_mask=mask))

    def _required_tensors(self, stored: dict[str, Tensor], template: EncodedVideos) -> dict[str, Tensor]:
        if missing := [name for name in template.tensors() if name not in stored]:
            raise IndexMismatchError(
                f"{self.folder}: the library's encodings lack {', '.join(missing)}, which the model computes; encode "
                f"the library again with: untrimmed index --model none, then --model {self.folder}"
            )
        return {name: stored[name] for name in template.tensors()}


class TrainedCorpus(LocalCorpus[EncodedBlock]):
    """Encoded videos in half precision, ranked by the model's own score.

    All videos are padded to the length of the longest video in the corpus. Otherwise some scores (JSG's) would depend
    on the other videos in the block. When the longest video changes, the other videos are padded again, but not encoded
    again.
    """

    min_size_for_codes: ClassVar[int] = 1000
    min_size_for_codes_at_once: ClassVar[int] = 1000
    coding_batch_size: ClassVar[int] = 256

    def __init__(self, model: TrainedModel):
        super().__init__(join_blocks, _VIDEOS_OF_BLOCK)
        self.model = model

    def prepare(self, query: TextFeatures) -> TrainedQuery:
        """Return the query, encoded by the model."""
        return TrainedQuery(self, self.model.scorer, self.model.encode_query(query))

    def rank_all(
        self, queries: Sequence[TextFeatures], *, limit: int, among: Collection[str] | None = None
    ) -> tuple[list[list[RankedVideo]], str]:
        """Return the results of `Corpus.rank_all`. Queries are ranked together, which is faster than one by one."""
        return rank_together([self.prepare(query) for query in queries], limit=limit, among=among), ""

    @property
    def block_format(self) -> str:
        """The name of the format.

        It contains a version number, which must be increased whenever the format of the arrays changes.
        """
        return f"trained 1 {self.model.identity}"

    @torch.inference_mode()
    def new_blocks(self, added: Iterable[StoredVideo]) -> Iterator[EncodedBlock]:
        """Yield blocks of stored videos. Videos that another model encoded are encoded again from their frames.

        Raises:
            IndexMismatchError: An encoding lacks tensors of this model.
        """
        identity = self.model.identity
        videos = (  # do not keep the features, which need much more memory
            (v.record, v.encoded if v.record.model == identity else self.model.encode_video(v.features)) for v in added
        )
        for batch in batched_by_size(videos, lambda _: 1, _VIDEOS_AT_A_TIME):
            records, blobs = zip(*batch, strict=True)
            encoded = self.model.restore(blobs)
            lengths = [[tensor.shape[1] for _, tensor in sequence_tensors(video)] for video in encoded]
            yield EncodedBlock.of(
                ids=[record.video_id for record in records],
                durations_s=np.array([record.duration_s for record in records]),
                videos=encoded[0].cat(encoded),
                lengths=np.array(lengths, dtype=np.int64),
            )

    def cached_block(self, arrays: Mapping[str, np.ndarray]) -> EncodedBlock:
        """Return a block of arrays that were read from the cache."""
        return EncodedBlock(arrays, self.model.template)

    @torch.inference_mode()
    def sketch(
        self, block: EncodedBlock, rows: Int[np.ndarray, " K"]
    ) -> dict[str, tuple[Float32[np.ndarray, "R D"], Int[np.ndarray, " K"]]]:
        """Return the vectors of these videos, and the number of vectors of each video. See `LocalCorpus.sketch`."""
        return rows_by_branch(self.model.model.sketch(block.select(rows)))

    def context(self, block: EncodedBlock) -> str:
        """Return the length of the longest video as text, because codes depend on the padding."""
        return repr(block.padded_lengths)

    def request_codes(self, num_videos: int) -> bool:
        """Record a search, and return whether it should use codes.

        If so, copies of the blocks in single precision are not needed, and their memory is freed.
        """
        if use_codes := super().request_codes(num_videos):
            for part in self.blocks.parts:
                part.block.free_videos()
        return use_codes

    def shard_summary(self) -> Int[np.ndarray, " N"] | None:
        """Return the largest length of each tensor's second axis, for other shards, or None if there are no videos."""
        lengths = [part.block.lengths[part.present].max(axis=0) for part in self.blocks.parts]
        return np.max(lengths, axis=0) if lengths else None

    def as_shard(self: C, other_summaries: Sequence[Int[np.ndarray, " N"] | None]) -> C:
        """Return the corpus with blocks that are padded to the longest video of all shards."""
        lengths = [summary for summary in (self.shard_summary(), *other_summaries) if summary is not None]
        corpus = copy.copy(self)
        if self.blocks.parts:
            corpus.blocks = self.blocks.map_blocks(lambda block: block.padded_to(np.max(lengths, axis=0)))
        return corpus
