"""What an index of vectors would find of a method's best videos, on models of a few weights."""

import numpy as np
import pytest
import torch

from tests.retrieval_world import SIZES
from tests.toy import stored_video
from untrimmed.batches import QueryBatch, VideoBatch
from untrimmed.models.registry import create_model, list_models
from untrimmed.models.storage import save_model
from untrimmed.search.candidates import recall, recall_in, recall_on
from untrimmed.search.trained import TrainedModel
from untrimmed.types import FrameFeatures, TextFeatures

NUM_VIDEOS = 60
COMPOSED = ["gmmformer+ral", "gmmformer_v2+ral", "ms_sl+ral", "clip4clip+ral", "ms_sl+prototypes"]


def world(name, seed=0):
    """A model with sentences and videos, encoded."""
    torch.manual_seed(seed)
    model = create_model(name, **SIZES, init_std=0.3).eval()
    lengths = torch.randint(1, 10, (NUM_VIDEOS,))
    mask = torch.arange(9) < lengths[:, None]
    clips, frames = torch.randn(NUM_VIDEOS, 32, 5), torch.randn(NUM_VIDEOS, 9, 5) * mask[..., None]
    words = torch.randn(8, 3, 6)
    with torch.no_grad():
        queries = model.encode_queries(QueryBatch(words=words, mask=torch.ones(8, 3, dtype=torch.bool)))
        videos = model.encode_videos(VideoBatch(clips=clips, frames=frames, frame_mask=mask))
    return model, queries, videos


@pytest.mark.parametrize("name", [*list_models(), *COMPOSED])
def test_the_recall_of_candidates_is_measured_for_every_method(name, record_property):
    model, queries, videos = world(name)
    measured = {factor: recall_on(model, queries, videos, candidates=10 * factor) for factor in (1, 2, 6)}
    for shares in measured.values():
        assert shares.shape == (8,)
    assert (measured[1] <= measured[2]).all()
    assert (measured[6] == 1).all(), "all videos are candidates"
    assert measured[2].mean() > 2 * 10 / NUM_VIDEOS, "no better than chance"
    record_property("recall@10 of 20 candidates", float(measured[2].mean()))


def test_recall_is_a_share_of_the_best():
    exact, rough = np.array([[5.0, 4.0, 3.0, 2.0], [1.0, 2.0, 3.0, 4.0]]), np.array([[1.0, 2.0, 3.0, 4.0]] * 2)
    assert recall(exact, rough, top=2, candidates=2).tolist() == [0.0, 1.0]
    assert recall(exact, rough, top=2, candidates=3).tolist() == [0.5, 1.0]


def test_any_of_the_videos_that_tie_for_the_last_places_will_do_but_none_stands_for_a_better_one():
    exact = np.array([[3.0, 2.0, 2.0, 2.0, 1.0]])
    for found, share in {(0, 3): 1.0, (0, 1): 1.0, (2, 3): 0.5, (0, 4): 0.5, (1, 2, 3): 0.5, (4,): 0.0}.items():
        rough = np.isin(np.arange(5), found)[None].astype(float)
        assert recall(exact, rough, top=2, candidates=len(found)).tolist() == [share], found
    assert recall(exact, exact, top=9, candidates=9).tolist() == [1.0]


def test_the_recall_in_a_library_is_that_of_its_videos(tmp_path):
    model, *_ = world("gmmformer_v2")
    save_model(model, tmp_path)
    trained, rng = TrainedModel(tmp_path), np.random.default_rng(0)
    videos = {}
    for number in range(12):
        features = FrameFeatures(rng.standard_normal((4, 5)).astype(np.float16), np.arange(4) / 2, 2.0)
        blob = trained.encode_video(features)
        videos[f"v{number}"] = stored_video(f"v{number}", features, blob, model=trained.identity)
    words = rng.standard_normal((5, 2, 6)).astype(np.float32)
    queries = [TextFeatures("a dog", np.zeros(5, np.float32), rows, ("a", "dog")) for rows in words]
    corpus = trained.corpus().update(videos.values()).update([], ["v3", "v4"])
    found = recall_in(corpus, queries, top=3, candidates=4)
    encoded = trained.restore([video.encoded for key, video in videos.items() if key not in ("v3", "v4")])
    together = trained.encode_query(queries[0]).cat([trained.encode_query(query) for query in queries])
    assert found.tolist() == recall_on(trained.model, together, encoded, top=3, candidates=4).tolist()
    assert recall_in(corpus, []).shape == (0,)
    assert np.isnan(recall_in(trained.corpus(), queries)).tolist() == [True] * 5
