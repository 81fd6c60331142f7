"""DL-DKD: its options, its sizes, and the effects of a teacher. tests/parity compares it with the released program."""

import dataclasses
from pathlib import Path

import pytest
import torch

from tests.refusals import refused
from tests.retrieval_world import SIZES, fused, one_of_each
from untrimmed.errors import FeatureError
from untrimmed.losses.draws import Draws
from untrimmed.models.attached_losses import OptimalMatching
from untrimmed.models.dl_dkd import DLDKD
from untrimmed.models.naming import ModelName
from untrimmed.models.registry import configure, create_model

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


def test_terms_are_those_of_the_branches_and_the_distillation(model, batch):
    terms = model(batch, draws=Draws(hard_pool=2))
    branches = ("inheritance", "exploration") if model.config.two_branches else ("inheritance",)
    assert terms.keys() == {f"{b}_{t}" for b in branches for t in ("nce", "triplet")} | {"distillation"}


def test_distillation_of_a_single_frame_is_zero(model):
    terms = model.train()(one_of_each(), draws=Draws(hard_pool=20))
    assert terms["distillation"] == 0


def test_only_losses_require_teacher_features(model, batch):
    bare = dataclasses.replace(
        batch,
        queries=dataclasses.replace(batch.queries, teacher=None),
        videos=dataclasses.replace(batch.videos, teacher=None, teacher_mask=None),
    )
    assert torch.equal(fused(model, bare), fused(model, batch))
    with refused(FeatureError, "features.teacher"):
        model(bare, draws=Draws())


def test_a_teacher_of_another_length_is_refused(batch):
    longer = dataclasses.replace(batch.videos, teacher=torch.zeros(3, 8, 4), teacher_mask=torch.ones(3, 8).bool())
    with refused(FeatureError, "8", "7"):
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


def test_with_one_branch_the_losses_of_the_other_are_absent():
    both = DLDKD.Config(
        query_dim=4, video_dim=4, losses={"query_diversity": None, "optimal_matching": OptimalMatching.Config()}
    )
    assert both.absent_terms == {"query_diversity"}
    one = dataclasses.replace(both, two_branches=False)
    assert one.absent_terms == {"query_diversity", "exploration_nce", "exploration_triplet"}
    name = ModelName("dl_dkd", ("query_diversity",))
    composed = configure(name, {"query_dim": 4, "video_dim": 4, "two_branches": False})
    assert composed.absent_terms == {"exploration_nce", "exploration_triplet"}
