"""Subtitles as a second stream: the score of the best passage, its learned weight, and training with it."""

import dataclasses
from dataclasses import replace

import pytest
import torch

from tests.refusals import refused
from tests.retrieval_world import SIZES, fused, with_noisy_padding
from tests.run_world import SMALL
from untrimmed import evaluate, load_dataset, train
from untrimmed.batches import EncodedQueries, EncodedVideos, QueryBatch, TrainingBatch, VideoBatch
from untrimmed.data.simulation.simulate import simulate
from untrimmed.errors import ConfigError, FeatureError
from untrimmed.losses.draws import Draws
from untrimmed.models.registry import create_model, list_models
from untrimmed.running.loaded import open_model

NAME = "subtitles"


def build(method="clip4clip", **settings):
    torch.manual_seed(0)
    return create_model(f"{method}+{NAME}", **SIZES, **settings).eval()


def encode_by_hand(passages, mask):
    """Two queries, whose mean words are (1, 0, ...) and (0, 1, ...), and videos with these passages."""
    model = build(**{"subtitles.initial_weight": 2.0})
    words = torch.zeros(2, 2, 6)
    words[0, :, 0] = 3.0
    words[1, 0, 1] = 1.0
    words[1, 1, 5] = 9.0  # padding
    queries = QueryBatch(words=words, mask=torch.tensor([[True, True], [True, False]]))
    part = model.attachments[NAME]
    videos = VideoBatch(
        clips=torch.zeros(len(mask), 1, 5),
        frames=torch.zeros(len(mask), 1, 5),
        frame_mask=torch.ones(len(mask), 1, dtype=torch.bool),
        passages=passages,
        passage_mask=mask,
    )
    encoded_queries = part.encode_queries(model, queries, EncodedQueries(sentence=torch.zeros(2, 8)))
    return part.score(model, encoded_queries, part.encode_videos(model, videos, EncodedVideos()))


def test_the_score_is_the_cosine_of_the_best_passage():
    passages = torch.zeros(3, 2, 6)
    passages[0, 0, :2] = torch.tensor([3.0, 4.0])  # cosines 0.6 and 0.8
    passages[0, 1, 0] = 1.0  # cosines 1 and 0
    passages[1, 0, :2] = torch.tensor([-1.0, 0.0])  # cosines -1 and 0
    passages[1, 1, 0] = 1.0  # padding
    mask = torch.tensor([[True, True], [True, False], [True, False]])  # the third video has no subtitles
    scores = encode_by_hand(passages, mask)
    expected = torch.tensor([[1.0, -1.0, 0.0], [0.8, 0.0, 0.0]])
    assert torch.allclose(scores[NAME].value, expected)
    assert scores[NAME].best.tolist() == [[1, 0, 0], [0, 0, 0]]
    assert scores.weights == {NAME: 2.0}
    assert torch.allclose(scores.fused, 2 * expected)


@pytest.mark.parametrize("method", list_models())
def test_any_method_adds_the_weighted_branch_to_its_score(method, batch):
    model = build(method)
    scores = model.score(model.encode_queries(batch.queries), model.encode_videos(batch.videos))
    silent = replace(batch, videos=replace(batch.videos, passages=None, passage_mask=None))
    assert torch.allclose(scores.fused, fused(model, silent) + 0.5 * scores[NAME].value, atol=1e-6)
    assert torch.allclose(fused(model, with_noisy_padding(batch)), scores.fused, atol=1e-6)


def test_the_loss_trains_two_numbers_and_leaves_the_method_unchanged(batch):
    model = build("ms_sl").train()
    terms = model(batch, draws=Draws(hard_pool=2))
    terms[NAME].backward()
    learned = [name.rpartition(".")[2] for name, p in model.named_parameters() if p.grad is not None]
    assert learned == ["weight", "log_temperature"]
    assert model.attachments[NAME].weight.grad != 0


def test_the_weight_grows_if_passages_show_the_right_video():
    model = build()
    part = model.attachments[NAME]
    eye = torch.eye(6)[:3]
    queries = QueryBatch(words=eye[:, None], mask=torch.ones(3, 1, dtype=torch.bool))
    videos = VideoBatch(
        clips=torch.ones(3, 32, 5),
        frames=torch.ones(3, 2, 5),
        frame_mask=torch.ones(3, 2, dtype=torch.bool),
        passages=eye[:, None],
        passage_mask=torch.ones(3, 1, dtype=torch.bool),
    )
    batch = TrainingBatch(queries=queries, videos=videos, video_index=torch.arange(3))
    model(batch, draws=Draws(hard_pool=2))[NAME].backward()
    assert part.weight.grad < 0  # all videos look alike: log(1 + 2 exp(-w / 0.05)) falls with w


def test_a_batch_without_passages_cannot_be_trained_on(batch):
    silent = replace(batch, videos=replace(batch.videos, passages=None, passage_mask=None))
    with refused(ConfigError, "passages"):
        build()(silent, draws=Draws())


@pytest.mark.parametrize("settings", [{"max_passages": 0}, {"temperature": 0.0}])
def test_settings_out_of_range_are_refused(settings):
    with refused(ConfigError, *settings):
        build(**{f"subtitles.{key}": value for key, value in settings.items()})


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("subtitled")
    simulate("tvr", folder, num_videos=24, settings=SMALL, subtitles=True)
    simulate("silent", folder, num_videos=24, settings=SMALL)
    return folder


def test_a_run_stores_the_weight_and_evaluates_with_it(root, small, tmp_path):
    small["model.subtitles.max_passages"] = 9  # some videos have more
    run = train(f"ms_sl+{NAME}", data="tvr", root=root, out=tmp_path / "run", seed=1, **small)
    del small["model.subtitles.max_passages"]
    alone = train("ms_sl", data="tvr", root=root, out=tmp_path / "alone", seed=1, **small)
    losses = [[{k: line[k] for k in line if k.endswith("nce")} for line in each.history] for each in (run, alone)]
    assert losses[0] == losses[1]  # the method trains as without subtitles
    opened = open_model(run)
    weight = opened.model.attachments[NAME].weight.item()
    assert weight != 0.5
    scores = opened.score()
    assert opened.dataset.features.passages.lengths.max() == 9
    branches = {"clip": 0.7, "frame": 0.3, NAME: weight}
    by_hand = sum(weight * scores.branches[name] for name, weight in branches.items())
    assert scores.fused == pytest.approx(by_hand, abs=1e-6)
    assert evaluate(run, moments=False).rows.keys() >= {"fused", f"{NAME} only"}


def test_a_data_set_without_subtitles_is_refused_before_training(root, small, tmp_path):
    with refused(FeatureError, "silent", "subtitles.h5", "--subtitles"):
        train(f"ms_sl+{NAME}", data="silent", root=root, out=tmp_path / "run", **small)
    assert not (tmp_path / "run").exists()
    silent = tuple(load_dataset("silent", root, split, max_frames=20) for split in ("train", "val"))
    with refused(FeatureError, "silent", "max_passages=0", "max_passages=128"):
        train(f"ms_sl+{NAME}", data=silent, out=tmp_path / "run", **small)


def test_vectors_of_another_width_than_words_are_refused(root, small, tmp_path):
    data = load_dataset("tvr", root, "train", max_frames=20, max_passages=128)
    words = data.features.words_packed
    narrow = replace(data.features, words_packed=dataclasses.replace(words, rows=words.rows[:, :7]))
    sets = (replace(data, features=narrow),) * 2
    with refused(FeatureError, "width 12", "7"):
        train(f"ms_sl+{NAME}", data=sets, out=tmp_path / "run", **(small | {"model.query_dim": 7}))


def test_a_method_that_reads_no_subtitles_ignores_them(root, small, tmp_path):
    sets = tuple(load_dataset("tvr", root, split, max_frames=20, max_passages=5) for split in ("train", "val"))
    assert train("ms_sl", data=sets, out=tmp_path / "run", **small).history
