"""A method, a part and a loss outside the package are trained, saved and evaluated by name once registered."""

from dataclasses import dataclass

import pytest
import torch
from jaxtyping import Float
from torch import nn

from untrimmed import evaluate, train
from untrimmed.batches import EncodedQueries, EncodedVideos, Record, frames_of
from untrimmed.errors import ConfigError
from untrimmed.losses.nce import nce
from untrimmed.models.attachment import AttachedLoss, Attachment, AttachmentConfig
from untrimmed.models.base import ModelConfig, RetrievalModel
from untrimmed.models.registry import ATTACHMENTS, METHODS, register
from untrimmed.models.storage import load_model
from untrimmed.scores.max_sim import max_sim
from untrimmed.scores.score import Score, Scores

PRESET = """
method: {name}
dataset: mine
model: {{query_dim: 12, video_dim: 10, dim: 8, num_heads: 1, max_frames: 20, own_bias: {{start: 0.5}}}}
losses: {{own_push: {{power: 3.0}}}}
weights: {{frame_nce: 1.0, own_push: 0.5, own_size: 0.1}}
train: {{batch_size: 8, epochs: 2}}
"""


class Means(RetrievalModel):
    """Means of mapped words against mapped frames."""

    @dataclass(frozen=True, kw_only=True)
    class Config(ModelConfig):
        scale: float = 5.0

    config: Config

    def __init__(self, config: Config):
        super().__init__(config)
        self.words, self.frames = nn.Linear(config.query_dim, config.dim), nn.Linear(config.video_dim, config.dim)
        self.complete()

    def own_queries(self, queries):
        weights = queries.mask / queries.mask.sum(dim=1, keepdim=True)
        return EncodedQueries(sentence=torch.einsum("qw,qwd->qd", weights, self.words(queries.words)))

    def own_videos(self, videos):
        return EncodedVideos(frames=self.frames(videos.frames), frame_mask=videos.frame_mask)

    def own_score(self, queries, videos):
        return Scores({"frame": max_sim(queries.sentence, *frames_of(videos))}, {"frame": 1.0})

    def own_losses(self, queries, videos, batch, *, draws, epoch):
        scores = self.own_score(queries, videos)["frame"].value
        return {"frame_nce": nce(self.config.scale * scores, batch.video_index)}


@dataclass(frozen=True, kw_only=True)
class Lengths(Record):
    length: Float[torch.Tensor, " Q"]


class Bias(Attachment):
    """Adds a learned share of the sentence's length to every score."""

    @dataclass(frozen=True, kw_only=True)
    class Config(AttachmentConfig):
        start: float = 0.0

    config: Config

    def __init__(self, config, model):
        super().__init__(config, model)
        self.share = nn.Parameter(torch.tensor(config.start))

    def encode_queries(self, model, queries, encoded):
        return encoded.attach(self.name, Lengths(length=encoded.sentence.norm(dim=1)))

    def score(self, model, queries, videos):
        length = Lengths.of(queries.attached[self.name]).length
        return Scores({"bias": Score((self.share * length)[:, None].expand(-1, len(videos)))}, {"bias": 1.0})

    def losses(self, model, queries, videos, batch, *, draws, epoch):
        return {"own_size": self.share.square()}


class Push(AttachedLoss):
    """Keeps sentences short."""

    @dataclass(frozen=True, kw_only=True)
    class Config(AttachmentConfig):
        power: float = 2.0

    config: Config

    def term(self, queries, videos, video_index):
        return queries.sentence.norm(dim=1).pow(self.config.power).mean()


@pytest.fixture(autouse=True)
def outside():
    """Registered for one test only: other tests go over all names."""
    for name, cls in (("own_means", Means), ("own_bias", Bias), ("own_push", Push)):
        register(name)(cls)
    yield
    del METHODS["own_means"], ATTACHMENTS["own_bias"], ATTACHMENTS["own_push"]


def test_they_train_and_are_evaluated_and_loaded_by_name(data_root, tmp_path):
    name = "own_means+own_bias+own_push"
    (tmp_path / "own.yaml").write_text(PRESET.format(name=name))
    run = train(name, data="mine", root=data_root, out=tmp_path / "run", preset=str(tmp_path / "own.yaml"))
    assert {"frame_nce", "own_size", "own_push"} <= run.history[0].keys()
    model = load_model(tmp_path / "run")
    assert model.name == name
    assert list(model.attachments) == ["own_bias", "own_push"]
    assert model.attachments["own_push"].config.power == 3.0
    assert model.attachments["own_bias"].share.item() != 0.5
    assert evaluate(run).rows["fused"]["R@100"] == 100


def test_they_attach_to_methods_of_the_package_with_its_presets_and_weights_given_by_hand(data_root, small, tmp_path):
    run = train(
        "ms_sl+own_push+own_bias",
        data="tvr",
        root=data_root,
        out=tmp_path / "run",
        **small,
        **{"weights.own_push": 0.01, "weights.own_size": 0.1},
    )
    assert run.config.losses == {"own_push": {"power": 2.0}}
    assert run.config.model["own_bias"] == {"start": 0.0}
    assert load_model(tmp_path / "run").name == "ms_sl+own_push+own_bias"


def test_a_loss_of_one_s_own_needs_its_weight(data_root, small):
    with pytest.raises(ConfigError, match=r"attached loss 'own_push' has no weight; add weights\.own_push"):
        train("ms_sl+own_push", data="tvr", root=data_root, **small)
