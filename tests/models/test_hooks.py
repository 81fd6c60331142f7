"""A mistake in a hook of an outside method is reported in one line with the hook, the axes and the shape."""

import os
from dataclasses import dataclass

import pytest
import torch
from torch import nn

from tests.refusals import refused
from tests.retrieval_world import SIZES, make_batch
from untrimmed.batches import EncodedQueries, EncodedVideos
from untrimmed.errors import ConfigError
from untrimmed.losses.draws import Draws
from untrimmed.losses.nce import nce
from untrimmed.models.attachment import Attachment, AttachmentConfig, TrainingStep
from untrimmed.models.base import ModelConfig, RetrievalModel
from untrimmed.models.hooks import (
    check_timeline,
    check_vectors,
    checked_losses,
    checked_queries,
    checked_scores,
    checked_videos,
)
from untrimmed.models.registry import ATTACHMENTS, METHODS, create_model, register
from untrimmed.scores.max_sim import max_sim
from untrimmed.scores.score import Score, Scores

pytestmark = pytest.mark.skipif(
    bool(os.environ.get("UNTRIMMED_TYPECHECK")), reason="the type checker refuses wrong shapes before the hooks return"
)


class Method(RetrievalModel):
    """The mean word against the best frame."""

    @dataclass(frozen=True, kw_only=True)
    class Config(ModelConfig):
        pass

    def __init__(self, config):
        super().__init__(config)
        self.word_map = nn.Linear(config.query_dim, config.dim)
        self.frame_map = nn.Linear(config.video_dim, config.dim)

    def compute_query_vectors(self, queries):
        return EncodedQueries(sentence=self.word_map(queries.words).mean(dim=1))

    def compute_video_vectors(self, videos):
        return EncodedVideos(frames=self.frame_map(videos.frames), frame_mask=videos.frame_mask)

    def compute_scores(self, queries, videos):
        return Scores({"frame": max_sim(queries.sentence, videos.frames, videos.frame_mask)}, {"frame": 1.0})

    def compute_losses(self, step):
        return {"nce": nce(self.compute_scores(step.queries, step.videos)["frame"].value, step.batch.video_index)}


@pytest.fixture
def check():
    """A function that calls all hooks of the method with some of them replaced."""

    def call_all(name="hooked", **hooks):
        METHODS.pop("hooked", None)
        register("hooked")(type("Hooked", (Method,), hooks))
        model = create_model(name, **SIZES)
        batch = make_batch()
        queries, videos = checked_queries(model, batch.queries), checked_videos(model, batch.videos)
        checked_scores(model, queries, videos)
        check_timeline(model, queries, videos)
        check_vectors(model, queries, videos)
        return checked_losses(model, TrainingStep(queries, videos, batch, Draws()))

    yield call_all
    METHODS.pop("hooked", None)


def test_right_hooks_pass(check):
    assert check().keys() == {"nce"}


FRAMES = torch.zeros(3, 7, 8)
MASK = torch.ones(3, 7, dtype=torch.bool)
SCORES = torch.zeros(4, 3)


@pytest.mark.parametrize(
    ("hook", "result", "named"),
    [
        ("compute_query_vectors", lambda: torch.zeros(4, 8), ["[4, 8]", "EncodedQueries"]),
        (
            "compute_query_vectors",
            lambda: EncodedQueries(sentence=torch.zeros(4, 3, 8)),
            ["[4, 3, 8]", "[Q, D]"],
        ),
        (
            "compute_query_vectors",
            lambda: EncodedQueries(sentence=torch.zeros(1, 8)),
            ["[1, 8]", "4 queries"],
        ),
        ("compute_video_vectors", lambda: EncodedVideos(frames=FRAMES), ["frame_mask"]),
        ("compute_video_vectors", lambda: EncodedVideos(frames=FRAMES[:, 0], frame_mask=MASK), ["[3, 8]", "[V, T, D]"]),
        ("compute_video_vectors", lambda: EncodedVideos(frames=FRAMES, frame_mask=MASK[:, :5]), ["[3, 5]", "T = 7"]),
        ("compute_video_vectors", lambda: EncodedVideos(clips=FRAMES[:2]), ["clips", "[2, 7, 8]", "3 videos"]),
        ("compute_scores", lambda: torch.zeros(4, 3), ["[4, 3]", "Scores"]),
        ("compute_scores", lambda: Scores({"frame": torch.zeros(4, 3)}, {}), ["[4, 3]", "'frame'", "Score"]),
        ("compute_scores", lambda: Scores({"frame": Score(torch.zeros(3, 4))}, {}), ["[3, 4]", "[Q, V]", "4 queries"]),
        ("compute_scores", lambda: Scores({"frame": Score(SCORES)}, {"fram": 1.0}), ["'fram'", "'frame'"]),
        ("compute_scores", lambda: Scores({"frame": Score(SCORES)}, {}), ["weights"]),
        ("compute_losses", lambda: torch.tensor(1.0), ["dictionary"]),
        ("compute_losses", lambda: None, ["None"]),
        ("compute_losses", lambda: {"nce": torch.zeros(4)}, ["'nce'", "[4]"]),
        ("compute_losses", lambda: {"nce": 0.5}, ["'nce'", "float"]),
        ("compute_losses", lambda: {"loss": torch.tensor(1.0)}, ["'loss'", "metrics.jsonl"]),
        ("compute_timeline", lambda: FRAMES, ["[3, 7, 8]", "mask"]),
        ("compute_timeline", lambda: (FRAMES, MASK[:, :5]), ["[3, 5]", "N = 7"]),
        ("similarity", lambda: torch.zeros(4, 3), ["[4, 3]", "[Q, V, N]"]),
    ],
)
def test_a_wrong_result_is_refused_with_its_hook(check, hook, result, named):
    with refused(ConfigError, f"Hooked.{hook}", *named):
        check(**{hook: lambda self, *arguments: result()})


def test_branches_of_sketch_and_probe_have_the_same_names(check):
    hooks = {
        "compute_sketch": lambda self, videos: {"frame": FRAMES},
        "compute_probe": lambda self, queries: {"fram": torch.zeros(4, 1, 8)},
    }
    with refused(ConfigError, "Hooked.compute_probe", "'fram'", "frame"):
        check(**hooks)


def test_an_exception_in_a_hook_is_one_line_with_its_place_and_inputs(check):
    def compute_query_vectors(self, queries):
        return EncodedQueries(sentence=self.frame_map(queries.words))

    line = compute_query_vectors.__code__.co_firstlineno + 1
    with refused(ConfigError, f"{__file__}:{line}", "Hooked.compute_query_vectors", "[4, 3, 6]") as caught:
        check(compute_query_vectors=compute_query_vectors)
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_an_unknown_branch_is_refused_with_the_known_branches(check):
    def compute_losses(self, step):
        return {"nce": self.compute_scores(step.queries, step.videos)["event"].value.mean()}

    with refused(ConfigError, "Hooked.compute_losses", "'event'", "frame"):
        check(compute_losses=compute_losses)


def test_an_exception_in_a_constructor_is_one_line(check):
    def __init__(self, config):  # noqa: N807
        self.word_map = nn.Linear(2, 2)

    with refused(ConfigError, "Hooked", "AttributeError"):
        check(__init__=__init__)


def test_bugs_of_the_package_keep_their_exception(check):
    with pytest.raises(AttributeError):
        check(compute_query_vectors=RetrievalModel.timeline)  # this function reads frames, which queries do not have


def test_a_term_of_an_attachment_must_be_new(check):
    class Again(Attachment):
        def losses(self, model, step):
            return {"nce": step.queries.sentence.mean()}

    register("hooked_again")(Again)
    try:
        with refused(ConfigError, "Again.losses", "'nce'"):
            check(name="hooked+hooked_again")
    finally:
        del ATTACHMENTS["hooked_again"]


def without_annotations(**values):
    return dataclass(frozen=True, kw_only=True)(type("Config", (ModelConfig,), values))


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"Config": type("Config", (ModelConfig,), {"margin": 0.2})}, ["Config", "@dataclass"]),
        ({"Config": without_annotations(margin=0.2)}, ["Config", "margin: float"]),
        ({"Config": without_annotations(dropout=0.2)}, ["Config", "dropout: float"]),
        ({"Config": AttachmentConfig}, ["ModelConfig"]),
        ({"compute_scores": RetrievalModel.compute_scores}, ["compute_scores"]),
    ],
)
def test_an_incomplete_class_is_refused_when_it_is_registered(wrong, named):
    with refused(ConfigError, *named):
        register("hooked")(type("Hooked", (Method,), wrong))
    assert "hooked" not in METHODS
