"""DL-DKD: its options, its sizes, and what a teacher changes; parity stands in tests/parity."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from tests.retrieval_world import SIZES, one_of_each
from untrimmed.errors import ConfigError, FeatureError
from untrimmed.losses.draws import Draws
from untrimmed.models.attached_losses import OptimalMatching, QueryDiversity
from untrimmed.models.dl_dkd import DLDKD
from untrimmed.models.naming import ModelName
from untrimmed.models.registry import build_model, configure, create_model
from untrimmed.models.released import UNUSED, export_released, import_released
from untrimmed.models.storage import load_model, save_model
from untrimmed.training.optim import parameter_groups

CASES = Path(__file__).parents[1] / "parity" / "cases" / "dl-dkd"
FORMS = {
    "conference": {},
    "later": {"version": "later", "labels": "soft", "exploration_dim": 6},
    "single branch": {"two_branches": False},
}


@pytest.fixture(params=FORMS.values(), ids=list(FORMS))
def model(request):
    torch.manual_seed(0)
    return create_model("dl_dkd", **SIZES, init_std=0.3, **request.param).eval()


def fused(model, batch):
    with torch.no_grad():
        return model.score(model.encode_queries(batch.queries), model.encode_videos(batch.videos)).fused


def test_terms_are_those_of_the_branches_and_the_distillation(model, batch):
    terms = model(batch, draws=Draws(hard_pool=2))
    branches = ("inheritance", "exploration") if model.config.two_branches else ("inheritance",)
    assert terms.keys() == {f"{b}_{t}" for b in branches for t in ("nce", "triplet")} | {"distillation"}


def test_a_batch_of_one_of_everything_trains(model):
    terms = model.train()(one_of_each(), draws=Draws(hard_pool=20))
    assert all(term.isfinite() for term in terms.values())
    assert terms["distillation"] == 0  # one frame has all of every distribution
    sum(terms.values()).backward()


def test_a_video_does_not_depend_on_its_batch_mates(model, batch):
    whole = fused(model, batch)
    for v, length in enumerate((7, 3, 1)):
        own = batch.videos.select(slice(v, v + 1))
        cut = dataclasses.replace(own, frames=own.frames[:, :length], frame_mask=own.frame_mask[:, :length])
        alone = fused(model, dataclasses.replace(batch, videos=cut))
        assert torch.allclose(alone, whole[:, v : v + 1], atol=1e-6)


def test_every_parameter_learns(model, batch):
    sum(model.train()(batch, draws=Draws(hard_pool=2)).values()).backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


def test_it_carries_the_attached_losses(model, batch):
    losses = {"query_diversity": QueryDiversity.Config(), "optimal_matching": OptimalMatching.Config()}
    config = dataclasses.replace(model.config, losses=losses)
    terms = build_model(type(model), config)(batch, draws=Draws(hard_pool=2))
    assert terms["query_diversity"] > 0
    assert terms["optimal_matching"] > 0


def test_a_saved_model_scores_the_same_when_loaded(model, batch, tmp_path):
    save_model(model, tmp_path)
    assert torch.equal(fused(load_model(tmp_path), batch), fused(model, batch))


def test_export_and_import_are_inverse(model):
    other = build_model(type(model), model.config)
    names = model.released_names()
    import_released(other, names, export_released(names, model.state_dict()))
    assert all(torch.equal(a, b) for a, b in zip(other.parameters(), model.parameters(), strict=True))


def test_scores_need_no_teacher_and_losses_say_that_they_do(model, batch):
    bare = dataclasses.replace(
        batch,
        queries=dataclasses.replace(batch.queries, teacher=None),
        videos=dataclasses.replace(batch.videos, teacher=None, teacher_mask=None),
    )
    assert torch.equal(fused(model, bare), fused(model, batch))
    with pytest.raises(FeatureError, match=r"this batch has none; .*features\.teacher"):
        model(bare, draws=Draws())


def test_a_teacher_of_another_length_is_refused(batch):
    longer = dataclasses.replace(batch.videos, teacher=torch.zeros(3, 8, 4), teacher_mask=torch.ones(3, 8).bool())
    with pytest.raises(FeatureError, match="8 teacher frames a video beside 7"):
        create_model("dl_dkd", **SIZES)(dataclasses.replace(batch, videos=longer), draws=Draws())


def test_the_distillation_fades_with_the_epochs_and_a_rising_one_starts_from_one(batch):
    torch.manual_seed(0)
    model = create_model("dl_dkd", **SIZES).eval()
    first, later = (model(batch, draws=Draws(hard_pool=2), epoch=e)["distillation"].item() for e in (0, 3))
    assert later == pytest.approx(0.95**3 * first, rel=1e-6)
    rising = create_model("dl_dkd", **SIZES, distillation_decay="rising_exponential")
    assert [rising.distillation_factor(e) for e in (0, 1)] == pytest.approx([1.0, 1.05])


def test_shares_start_as_set_and_the_share_of_labels_stops_at_half():
    model = create_model("dl_dkd", **SIZES, labels="soft", share_decay="exponential")
    assert model.shares(0) == (0.8, 0.8)
    assert model.shares(119) == pytest.approx((0.8 * 0.95**119, 0.5))
    assert create_model("dl_dkd", **SIZES, share_decay="exponential", label_share=0.4).shares(119)[1] < 0.01


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"exploration_dim": 6}, "share an input layer"),
        ({"version": "later", "exploration_dim": 7}, "not divisible by num_heads"),
        ({"hard_share": 1.2}, "wanted a share"),
        ({"temperature": 0.0}, "wanted both above 0"),
    ],
)
def test_settings_out_of_range_are_refused(option, message):
    with pytest.raises(ConfigError, match=message):
        create_model("dl_dkd", **SIZES, **option)


@pytest.mark.parametrize(
    ("file", "version"), [("released-parameters.json", "conference"), ("pp-released-parameters.json", "later")]
)
@pytest.mark.parametrize("dataset", ["tvr", "activitynet"])
def test_sizes_decay_and_initial_values_are_the_released_ones(file, version, dataset):
    entry = json.loads((CASES / file).read_text())["datasets"][dataset]
    dims = entry["dims"]
    torch.manual_seed(0)
    model = create_model("dl_dkd", query_dim=dims["text_dim"], video_dim=dims["visual_dim"], version=version)
    ours = dict(model.named_parameters())
    decay_of = {id(p): group["weight_decay"] for group in parameter_groups(model) for p in group["params"]}
    names = model.released_names()
    assert names.keys() == entry["parameters"].keys()
    counted = 0
    for name, slot in names.items():
        recorded = entry["parameters"][name]
        counted += torch.Size(recorded["shape"]).numel()
        if slot is UNUSED:
            continue
        values = slot.export(ours).detach()
        assert list(values.shape) == recorded["shape"], name
        assert decay_of[id(ours[slot.parameter])] == recorded["weight_decay"], name
        if recorded["init"].startswith("normal"):
            assert values.std().item() == pytest.approx(0.02, rel=4 / (2 * values.numel()) ** 0.5), name
        else:
            assert (values == float(recorded["init"].removeprefix("constant "))).all(), name
    assert counted == entry["total"]


def test_one_branch_leaves_out_the_losses_of_the_other_and_of_what_is_switched_off():
    both = DLDKD.Config(
        query_dim=4, video_dim=4, losses={"query_diversity": None, "optimal_matching": OptimalMatching.Config()}
    )
    assert both.absent_terms == {"query_diversity"}
    one = dataclasses.replace(both, two_branches=False)
    assert one.absent_terms == {"query_diversity", "exploration_nce", "exploration_triplet"}
    name = ModelName("dl_dkd", ("query_diversity",))
    composed = configure(name, {"query_dim": 4, "video_dim": 4, "two_branches": False})
    assert composed.absent_terms == {"exploration_nce", "exploration_triplet"}
