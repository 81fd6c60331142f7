"""How long a trained model takes to rank many videos, with all float32 vectors and with codes, alternating.

    python benchmarks/ranking_speed.py [--videos 2500] [--queries 20] [--methods gmmformer ...]

Models have the published sizes for TVR and random weights. Encodings are synthetic: each video moves through three to
six of 4,096 directions, whose variance falls like that of learned vectors, with noise smooth in time. Each query
is derived from a moment of a video. Both ways must give the same ranking. OMP_NUM_THREADS and taskset set the threads.
"""

import argparse
import time
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor

from untrimmed.batches import EncodedQueries, EncodedVideos, QueryBatch, VideoBatch
from untrimmed.models.base import RetrievalModel
from untrimmed.models.registry import create_model
from untrimmed.presets import load_preset
from untrimmed.search.corpora.encoded_block import EncodedBlock
from untrimmed.search.corpora.exact_scores import ScoringModel
from untrimmed.search.corpora.trained import TrainedCorpus
from untrimmed.search.corpora.trained_query import TrainedQuery
from untrimmed.search.pruning import coder

METHODS = ("ms_sl", "gmmformer", "gmmformer_v2", "gmmformer_v2+ral", "proto", "dl_dkd", "jsg")
VIDEOS_AT_A_TIME = 500


class World:
    """Made vectors of one width."""

    def __init__(self, dim: int):
        rng = np.random.default_rng(dim)
        self.spread = (1.0 + np.arange(dim)) ** -0.5
        self.directions = unit(rng.standard_normal((4096, dim)) * self.spread)

    def videos(self, rng: np.random.Generator, number: int, length: int) -> np.ndarray:
        """Rows along each video."""
        topics = self.directions[rng.integers(0, 4096, (number, 6))] + 0.7 * self.noise(rng, (number, 6))
        weights = np.exp(
            -0.5 * ((np.linspace(0, 1, length)[None, :, None] - rng.random((number, 1, 6))) / 0.06) ** 2
        ) * (np.arange(6) < rng.integers(3, 7, (number, 1, 1)))
        noise = self.noise(rng, (number, length))
        for row in range(1, length):
            noise[:, row] = 0.8 * noise[:, row - 1] + 0.6 * noise[:, row]
        return unit(unit(weights @ topics + 1e-9) + 0.5 * noise)

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        """Of length 1 in the mean."""
        return rng.standard_normal((*shape, len(self.spread))) * (self.spread / np.linalg.norm(self.spread))


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def made(template: EncodedVideos, number: int, rng: np.random.Generator) -> EncodedVideos:
    """As many encodings like this one."""
    tensors: dict[str, Tensor] = {}
    for name, tensor in template.tensors().items():
        if tensor.dtype == torch.bool or name == "unit_attention":
            tensors[name] = tensor.expand(number, *tensor.shape[1:]).clone()
        else:
            length = tensor.shape[1] if tensor.ndim == 3 else 32
            rows = WORLDS.setdefault(tensor.shape[-1], World(tensor.shape[-1])).videos(rng, number, length)
            tensors[name] = torch.from_numpy(rows if tensor.ndim == 3 else unit(rows.mean(axis=1))).float()
    return template.with_tensors(tensors)


def asked(template: EncodedQueries, videos: EncodedVideos, row: int, rng: np.random.Generator) -> EncodedQueries:
    """A query like this one, made from a moment of a video."""
    tensors = template.tensors()
    place, rows = rng.random(), videos.tensors()["clips" if videos.clips is not None else "frames"][row]
    moment = rows[int(place * len(rows))].numpy()
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and tensor.shape[-1] == len(moment) and tensor.ndim > 1:
            noise = WORLDS[len(moment)].noise(rng, tuple(tensor.shape[:-1]))
            tensors[name] = torch.from_numpy(unit(moment + 1.5 * noise)).float()
    return template.with_tensors(tensors)


def corpus_of(model: RetrievalModel, number: int) -> TrainedCorpus:
    config, rng = model.config, np.random.default_rng(0)
    one = VideoBatch(
        clips=torch.randn(1, config.num_clips, config.video_dim),
        frames=torch.randn(1, config.max_frames, config.video_dim),
        frame_mask=torch.ones(1, config.max_frames, dtype=torch.bool),
    )
    template = model.encode_videos(one)
    corpus = TrainedCorpus(SimpleNamespace(model=model, scorer=ScoringModel(model, template)))  # type: ignore[arg-type]  # it only scores
    blocks = []
    for start in range(0, number, VIDEOS_AT_A_TIME):
        ids = tuple(str(video) for video in range(start, min(start + VIDEOS_AT_A_TIME, number)))
        lengths = [tensor.shape[1] for tensor in template.tensors().values() if tensor.ndim > 1]
        videos = made(template, len(ids), rng)
        blocks.append(EncodedBlock.of(ids, np.ones(len(ids)), videos, np.tile(lengths, (len(ids), 1))))
    corpus.blocks = corpus.blocks.update(blocks, ())
    return corpus


WORLDS: dict[int, World] = {}


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--videos", type=int, default=2500)
    parser.add_argument("--queries", type=int, default=20)
    parser.add_argument("--methods", nargs="+", default=METHODS)
    options = parser.parse_args()
    print(f"{options.videos} videos, medians of {options.queries} queries, the best 10 of each")
    print(f"{'':18} {'float32':>10} {'codes':>10} {'times':>7}   kB a video: {'float32':>7} {'rows':>7} {'codes':>7}")
    for method in options.methods:
        torch.manual_seed(0)
        model = create_model(method, **load_preset(method, "tvr").settings).eval()
        corpus = corpus_of(model, options.videos)
        words = torch.randn(1, 12, model.config.query_dim)
        template = model.encode_queries(QueryBatch(words=words, mask=torch.ones(1, 12, dtype=torch.bool)))
        rng, times = np.random.default_rng(1), {"float32": [], "codes": []}
        for number in range(options.queries + 2):
            part = corpus.blocks.parts[0].block
            query = asked(template, part.videos, int(rng.integers(len(part.ids))), rng)
            ranked = {}
            for way, least in (("float32", options.videos + 1), ("codes", 1)):
                TrainedCorpus.min_size_for_codes = least
                coder.LEAST_SEARCHES = 0
                corpus.coder.wait()
                assert all(len(part.block.videos) for part in corpus.blocks.parts), "made before the clock starts"
                prepared = TrainedQuery(corpus, corpus.model.scorer, query)
                began = time.perf_counter()
                ranked[way] = prepared.rank(limit=10)
                if number > 1:
                    times[way].append(time.perf_counter() - began)
            assert ranked["codes"] == ranked["float32"], method
        medians = {way: 1000 * float(np.median(some)) for way, some in times.items()}
        ratio = medians["float32"] / medians["codes"]
        blocks = [part.block for part in corpus.blocks.parts]
        coded = [codes for together in corpus.coder.coded_blocks(corpus.blocks).values() for codes in together.blocks]
        sizes = (
            sum(tensor.nbytes for block in blocks for tensor in block.videos.tensors().values()),
            sum(videos.codes.nbytes + videos.rows.nbytes for videos in coded),
            sum(videos.codes.nbytes for videos in coded),
        )
        kilobytes = " ".join(f"{size / options.videos / 1e3:7.1f}" for size in sizes)
        spent = f"{medians['float32']:7.1f} ms {medians['codes']:7.1f} ms {ratio:7.1f}"
        print(f"{method:18} {spent}               {kilobytes}", flush=True)


if __name__ == "__main__":
    main()
