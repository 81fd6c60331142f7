import pytest
import torch

from tests.refusals import refused
from untrimmed.errors import FeatureError
from untrimmed.nn.blocks import TransformerLayer
from untrimmed.nn.init import initialise
from untrimmed.nn.tower import QueryTower, Tower


def query_tower() -> QueryTower:
    torch.manual_seed(0)
    tower = QueryTower(Tower(5, 8, 4, 0.0, TransformerLayer(8, 2, 0.0, output_map=True)), 8)
    initialise(tower, std=0.3)
    return tower.eval()


def test_a_query_does_not_depend_on_the_others_in_its_batch():
    tower, words = query_tower(), torch.randn(2, 4, 5)
    mask = torch.tensor([[True] * 4, [True] * 2 + [False] * 2])
    assert torch.allclose(tower(words, mask)[1], tower(words[1:, :2], mask[1:, :2])[0], atol=1e-6)


def test_the_order_of_words_matters():
    tower, words, mask = query_tower(), torch.randn(1, 3, 5), torch.ones(1, 3, dtype=torch.bool)
    assert not torch.allclose(tower(words, mask), tower(words.flip(1), mask), atol=1e-4)


@pytest.mark.parametrize("shape", [(1, 3, 6), (1, 5, 5)])
def test_features_of_another_width_or_too_long_are_refused(shape):
    with refused(FeatureError, "4", "5"):
        query_tower()(torch.randn(shape), torch.ones(shape[:2], dtype=torch.bool))


def test_initial_weights_follow_the_released_distribution():
    tower = query_tower()
    initialise(tower)
    assert tower.tower.input.linear.weight.std().item() == pytest.approx(0.02, rel=0.3)
    assert tower.tower.blocks[0].layers.attention.weight.std().item() == pytest.approx(0.02, rel=0.2)
    assert all((p == 0).all() for name, p in tower.named_parameters() if name.endswith("bias"))
    assert (tower.tower.input.norm.weight == 1).all()
