"""CLIP4Clip's mean pooling."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F

from tests.retrieval_world import SIZES, make_batch
from untrimmed.losses.draws import Draws
from untrimmed.models.registry import create_model

EQUAL = SIZES | {"query_dim": 8, "video_dim": 8}


def equal_widths():
    batch = make_batch()
    pad = lambda x, extra: F.pad(x, (0, extra))  # noqa: E731
    return dataclasses.replace(
        batch,
        queries=dataclasses.replace(batch.queries, words=pad(batch.queries.words, 2)),
        videos=dataclasses.replace(batch.videos, clips=pad(batch.videos.clips, 3), frames=pad(batch.videos.frames, 3)),
    )


def test_an_untrained_model_gives_the_mean_pooled_cosine_of_the_encoder():
    model, batch = create_model("clip4clip", **EQUAL).eval(), equal_widths()
    scores = model.score(model.encode_queries(batch.queries), model.encode_videos(batch.videos)).fused
    frames = F.normalize(batch.videos.frames[1, :3], dim=-1).mean(dim=0)
    last_word = batch.queries.words[2, 1]  # the third query has two words
    assert scores[2, 1].item() == pytest.approx(F.cosine_similarity(frames, last_word, dim=0).item(), abs=1e-6)


def test_sentences_of_other_encoders_are_the_mean_of_their_words():
    model, batch = create_model("clip4clip", **EQUAL, sentence="mean").eval(), equal_widths()
    sentence = model.encode_queries(batch.queries).sentence
    assert torch.allclose(sentence[2], batch.queries.words[2, :2].mean(dim=0), atol=1e-6)


def test_its_loss_is_the_mean_cross_entropy_of_both_directions():
    model, batch = create_model("clip4clip", **SIZES, temperature=0.5).eval(), make_batch()
    first_queries = dataclasses.replace(
        batch, queries=batch.queries.select(torch.tensor([0, 2, 3])), video_index=torch.arange(3)
    )
    scores = model.score(model.encode_queries(first_queries.queries), model.encode_videos(first_queries.videos)).fused
    expected = (F.cross_entropy(2 * scores, torch.arange(3)) + F.cross_entropy(2 * scores.T, torch.arange(3))) / 2
    assert model(first_queries, draws=Draws())["video_nce"].item() == pytest.approx(expected.item(), rel=1e-5)


def test_the_learned_scale_is_clipped_like_clips():
    model = create_model("clip4clip", **SIZES)
    at_limit = model(make_batch(), draws=Draws())["video_nce"]
    model.logit_scale.data += 3
    assert model(make_batch(), draws=Draws())["video_nce"].item() == pytest.approx(at_limit.item())
