"""A trained model in the place of the training-free windows: it encodes a library's stored frames and its queries.

A checkpoint trained on features of an encoder serves every library made with that encoder: frames are resampled as in
training (32 clips and at most 128 frames of a released model), so nothing is decoded again.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Float32, Int
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
from untrimmed.search.best_rows import BestRows
from untrimmed.search.blocks import Blocks, Part, Split
from untrimmed.search.candidates import Candidates
from untrimmed.search.coded_blocks import CodedVideoBlocks
from untrimmed.search.coded_videos import Arrays, CodedVideos, Coder
from untrimmed.search.codes import Probe
from untrimmed.search.corpus import Doubt, KeptBlock, RankedVideo
from untrimmed.search.encoded_block import EncodedBlock, branches_of, joined, long_tensors
from untrimmed.search.exact_scores import Read, exact_scores, read_whole
from untrimmed.search.shortfalls import Shortfalls
from untrimmed.search.together import rank_together
from untrimmed.search.video_names import absolute
from untrimmed.types import FrameFeatures, Moment, TextFeatures

if TYPE_CHECKING:
    from untrimmed.search.index import StoredVideo

_VIDEOS_AT_A_TIME = 512
_CODED_AT_A_TIME = 256
LEAST_CODED = 1000  # of videos: fewer are compared in as little time
_VIDEOS_OF_BLOCK = 4096  # for fewer each, more time would go into calls than into scans
_ROUNDING = 1e-5  # more than a video's score among others can be off from its score alone
_FORMER_NAMES = {"prototypes.unit_attention": "unit_attention"}  # in libraries of the first versions
_RUN_SETTINGS, _RUN_FIGURES = "config.yaml", "metrics.jsonl"  # of `running.run`, on which search may not depend
_DOUBT = "query_uncertainty"  # what the model calls it


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
        usual = best.get(f"{_DOUBT}_p90")
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


class TrainedQuery:
    """An encoded query before the videos of a corpus."""

    def __init__(self, corpus: TrainedCorpus, encoded: EncodedQueries, recall: float = 1.0):
        self._trained, self._shortfalls = corpus.model, corpus.shortfalls
        self.blocks, self.coder, self._model, self._encoded = corpus.blocks, corpus.coder, corpus.model.model, encoded
        self._recall, self._code, self._usual = recall, corpus.coded, corpus.model.usual_doubt
        self._looked_at = 0  # videos that the method's own score was taken of
        self._read: Read = read_whole  # how they are read for it
        self.known: Callable[[], Float32[np.ndarray, "P V"]] | None = None  # see `Together.most`

    @torch.inference_mode()
    def rank(self, *, limit: int, among: Collection[str] | None = None) -> list[RankedVideo]:
        """The best videos by the model's own score, see `PreparedQuery.rank`.

        Where many videos have been searched some times, codes tell which can be among the best.
        """
        many = len(self.blocks) if among is None else len(among)
        candidates, self._looked_at = self._candidates() if self._codes_are_ready(many, limit) else None, 0
        self._read = self._trained.best_rows.reader(self.coded, self.probes) if candidates else read_whole
        bounds = candidates.bounds if candidates else ()
        ranked = self.blocks.rank(self._rough, self._exact, rounding=_ROUNDING, limit=limit, among=among, bounds=bounds)
        if candidates:
            self.coder.learn(self._looked_at / many)
            if self._recall < 1 and candidates.allowance is None and not self.known and ranked:
                split = self.blocks.split([video.video_id for video in ranked])
                scores = np.array([video.score for video in ranked])
                self._shortfalls.learn(candidates.shortfalls(split, scores))
        return ranked

    def _codes_are_ready(self, many: int, limit: int) -> bool:
        if many < LEAST_CODED or 4 * limit > many or not self.num_vectors or not self.is_finite:
            return False
        blocks = [part.block for part in self.blocks.parts]
        if is_ready := self.coder.ready(blocks, self._code, many=True):
            for block in blocks:
                block.forget()
        return is_ready

    def _candidates(self) -> Candidates[EncodedBlock]:
        coded, allowance = self.coded, None
        if self._recall < 1 and not self.known:
            allowance = self._shortfalls.allowance((1 + self._recall) / 2)
        return Candidates(
            coded,
            lambda branch, probe, split, needed: coded[branch].by_rows(probe, split, needed),
            self.probes,
            fuzz=2 * _ROUNDING,
            allowance=allowance,
            known=self.known,
        )

    @property
    def coded(self) -> dict[str, CodedVideoBlocks]:
        """Once there are codes: those of all blocks by branch."""
        return self.coder.together(self.blocks, CodedVideoBlocks)

    @cached_property
    def probes(self) -> list[tuple[str, Probe]]:
        """Once there are codes: what the query looks for in each branch."""
        return [
            (branch, coded.axes.probe(row, self._recall))
            for branch, coded in self.coded.items()
            for row in self.vectors[branch]
        ]

    def _rough(self, split: Split[EncodedBlock]) -> Float[np.ndarray, " N"]:
        return np.concatenate([self._scores(block, rows) for block, rows in split])

    def _exact(self, split: Split[EncodedBlock]) -> Float[np.ndarray, " N"]:
        self._looked_at += sum(len(rows) for _, rows in split)
        return exact_scores(self._trained.in_float64, self._encoded, split, self._read)

    def _scores(self, block: EncodedBlock, rows: Int[np.ndarray, " K"]) -> Float32[np.ndarray, " K"]:
        if 2 * len(rows) > len(block.ids):
            return self._model.score(self._encoded, block.videos).fused[0].numpy()[rows]
        return self._model.score(self._encoded, block.select(rows)).fused[0].numpy()

    @cached_property
    def vectors(self) -> dict[str, Float32[np.ndarray, "M D"]]:
        """What the query looks for in each branch, without what has no weight."""
        branches = {branch: rows[0].numpy() for branch, rows in self._model.probe(self._encoded).items()}
        return {branch: rows[(rows != 0).any(axis=1)] for branch, rows in branches.items()}

    @property
    def num_vectors(self) -> int:
        """Of all branches together."""
        return sum(map(len, self.vectors.values()))

    @property
    def is_finite(self) -> bool:
        """Whether codes say anything of it."""
        return all(np.isfinite(rows).all() for rows in self.vectors.values())

    def word_weights(self) -> Float[np.ndarray, " N"] | None:
        """Those of the model (RAL, Fig. 8), see `Explained`."""
        weights = self._model.word_weights(self._encoded)
        return None if weights is None else weights[0].numpy()

    def doubt(self) -> Doubt | None:
        """The predicted deviation (RAL, Fig. 3) of a model whose run tells what is usual, see `Explained`."""
        deviation = self._model.watched_queries(self._encoded).get(_DOUBT)
        return None if deviation is None or self._usual is None else Doubt(deviation.item(), self._usual)

    @torch.inference_mode()
    def moments(self, video_id: str, *, limit: int) -> list[Moment]:
        """Separate spans of one video in seconds, best first: the best window, then the best that does not meet it."""
        block, row = self.blocks.find(video_id)
        duration_s = torch.tensor([block.durations_s[row]], dtype=torch.float32)
        settings = LocateSettings(limit=limit, per_video=1000, max_overlap=0.0)
        ranked = self._model.locate(self._encoded, block.video(row), duration_s, settings)
        spans = zip(ranked.span_s[0].tolist(), ranked.score[0].tolist(), ranked.video_index[0], strict=True)
        return [Moment(start_s, end_s, score) for (start_s, end_s), score, video in spans if video >= 0]

    @torch.inference_mode()
    def relevance(self, video_id: str) -> tuple[Float[np.ndarray, " T"], Float[np.ndarray, " T"]]:
        """Times in seconds and how the model's own vectors there fit the query, by its own similarity."""
        block, row = self.blocks.find(video_id)
        units, mask = self._model.timeline(block.video(row))
        fits = self._model.similarity(self._encoded, units if mask is None else units[:, mask[0]])[0, 0].numpy()
        return (np.arange(len(fits)) + 0.5) * (block.durations_s[row] / len(fits)), fits.astype(np.float64)
