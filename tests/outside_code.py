"""The source of a plug-in: a method, an attachment, a loss, a layout and a benchmark, and a module that it imports."""

import json
import sys
from contextlib import contextmanager

import numpy as np

from untrimmed import plugins
from untrimmed.data import layouts
from untrimmed.data.benchmarks import registry as benchmarks
from untrimmed.models.registry import ATTACHMENTS, METHODS

MODULE = '''
"""Diary: the mean word against the best frame."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from diary_losses import TEMPERATURE
from untrimmed.batches import EncodedQueries, EncodedVideos
from untrimmed.data.annotations import Annotation
from untrimmed.data.benchmarks.benchmark import Benchmark
from untrimmed.data.benchmarks.registry import register_benchmark
from untrimmed.data.layouts import register_layout
from untrimmed.losses.nce import nce
from untrimmed.models.attachment import AttachedLoss, Attachment, AttachmentConfig
from untrimmed.models.base import ModelConfig, RetrievalModel
from untrimmed.models.registry import register
from untrimmed.scores.max_sim import max_sim
from untrimmed.scores.score import Score, Scores


@register("diary_frames")
class Frames(RetrievalModel):
    @dataclass(frozen=True, kw_only=True)
    class Config(ModelConfig):
        pass

    def __init__(self, config):
        super().__init__(config)
        self.words, self.frames = nn.Linear(config.query_dim, config.dim), nn.Linear(config.video_dim, config.dim)

    def compute_query_vectors(self, queries):
        words = self.words(queries.words) * queries.mask[..., None]
        return EncodedQueries(sentence=words.sum(dim=1) / queries.mask.sum(dim=1, keepdim=True))

    def compute_video_vectors(self, videos):
        return EncodedVideos(frames=self.frames(videos.frames), frame_mask=videos.frame_mask)

    def compute_scores(self, queries, videos):
        return Scores({"frame": max_sim(queries.sentence, videos.frames, videos.frame_mask)}, {"frame": 1.0})

    def compute_losses(self, step):
        frame = self.compute_scores(step.queries, step.videos)["frame"].value
        return {"nce": nce(frame / TEMPERATURE, step.batch.video_index)}


@register("diary_bias")
class Bias(Attachment):
    @dataclass(frozen=True, kw_only=True)
    class Config(AttachmentConfig):
        pass

    def __init__(self, config, model):
        super().__init__(config, model)
        self.share = nn.Parameter(torch.tensor(0.5))

    def score(self, model, queries, videos):
        return Scores({"bias": Score(self.share.expand(len(queries), len(videos)))}, {"bias": 1.0})


@register("diary_short")
class Short(AttachedLoss):
    @dataclass(frozen=True, kw_only=True)
    class Config(AttachmentConfig):
        pass

    def term(self, queries, videos, video_index):
        return queries.sentence.square().mean()


@register_layout("diary")
class Diary:
    def recognises(self, folder):
        return (folder / "diary.json").is_file()

    def captions(self, folder, split):
        lines = json.loads((folder / "diary.json").read_text())
        return [Annotation(v, f"{v}#{i}", text, ((0.0, 2.0),), 6.0) for s, v, i, text in lines if s == split]

    def frames(self, folder):
        return dict(np.load(folder / "pictures.npz"))

    def words(self, folder):
        return dict(np.load(folder / "sentences.npz"))


def read(path: Path) -> list[Annotation]:
    return [Annotation(line, f"{line}#0", "a page", ((0.0, 1.0),), 2.0) for line in path.read_text().split()]


register_benchmark(
    Benchmark(
        name="pages", title="Pages", paper="", read=read, files={"all": ("pages.txt",)},
        parts={"train": "all", "val": "all", "test": "all"}, sizes={},
    )
)
'''
PRESET = """
method: diary_frames+diary_bias+diary_short
dataset: diary
model: {query_dim: 4, video_dim: 4, dim: 8}
losses: {diary_short: {}}
weights: {nce: 1.0, diary_short: 0.1}
train: {epochs: 1, batch_size: 4}
"""


def write_all(folder):
    """Write the module, the module that it imports, a preset, and a data set in its layout in `data/`."""
    (folder / "code").mkdir()
    (folder / "code" / "diary.py").write_text(MODULE)
    (folder / "code" / "diary_losses.py").write_text("TEMPERATURE = 0.1\n")
    (folder / "code" / "diary.yaml").write_text(PRESET)
    (folder / "pages.txt").write_text("one two three\n")
    data = folder / "data" / "mine"
    data.mkdir(parents=True)
    draw = np.random.default_rng(0).normal
    lines = [
        (split, f"{split}{n}", i, f"page {i}") for split in ("train", "val", "test") for n in range(4) for i in (0, 1)
    ]
    (data / "diary.json").write_text(json.dumps(lines))
    np.savez(data / "pictures.npz", **{video: draw(size=(6, 4)) for _, video, _, _ in lines})
    np.savez(data / "sentences.npz", **{f"{video}#{i}": draw(size=(3, 4)) for _, video, i, _ in lines})


@contextmanager
def written(folder, monkeypatch):
    """A folder with all files, while no plug-in is registered or trusted."""
    monkeypatch.setattr("platformdirs.user_data_path", lambda name: folder / "user" / name)
    monkeypatch.setattr(sys, "path", list(sys.path))
    write_all(folder)
    yield folder
    forget()
    plugins.load_installed.cache_clear()


def forget():
    """Remove all plug-ins, as in a new process."""
    for registered in (METHODS, ATTACHMENTS, layouts._LAYOUTS, benchmarks._BENCHMARKS):
        for name in [name for name in registered if name.startswith(("diary", "pages"))]:
            del registered[name]
    for name in [name for name in sys.modules if name.startswith("diary")]:
        del sys.modules[name]
    plugins._IMPORTED.clear()
