"""Moments and curves come from a method's own similarity, which need not be the cosine."""

import numpy as np
import pytest
import torch

from tests.restored import restored
from tests.retrieval_world import SIZES
from tests.toy import stored_video
from untrimmed.batches import EncodedQueries
from untrimmed.models.ms_sl import MSSL, MSSLVideos
from untrimmed.models.registry import METHODS, create_model, register
from untrimmed.models.storage import save_model
from untrimmed.plots.timeline import part_similarities
from untrimmed.search.corpora.trained import TrainedModel
from untrimmed.types import FrameFeatures, TextFeatures


class Distances(MSSL):
    """Compares by distance, so that of two vectors in the same direction the nearer one is better.

    Cosines cannot distinguish them.
    """

    def similarity(self, queries, units):
        return -torch.cdist(queries.sentence[None].expand(len(units), -1, -1), units).transpose(0, 1)


@pytest.fixture(autouse=True)
def registered():
    """The method is registered for these tests only, because other tests run over all names."""
    register("distances")(Distances)
    yield
    del METHODS["distances"]


@pytest.fixture
def model():
    return create_model("distances", **SIZES).eval()


def a_video_with_the_sentence_in_its_third_quarter():
    """All vectors have the direction of the sentence, but only those in the third quarter have its length."""
    sentence = torch.arange(1.0, 9.0)[None]
    lengths = torch.full((1, 32, 1), 5.0)
    lengths[:, 16:24] = 1.0
    clips = lengths * sentence
    mask = torch.ones(1, 1, dtype=torch.bool)
    return EncodedQueries(sentence=sentence), MSSLVideos(clips=clips, frames=sentence[None], frame_mask=mask)


def test_moments_are_found_by_the_methods_own_similarity(model):
    queries, videos = a_video_with_the_sentence_in_its_third_quarter()
    start_s, end_s = model.locate(queries, videos, torch.tensor([32.0])).span_s[0, 0]
    assert 15 <= start_s < end_s <= 25


def test_curves_are_drawn_by_the_methods_own_similarity(model):
    queries, videos = a_video_with_the_sentence_in_its_third_quarter()
    (similarity,) = part_similarities(model, queries, videos, np.array([0]))
    assert similarity.values[0, 16:24] == pytest.approx(np.zeros(8))
    assert (similarity.values[0, :16] < -1).all()
    assert 0.5 < similarity.position[0] < 0.75


def test_search_has_the_curve_of_a_saved_model_by_its_own_similarity(model, tmp_path):
    save_model(model, tmp_path)
    trained, normal = TrainedModel(tmp_path), np.random.default_rng(0).standard_normal
    features = FrameFeatures(normal((8, 5)).astype(np.float32), np.arange(8) / 2, 4.0)
    encoded = trained.encode_video(features)
    query = TextFeatures("a dog", np.zeros(5, np.float32), normal((2, 6)).astype(np.float32), ("a", "dog"))
    corpus = trained.corpus().update([stored_video("a", features, encoded, model=trained.identity)])
    _, values = corpus.prepare(query).relevance("a")
    units, _ = model.timeline(restored(trained, [encoded]))
    wanted = -(units[0] - trained.encode_query(query).sentence).norm(dim=1)
    assert values == pytest.approx(wanted.numpy(), abs=1e-3)
    assert (values < 0).all()
