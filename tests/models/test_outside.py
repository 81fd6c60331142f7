"""A method, a part and a loss outside the package are trained, saved and evaluated by name once registered."""

import copy
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
import yaml
from jaxtyping import Float
from torch import nn

from tests.refusals import refused
from tests.retrieval_world import SIZES
from untrimmed import train
from untrimmed.batches import EncodedQueries, EncodedVideos, Record, frames_of
from untrimmed.data.dataset import load_dataset
from untrimmed.errors import ConfigError
from untrimmed.losses.draws import Draws
from untrimmed.losses.nce import nce
from untrimmed.models.attachment import AttachedLoss, Attachment, AttachmentConfig, StepLoss, TrainingStep
from untrimmed.models.base import ModelConfig, RetrievalModel
from untrimmed.models.registry import ATTACHMENTS, METHODS, build_model, create_model, register
from untrimmed.models.storage import load_model
from untrimmed.nn.init import initialise
from untrimmed.presets import choose_preset, load_preset, stated_widths
from untrimmed.scores.max_sim import max_sim, vector_sim
from untrimmed.scores.score import Score, Scores


class Means(RetrievalModel):
    """Means of mapped words against mapped frames."""

    @dataclass(frozen=True, kw_only=True)
    class Config(ModelConfig):
        scale: float = 5.0

    config: Config

    def __init__(self, config: Config):
        super().__init__(config)
        self.words, self.frames = nn.Linear(config.query_dim, config.dim), nn.Linear(config.video_dim, config.dim)

    def compute_query_vectors(self, queries):
        weights = queries.mask / queries.mask.sum(dim=1, keepdim=True)
        return EncodedQueries(sentence=torch.einsum("qw,qwd->qd", weights, self.words(queries.words)))

    def compute_video_vectors(self, videos):
        return EncodedVideos(frames=self.frames(videos.frames), frame_mask=videos.frame_mask)

    def compute_scores(self, queries, videos):
        return Scores({"frame": max_sim(queries.sentence, *frames_of(videos))}, {"frame": 1.0})

    def compute_losses(self, step):
        scores = self.compute_scores(step.queries, step.videos)["frame"].value
        return {"frame_nce": nce(self.config.scale * scores, step.batch.video_index)}


class Places(Means):
    """A method with one branch, which an attachment may replace by a branch over frames."""

    places = frozenset({"frame"})

    def compute_scores(self, queries, videos):
        mean = videos.frames.mean(dim=1)
        return Scores({"mean": vector_sim(queries.sentence, mean)}, {"mean": self.branch_weight("mean")})

    def compute_losses(self, step):
        mean = self.compute_scores(step.queries, step.videos)["mean"].value
        return self.branch_losses("mean", mean, mean, step)

    def encode_words(self, queries):
        return self.words(queries.words)

    def branch_losses(self, branch, cosine, dot, step):
        return {f"{branch}_nce": nce(dot, step.batch.video_index)}

    def branch_weight(self, branch):
        return {"mean": 0.25, "frame": 0.75}[branch]


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

    def losses(self, model, step):
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
    """The names are registered for one test only, because other tests run over all names."""
    for name, cls in (("own_means", Means), ("own_places", Places), ("own_bias", Bias), ("own_push", Push)):
        register(name)(cls)
    yield
    del METHODS["own_means"], METHODS["own_places"], ATTACHMENTS["own_bias"], ATTACHMENTS["own_push"]


def test_outside_attachments_work_with_package_methods_and_presets(data_root, small, tmp_path):
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


@pytest.fixture
def with_defaults(monkeypatch):
    """The method and the loss with settings in their classes, so that they need no preset."""
    of_method = {"weights": {"frame_nce": 1.0}, "train": {"epochs": 3, "batch_size": 4}}
    monkeypatch.setattr(Means, "training_defaults", of_method)
    monkeypatch.setattr(Push, "training_defaults", {"weights": {"own_push": 0.1}})


def test_a_method_with_settings_in_its_class_needs_no_preset(data_root, tmp_path, with_defaults):
    run = train("own_means+own_push", data="tvr", root=data_root, out=tmp_path / "run", train={"epochs": 1})
    assert run.config.weights == {"frame_nce": 1.0, "own_push": 0.1}
    assert (run.config.train.epochs, run.config.train.batch_size) == (1, 4)
    widths = {name: run.config.model[name] for name in ("query_dim", "video_dim", "dim")}
    assert widths == {"query_dim": 12, "video_dim": 10, "dim": 384}, "of the data set, and the class's default"


def test_sections_and_dotted_keys_give_the_same_settings(data_root, tmp_path, with_defaults):
    sections = {"weights": {"frame_nce": 0.5}, "train": {"epochs": 1}, "model": {"dim": 8}}
    dotted = {"weights.frame_nce": 0.5, "train.epochs": 1, "model.dim": 8}
    first, second = (
        train("own_means", data="tvr", root=data_root, out=tmp_path / f"run{n}", **settings)
        for n, settings in enumerate((sections, dotted))
    )
    assert first.config == second.config
    assert first.config.weights == {"frame_nce": 0.5}


def test_a_model_is_trained_with_sections(data_root, tmp_path):
    sets = [load_dataset("tvr", data_root, split, max_frames=20) for split in ("train", "val")]
    model = create_model("own_means", query_dim=12, video_dim=10, dim=8, max_frames=20)
    first = model.words.weight.clone()
    settings = {"weights": {"frame_nce": 1.0}, "train": {"epochs": 1, "batch_size": 4}}
    run = train(model, data=tuple(sets), out=tmp_path / "run", **settings)
    assert run.is_finished
    assert not torch.equal(model.words.weight, first)


def test_settings_in_the_class_must_be_sections(monkeypatch):
    for wrong, named in (
        ({"wieghts": {}}, "weights"),
        ({"train": 3}, "3"),
        ({"train": {"epoch": 3}}, "epochs"),
        ({"model": {"dmi": 3}}, "dim"),
        ({"weights": {"frame_nce": "much"}}, "much"),
    ):
        monkeypatch.setattr(Means, "training_defaults", wrong)
        with refused(ConfigError, "Means.training_defaults", named):
            load_preset("own_means", "mine", {"train.seed": 2})


def test_a_preset_file_for_fewer_attachments_is_completed_by_their_classes(tmp_path, with_defaults):
    sections = "method: own_means\ndataset: mine\nmodel: {}\nweights: {frame_nce: 2}\ntrain: {}\n"
    (tmp_path / "mine.yaml").write_text(sections)
    preset = choose_preset("own_means+own_push+transport", "mine", str(tmp_path / "mine.yaml"))
    assert preset.weights == {"frame_nce": 2.0, "own_push": 0.1, "transport": 0.8}
    assert preset.name.attachments == ("own_push", "transport")
    for other in ("own_places", "ms_sl"):
        with refused(ConfigError, "own_means", other):
            choose_preset(other, "mine", str(tmp_path / "mine.yaml"))


def test_only_widths_that_a_preset_states_are_fixed(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("method: own_means\nmodel: {query_dim: 3}\n")
    assert stated_widths("own_means", "tvr", str(file)) == {"query_dim"}
    assert stated_widths("own_means", "tvr", None) == set()
    assert stated_widths("ms_sl", "tvr", None) == {"query_dim", "video_dim"}
    assert stated_widths("ms_sl", "mine", None) == set()


class Witness(StepLoss):
    """Records the steps that it receives."""

    steps: ClassVar[list[TrainingStep]] = []

    def step_term(self, model, step):
        self.steps.append(step)
        return step.queries.sentence.sum()


def test_losses_receive_ids_and_updates_and_recognise_the_rehearsal(data_root, small, tmp_path):
    register("own_witness")(Witness)
    try:
        preset = own_preset(tmp_path, small)
        train("own_means+own_witness", data="tvr", root=data_root, out=tmp_path / "run", preset=preset)
    finally:
        del ATTACHMENTS["own_witness"]
    assert Witness.steps[0].is_rehearsal
    steps = [step for step in Witness.steps if not step.is_rehearsal]
    assert [(step.epoch, step.update) for step in steps] == [(update // 4, update) for update in range(8)]
    dataset = load_dataset("tvr", data_root, "train", max_frames=20)
    first_epoch = [caption for step in steps[:4] for caption in step.batch.caption_ids]
    assert sorted(first_epoch) == sorted(dataset.caption_ids)
    video_of = {annotation.caption_id: annotation.video for annotation in dataset.annotations}
    for step in steps:
        videos = [step.batch.video_ids[row] for row in step.batch.video_index]
        assert videos == [video_of[caption] for caption in step.batch.caption_ids]


def own_preset(folder, settings):
    """A preset file of `own_means+own_witness`. The package has no preset for it."""
    sections = {"model": {}, "train": {}}
    for key, value in settings.items():
        section, _, name = key.partition(".")
        sections[section][name] = value
    weights = {"frame_nce": 1.0, "own_witness": 0.0}
    preset = {"method": "own_means+own_witness", "dataset": "tvr", "losses": {"own_witness": {}}, "weights": weights}
    (folder / "preset.yaml").write_text(yaml.safe_dump(preset | sections))
    return folder / "preset.yaml"


def test_a_package_attachment_can_provide_a_branch_of_an_outside_method(batch):
    model = create_model("own_places+ral", **SIZES).eval()
    scores = model.score(model.encode_queries(batch.queries), model.encode_videos(batch.videos))
    frame = scores["frame"].value
    assert torch.allclose(scores.fused, 0.25 * scores["mean"].value + 0.75 * frame)
    assert {"mean_nce", "frame_nce"} <= model(batch, draws=Draws()).keys()


@pytest.mark.parametrize("hook", ["branch_weight", "branch_losses"])
def test_a_method_with_places_must_define_branch_weight_and_branch_losses(batch, hook, monkeypatch):
    monkeypatch.delattr(Places, hook)
    model = create_model("own_places+ral", **SIZES)
    queries, videos = model.encode_queries(batch.queries), model.encode_videos(batch.videos)
    used = {
        "branch_weight": lambda: model.attachments["ral"].score(model, queries, videos),
        "branch_losses": lambda: model.attachments["ral"].losses(model, TrainingStep(queries, videos, batch, Draws())),
    }
    with refused(NotImplementedError, "own_places+ral", hook):
        used[hook]()


def test_weights_of_a_method_are_drawn_after_its_whole_constructor():
    class Wider(Means):
        def __init__(self, config):
            super().__init__(config)
            self.more = nn.Linear(4, 2000)

    model = build_model(Wider, Means.Config(**SIZES, losses={"own_push": Push.Config()}))
    assert list(model.attachments) == ["own_push"]
    assert all(layer.bias.abs().sum() == 0 for layer in model.modules() if isinstance(layer, nn.Linear))
    assert model.more.weight.std().item() == pytest.approx(0.02, rel=0.1)
    with pytest.raises(ConfigError, match="create_model"):
        _ = Wider(model.config).carried


class Momentum(Attachment):
    """Has copies of the model and its query tower, an identity map, and a map with random weights."""

    def __init__(self, config, model):
        super().__init__(config, model)
        self.model, self.tower = copy.deepcopy(model), copy.deepcopy(model.query_tower)
        self.identity, self.drawn = nn.Linear(4, 4), nn.Linear(4, 2000)
        nn.init.eye_(self.identity.weight)
        self.num_draws = 0

    def draw_weights(self, model):
        initialise(self.drawn, model.config.init_std)
        self.num_draws += 1


def test_weights_set_in_an_attachments_constructor_are_kept(batch):
    register("own_momentum")(Momentum)
    try:
        model = create_model("gmmformer_v2+own_momentum+ral+own_bias", **SIZES).eval()
    finally:
        del ATTACHMENTS["own_momentum"]
    part, weights = model.attachments["own_momentum"], model.state_dict()
    assert part.num_draws == 1
    assert {name: weights[name].equal(tensor) for name, tensor in part.model.state_dict().items()} == {
        name: True for name in weights if not name.startswith("attachments.")
    }
    assert model.query_tower(batch.queries.words, batch.queries.mask).equal(
        part.tower(batch.queries.words, batch.queries.mask)
    )
    assert part.model.encode_queries(batch.queries).sentence.equal(model.encode_queries(batch.queries).sentence)
    assert part.identity.weight.equal(torch.eye(4))
    assert part.identity.bias.abs().sum() > 0  # as torch drew it
    assert part.drawn.weight.std().item() == pytest.approx(0.02, rel=0.1)


def test_training_refuses_an_outside_loss_without_a_weight(data_root, small):
    with refused(ConfigError, "weights.own_push"):
        train("ms_sl+own_push", data="tvr", root=data_root, **small)
