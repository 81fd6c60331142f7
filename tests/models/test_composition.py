"""Every method, alone and with every attachment that fits: one step of training, saving, loading, indexing, searching.

Combinations that do not fit are refused with the reason.
"""

import re

import numpy as np
import pytest
import torch

from tests.refusals import refused
from tests.restored import restored
from tests.retrieval_world import SIZES, make_batch, one_of_each
from tests.toy import stored_video
from untrimmed.batches import EncodedQueries, EncodedVideos
from untrimmed.errors import CheckpointError, ConfigError
from untrimmed.losses.draws import Draws
from untrimmed.models.naming import ModelName
from untrimmed.models.ral import RAL
from untrimmed.models.registers import Registers
from untrimmed.models.registry import (
    ATTACHMENTS,
    create_model,
    list_attachments,
    list_compositions,
    list_models,
    paper_of,
    register,
)
from untrimmed.models.storage import load_model, save_model
from untrimmed.search.corpora.trained import TrainedModel
from untrimmed.training.optim import BertAdam, parameter_groups
from untrimmed.types import FrameFeatures, TextFeatures

DURATIONS_S = (5.0, 3.0, 2.5)
LARGE = {"jsg": {"max_frames": 40, "num_centers": 5, "num_widths": 4}}  # enough rows for its convolution
PAIRS = list_compositions()
FITTING = [name for name, problem in PAIRS.items() if not problem]
TRIPLES = [
    "ms_sl+ral+matching+diversity", "gmmformer_v2+query_diversity_v1+ral", "clip4clip+ral+diversity",
    "gmmformer_v2+ral+evidence", "gmmformer_v2+ral+registers",
]  # fmt: skip


def build(name: str, **settings):
    torch.manual_seed(0)
    sizes = SIZES | LARGE.get(ModelName.of(name).method, {})
    return create_model(name, **(sizes | settings), init_std=0.3)


def fused(model, batch):
    model.eval()
    with torch.no_grad():
        return model.score(model.encode_queries(batch.queries), model.encode_videos(batch.videos)).fused


def test_most_pairs_fit():
    assert {"gmmformer_v2+ral", "gmmformer+ral", "ms_sl+ral", "clip4clip+ral", "jsg+optimal_matching"} <= set(FITTING)
    assert set(PAIRS) - set(FITTING) >= {"jsg+ral", "gmmformer_v2+optimal_matching", "gmmformer+query_diversity_v1"}


@pytest.mark.parametrize("name", [name for name, problem in PAIRS.items() if problem])
def test_a_pair_that_does_not_fit_is_refused_with_the_reason_that_is_listed(name):
    method, attached = name.split("+")
    assert {method, attached} <= set(re.findall(r"\w+", PAIRS[name]))
    with refused(ConfigError, PAIRS[name]):
        create_model(name, **SIZES)


def features_of(seed, duration_s):
    """A video as a library stores it, with two frames per second and the widths in `SIZES`."""
    vectors = np.random.default_rng(seed).standard_normal((int(2 * duration_s), SIZES["video_dim"]), np.float32)
    return FrameFeatures(vectors, np.arange(len(vectors)) / 2, duration_s)


def sentence_of(seed):
    words = np.random.default_rng(seed).standard_normal((3, SIZES["query_dim"]), np.float32)
    return TextFeatures("a dog jumps", np.zeros(SIZES["video_dim"], np.float32), words, ("a", "dog", "jumps"))


@torch.inference_mode()
def require_search_of(folder):
    """Index three videos with a saved model, rank them for a sentence as the model scores them, find moments."""
    model = TrainedModel(folder)
    model.check_widths(frame_dim=SIZES["video_dim"], word_dim=SIZES["query_dim"])
    features = {str(seed): features_of(seed, duration_s) for seed, duration_s in enumerate(DURATIONS_S)}
    encoded = [model.encode_video(video) for video in features.values()]
    stored = [
        stored_video(video_id, video, blob, model=model.identity)
        for (video_id, video), blob in zip(features.items(), encoded, strict=True)
    ]
    query = sentence_of(7)
    scores = model.model.score(model.encode_query(query), restored(model, encoded)).fused[0]
    prepared = model.corpus().update(stored).prepare(query)
    assert [int(found.video_id) for found in prepared.rank(limit=3)] == scores.argsort(descending=True).tolist()
    for video_id, duration_s in zip(features, DURATIONS_S, strict=True):
        moments = prepared.moments(video_id, limit=5)
        assert 1 <= len(moments) <= 5
        assert all(0 <= moment.start_s < moment.end_s <= duration_s + 1e-5 for moment in moments)
        assert all(moment.start_s <= moment.peak_s <= moment.end_s for moment in moments)
        long = prepared.moments(video_id, limit=5, min_s=2.0)
        assert all(moment.end_s - moment.start_s >= min(2.0, duration_s) - 1e-5 for moment in long)


@pytest.mark.check
@pytest.mark.parametrize("name", list_models() + FITTING + TRIPLES)
def test_a_composition_trains_saves_loads_and_serves_an_index(name, tmp_path):
    model, batch = build(name), make_batch()
    untrained = fused(model, batch)
    optimizer = BertAdam(parameter_groups(model), lr=0.01)
    draws = Draws(hard_pool=2, generator=torch.Generator().manual_seed(1))
    terms = model.train()(batch, draws=draws, epoch=20)  # an epoch in which losses with a warm-up have started
    assert all(term.isfinite() for term in terms.values())
    sum(terms.values()).backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []
    optimizer.step()
    trained = fused(model, batch)
    assert not torch.equal(trained, untrained)
    save_model(model, tmp_path)
    loaded = load_model(tmp_path)
    assert loaded.name == model.name
    assert loaded.config == model.config
    assert torch.equal(fused(loaded, batch), trained)
    require_search_of(tmp_path)


@pytest.mark.check
@pytest.mark.parametrize("name", FITTING)
def test_a_composition_works_with_one_query_and_one_video(name):
    model, single = build(name), one_of_each()
    assert fused(model, single).shape == (1, 1)
    terms = model.train()(single, draws=Draws(hard_pool=20))
    assert all(term.isfinite() for term in terms.values())
    sum(terms.values()).backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


@pytest.mark.check
@pytest.mark.parametrize("name", FITTING)
def test_split_and_concatenated_encodings_are_unchanged(name):
    model, batch = build(name).eval(), make_batch()
    with torch.no_grad():
        queries, videos = model.encode_queries(batch.queries), model.encode_videos(batch.videos)
        whole = model.score(queries, videos).fused
        halves = [queries.select(slice(0, 1)), queries.select(slice(1, 4))]
        parts = [model.score(part, videos.select(slice(1, 3))).fused for part in halves]
        joined = model.score(type(queries).cat(halves), type(videos).cat([videos])).fused
    assert isinstance(queries, EncodedQueries)
    assert isinstance(videos, EncodedVideos)
    assert torch.allclose(torch.cat(parts), whole[:, 1:], atol=1e-6)
    assert torch.allclose(joined, whole, atol=1e-6)


def test_short_names_and_order_are_kept_in_the_full_name():
    assert build("ms_sl+matching+diversity").name == "ms_sl+optimal_matching+query_diversity"
    assert create_model("ms_sl+matching", **SIZES).name == "ms_sl+optimal_matching"


def test_settings_of_a_part_are_a_section_of_the_models():
    model = create_model("gmmformer_v2+ral", **SIZES, **{"ral.num_proxies": 2, "temperature": 0.5})
    assert (model.config.parts["ral"].num_proxies, model.config.temperature) == (2, 0.5)
    assert create_model("gmmformer_v2+ral", **SIZES, ral={"msra": False}).config.parts["ral"].csa


def test_two_parts_cannot_provide_the_same_branch():
    @register("twin_of_ral")
    class Twin(RAL):
        pass

    try:
        with refused(ConfigError, "ral", "twin_of_ral"):
            create_model("ms_sl+ral+twin_of_ral", **SIZES)
        with refused(ConfigError, "'twin_of_ral'"):
            register("twin_of_ral")(Twin)
    finally:
        del ATTACHMENTS["twin_of_ral"]


def test_two_parts_cannot_both_add_rows_to_the_layers():
    @register("other_registers")
    class Other(Registers):
        pass

    try:
        with refused(ConfigError, "registers", "other_registers"):
            create_model("dreamprvr+other_registers", **SIZES)
    finally:
        del ATTACHMENTS["other_registers"]


def test_only_what_was_released_can_be_imported():
    with refused(CheckpointError, "ms_sl+ral", "gmmformer_v2+ral", "holmes+ral"):
        build("ms_sl+ral").released_names()


def test_every_attachment_names_its_source():
    for name in list_attachments():
        assert any(source in paper_of(name) for source in ("arXiv", "GMMFormer")), name
