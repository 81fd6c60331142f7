"""A trained model in the place of the training-free search: it encodes a library's stored frames and its queries.

A checkpoint trained on features of an encoder serves every library made with that encoder: frames are resampled as in
training (32 clips and at most 128 frames of a released model), so nothing is decoded again.
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
from untrimmed.search.cache.blocks import batched_by_size
from untrimmed.search.corpora.corpus import LocalCorpus
from untrimmed.search.corpora.encoded_block import EncodedBlock, branches_of, joined, long_tensors
from untrimmed.search.corpora.exact_scores import Scorer
from untrimmed.search.corpora.trained_query import DOUBT, TrainedQuery, rank_together
from untrimmed.search.pruning.ranking import RankedVideo
from untrimmed.search.store.records import absolute
from untrimmed.types import FrameFeatures, TextFeatures

if TYPE_CHECKING:
    from untrimmed.search.store.table import StoredVideo

_VIDEOS_AT_A_TIME = 512
_VIDEOS_OF_BLOCK = 4096  # for fewer each, more time would go into calls than into scans
C = TypeVar("C", bound="TrainedCorpus")
_RUN_SETTINGS, _RUN_FIGURES = "config.yaml", "metrics.jsonl"  # of `running.run`, on which search may not depend


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

    def _usual_doubt(self) -> float | None:
        """What nine in ten captions of the validation split did not exceed when the model was the best of its run.

        None for models that predict none, that were imported, or whose run was made before this was written down.
        """
        try:
            lines = (self.folder / _RUN_FIGURES).read_text(encoding="utf-8").splitlines()
            figures = [json.loads(line)["val"] for line in lines]
            best = max(figures, key=lambda val: val.get("event SumR", val["SumR"]))  # the first is there if it chose
        except (OSError, ValueError, KeyError, TypeError):
            return None
        usual = best.get(f"{DOUBT}_p90")
        return usual if isinstance(usual, float) else None

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

    @cached_property
    def scorer(self) -> Scorer:
        """How this model scores videos."""
        return Scorer(self.model, self.template, self._usual_doubt())

    def corpus(self) -> TrainedCorpus:
        """Videos laid out for search; without any, `update` adds them."""
        return TrainedCorpus(self)

    def restore_each(self, encoded: Iterable[bytes]) -> list[EncodedVideos]:
        """What `encode_video` gave for several videos, each as long as it is, in half precision."""
        template = self.template
        return [template.with_tensors(self._checked(load_tensors(blob), template)) for blob in encoded]

    @cached_property
    @torch.inference_mode()
    def template(self) -> EncodedVideos:
        """An encoding that says which tensors the model gives."""
        return self.model.encode_videos(self._one_frame())

    def _one_frame(self) -> VideoBatch:
        config = self.model.config
        clips, frames = torch.zeros(1, config.num_clips, config.video_dim), torch.zeros(1, 1, config.video_dim)
        return VideoBatch(clips=clips, frames=frames, frame_mask=torch.ones(1, 1, dtype=torch.bool))

    def _checked(self, stored: dict[str, Tensor], template: EncodedVideos) -> dict[str, Tensor]:
        if lacking := [name for name in template.tensors() if name not in stored]:
            raise IndexMismatchError(
                f"{self.folder}: the model gives {', '.join(lacking)}, which the library's encodings lack; encode "
                f"the library again with: untrimmed index --model none, then --model {self.folder}"
            )
        return {name: stored[name] for name in template.tensors()}


class TrainedCorpus(LocalCorpus[EncodedBlock]):
    """Encoded videos in blocks of half precision, ranked by the model's own score; moments by its own windows.

    All count as long as the longest video of the corpus: there are scores that read padding (JSG's, where frames are
    padded). The score of a video is that of itself alone, whatever block it stands in. So where the longest video comes
    or goes, what was made of the others in memory is made anew; nothing is read or encoded again.
    """

    least_coded: ClassVar[int] = 1000
    least_coded_at_once: ClassVar[int] = 1000
    coded_together: ClassVar[int] = 256

    def __init__(self, model: TrainedModel):
        super().__init__(joined, _VIDEOS_OF_BLOCK)
        self.model = model

    def prepare(self, query: TextFeatures) -> TrainedQuery:
        """Return the query as the model's word tower encodes it."""
        return TrainedQuery(self, self.model.scorer, self.model.encode_query(query))

    def rank_all(
        self,
        queries: Sequence[TextFeatures],
        *,
        limit: int,
        among: Collection[str] | None = None,
    ) -> tuple[list[list[RankedVideo]], str]:
        """See `Corpus.rank_all`; many queries together cost less each than one alone."""
        return rank_together([self.prepare(query) for query in queries], limit=limit, among=among), ""

    @property
    def layout(self) -> str:
        """See `LocalCorpus`; the number changes with the form of the arrays."""
        return f"trained 1 {self.model.identity}"

    @torch.inference_mode()
    def new_blocks(self, added: Iterable[StoredVideo]) -> Iterator[EncodedBlock]:
        """See `LocalCorpus`; videos that another model encoded are encoded by this one, from their frames.

        Raises:
            IndexMismatchError: The table has something else for this model.
        """
        each = ((video.record, self._encoded(video)) for video in added)
        for some in batched_by_size(each, lambda _: 1, _VIDEOS_AT_A_TIME):
            records, blobs = zip(*some, strict=True)
            encoded = self.model.restore_each(blobs)
            lengths = [[tensor.shape[1] for _, tensor in long_tensors(video)] for video in encoded]
            yield EncodedBlock.of(
                ids=[record.video_id for record in records],
                durations_s=np.array([record.duration_s for record in records]),
                videos=encoded[0].cat(encoded),
                lengths=np.array(lengths, dtype=np.int64),
            )

    def cached_block(self, arrays: Mapping[str, np.ndarray]) -> EncodedBlock:
        """See `LocalCorpus`."""
        return EncodedBlock(arrays, self.model.template)

    @torch.inference_mode()
    def sketch(
        self, block: EncodedBlock, rows: Int[np.ndarray, " K"]
    ) -> dict[str, tuple[Float32[np.ndarray, "R D"], Int[np.ndarray, " K"]]]:
        """See `LocalCorpus`."""
        return branches_of(self.model.model.sketch(block.select(rows)))

    def context(self, block: EncodedBlock) -> str:
        """See `LocalCorpus`: a sketch depends on the longest video."""
        return repr(block.longest)

    def codes_are_ready(self, num_videos: int) -> bool:
        """See `LocalCorpus`; with codes, searches need no copy of the blocks in single precision."""
        if is_ready := super().codes_are_ready(num_videos):
            for part in self.blocks.parts:
                part.block.forget()
        return is_ready

    def extent(self) -> Int[np.ndarray, " N"] | None:
        """How long its longest video is, along each second axis."""
        lengths = [part.block.lengths[part.present].max(axis=0) for part in self.blocks.parts]
        return np.max(lengths, axis=0) if lengths else None

    def beside(self: C, others: Sequence[Int[np.ndarray, " N"] | None]) -> C:
        """See `LocalCorpus`: blocks are as long as the longest video of all shards."""
        known = [lengths for lengths in (self.extent(), *others) if lengths is not None]
        corpus = copy.copy(self)
        if self.blocks.parts:
            corpus.blocks = self.blocks.each(lambda block: block.as_long_as(np.max(known, axis=0)))
        return corpus

    def _encoded(self, video: StoredVideo) -> bytes:
        """A change of model that is under way, or was interrupted, leaves some videos encoded by the other model."""
        is_own = video.record.model == self.model.identity
        return video.encoded if is_own else self.model.encode_video(video.features)
