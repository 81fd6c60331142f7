"""A trained model in the place of the training-free windows: it encodes a library's stored frames and its queries.

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
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Int
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from untrimmed.batches import EncodedQueries, EncodedVideos, QueryBatch, VideoBatch
from untrimmed.config import read_yaml
from untrimmed.data.resampling import prepare_video, prepare_words
from untrimmed.errors import CheckpointError, IndexMismatchError
from untrimmed.models.base import RetrievalModel
from untrimmed.models.storage import WEIGHTS, load_model
from untrimmed.search.cache.blocks import Blocks, Part
from untrimmed.search.cache.encoded_block import EncodedBlock, branches_of, joined, long_tensors
from untrimmed.search.corpora.best_rows import BestRows
from untrimmed.search.corpora.corpus import KeptBlock, RankedVideo
from untrimmed.search.corpora.together import rank_together
from untrimmed.search.corpora.trained_query import DOUBT, TrainedQuery
from untrimmed.search.pruning.coded_videos import Arrays, CodedVideos, Coder
from untrimmed.search.pruning.shortfalls import Shortfalls
from untrimmed.search.store.video_names import absolute
from untrimmed.types import FrameFeatures, TextFeatures

if TYPE_CHECKING:
    from untrimmed.search.store.table import StoredVideo

_VIDEOS_AT_A_TIME = 512
_CODED_AT_A_TIME = 256
LEAST_CODED = 1000  # of videos: fewer are compared in as little time
_VIDEOS_OF_BLOCK = 4096  # for fewer each, more time would go into calls than into scans
_FORMER_NAMES = {"prototypes.unit_attention": "unit_attention"}  # in libraries of the first versions
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

    @cached_property
    def usual_doubt(self) -> float | None:
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
    def in_float64(self) -> RetrievalModel:
        """A copy of the model, for scores that are the same whatever is computed beside them."""
        return copy.deepcopy(self.model).double()

    @cached_property
    def best_rows(self) -> BestRows:
        """How videos are read of which few rows count."""
        return BestRows(self.model, self.template)

    def corpus(self) -> TrainedCorpus:
        """Videos laid out for search; without any, `update` adds them."""
        return TrainedCorpus(self)

    def restore_each(self, encoded: Iterable[bytes]) -> list[EncodedVideos]:
        """What `encode_video` gave for several videos, each as long as it is, in half precision."""
        template = self.template
        return [template.with_tensors(self._named_as_now(load_tensors(blob), template)) for blob in encoded]

    @cached_property
    @torch.inference_mode()
    def template(self) -> EncodedVideos:
        """An encoding that says which tensors the model gives."""
        return self.model.encode_videos(self._one_frame())

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
    """Encoded videos in blocks of half precision, ranked by the model's own score; moments by its own windows.

    All count as long as the longest video of the corpus: there are scores that read padding (JSG's, where frames are
    padded). The score of a video is that of itself alone, whatever block it stands in. So where the longest video comes
    or goes, what was made of the others in memory is made anew; nothing is read or encoded again.
    """

    def __init__(self, model: TrainedModel):
        self.model = model
        self.blocks: Blocks[EncodedBlock] = Blocks(joined, _VIDEOS_OF_BLOCK)
        self.coder: Coder[EncodedBlock, CodedVideos] = Coder(CodedVideos)  # all that `update` gives share it
        self.shortfalls = Shortfalls()  # and this

    def __len__(self) -> int:
        return len(self.blocks)

    def prepare(self, query: TextFeatures, *, recall: float = 1.0) -> TrainedQuery:
        """The query through the model's word tower."""
        return TrainedQuery(self, self.model.encode_query(query), recall)

    def rank_all(
        self,
        queries: Sequence[TextFeatures],
        *,
        limit: int,
        recall: float = 1.0,
        among: Collection[str] | None = None,
    ) -> list[list[RankedVideo]]:
        """See `RanksMany`."""
        return rank_together([self.prepare(query, recall=recall) for query in queries], limit=limit, among=among)

    @torch.inference_mode()
    def update(self, added: Iterable[StoredVideo], removed: Iterable[str] = ()) -> TrainedCorpus:
        """`Corpus.update`; videos that another model has encoded are encoded by this one, from their frames.

        Raises:
            IndexMismatchError: What the library keeps of a video is not what the model gives.
        """
        corpus = copy.copy(self)
        corpus.blocks = self.blocks.update(self._laid_out(added), removed)
        return corpus.beside([])

    @property
    def layout(self) -> str:
        """See `Keepable`; the number changes with what blocks have in their arrays."""
        return f"trained 1 {self.model.identity}"

    def arrays(self) -> Sequence[Mapping[str, np.ndarray]]:
        """See `Keepable`."""
        return [part.block.arrays for part in self.blocks.parts]

    def restored(self, kept: Iterable[KeptBlock]) -> TrainedCorpus:
        """See `Keepable`."""
        kept, corpus = list(kept), copy.copy(self)
        parts = [Part(EncodedBlock(arrays, self.model.template), present) for arrays, present, _ in kept]
        corpus.blocks = self.blocks.of(parts)
        corpus = corpus.beside([])
        for part, (_, _, codes) in zip(corpus.blocks.parts, kept, strict=True):
            self.coder.keep(part.block, codes, repr(part.block.longest))
        return corpus

    def lacking_codes(self) -> Iterator[tuple[EncodedBlock, Arrays, Arrays]]:
        """See `Keepable`."""
        if len(self.blocks) >= LEAST_CODED:
            yield from self.coder.lacking([part.block for part in self.blocks.parts], self.coded)

    def codes_are_ready(self, many: int) -> bool:
        """Whether a search of so many videos may look at codes first; it counts as one: see `Coder.ready`."""
        blocks = [part.block for part in self.blocks.parts]
        if is_ready := min(many, len(self.blocks)) >= LEAST_CODED and self.coder.ready(blocks, self.coded, many=True):
            for block in blocks:
                block.forget()
        return is_ready

    def coded(self, block: EncodedBlock) -> dict[str, CodedVideos]:
        """Codes of a block by branch, made of some videos at a time: a sketch may be larger than what is kept of it."""
        parts: dict[str, list[CodedVideos]] = {}
        for start in range(0, len(block.ids), _CODED_AT_A_TIME):
            with torch.inference_mode():
                sketch = self.model.model.sketch(block.select(np.arange(start, len(block.ids))[:_CODED_AT_A_TIME]))
            for branch, (vectors, counts) in branches_of(sketch).items():
                axes = self.coder.axes(branch, vectors)
                parts.setdefault(branch, []).append(CodedVideos.of(axes, vectors, counts))
        return {branch: CodedVideos.joined(some) for branch, some in parts.items()}

    def extent(self) -> Int[np.ndarray, " N"] | None:
        """How long its longest video is, along each second axis; see `Shardable`."""
        lengths = [part.block.lengths[part.present].max(axis=0) for part in self.blocks.parts]
        return np.max(lengths, axis=0) if lengths else None

    def beside(self, others: Sequence[Int[np.ndarray, " N"] | None]) -> TrainedCorpus:
        """The corpus as one shard: its blocks are as long as the longest video of all of them."""
        known = [lengths for lengths in (self.extent(), *others) if lengths is not None]
        corpus = copy.copy(self)
        if self.blocks.parts:
            corpus.blocks = self.blocks.each(lambda block: block.as_long_as(np.max(known, axis=0)))
        return corpus

    def _laid_out(self, added: Iterable[StoredVideo]) -> Iterator[EncodedBlock]:
        videos = iter(added)
        while some := [(video.record, self._encoded(video)) for video in islice(videos, _VIDEOS_AT_A_TIME)]:
            records, blobs = zip(*some, strict=True)
            encoded = self.model.restore_each(blobs)
            lengths = [[tensor.shape[1] for _, tensor in long_tensors(video)] for video in encoded]
            yield EncodedBlock.of(
                ids=[record.video_id for record in records],
                durations_s=np.array([record.duration_s for record in records]),
                videos=encoded[0].cat(encoded),
                lengths=np.array(lengths, dtype=np.int64),
            )

    def _encoded(self, video: StoredVideo) -> bytes:
        """A change of model that is under way, or was interrupted, leaves some videos encoded by the other model."""
        is_own = video.record.model == self.model.identity
        return video.encoded if is_own else self.model.encode_video(video.features)
