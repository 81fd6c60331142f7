"""The Gaussians of RAL, computed by hand: the rows that the released and the printed heads read."""

import pytest
import torch

from untrimmed.models.ral_distribution import Rows, SeparateHead, SharedHead, pooled_rows


@pytest.fixture
def rows():
    """One group of two real rows, whose mean is (2, 1), and a third row that is not read."""
    values = torch.tensor([[[1.0, 0.0], [3.0, 2.0], [9.0, 9.0]]])
    return Rows(values, torch.tensor([0]), torch.tensor([[True, True, False]]), torch.zeros(1))


def set_weights(linear, values):
    linear.weight.data = torch.tensor(values)
    if linear.bias is not None:
        linear.bias.data.zero_()


@pytest.mark.parametrize(
    ("aggregation", "aggregate"), [("both", (2 + 3, 5 + 2)), ("global", (2, 5)), ("local", (3, 2))]
)
def test_the_printed_head_maps_one_aggregate_to_mean_and_spread(aggregation, aggregate, rows):
    head = SharedHead(2, aggregation)
    if head.pooling is not None:  # logits 0 and 50: all attention on the second row, (3, 2)
        set_weights(head.pooling.hidden, [[100.0, 0.0], [0.0, 100.0]])
        set_weights(head.pooling.score, [[0.0, 50.0]])
    if head.global_map is not None:
        set_weights(head.global_map, [[1.0, 0.0], [0.0, 5.0]])
    set_weights(head.mean_map, [[2.0, 0.0], [0.0, 3.0]])
    set_weights(head.scale_map, [[0.0, 0.1], [0.1, 0.0]])
    head.norm = torch.nn.Identity()
    pooled = pooled_rows(rows, rows.counted)
    made, (first, second) = head(rows, pooled), aggregate
    assert pooled.tolist() == [[2.0, 1.0]]
    assert made.mean[0].tolist() == pytest.approx([2 * first, 3 * second])
    assert made.log_scale[0].tolist() == pytest.approx([0.1 * second, 0.1 * first])
    assert torch.equal(head.log_scale(rows, pooled), made.log_scale)


def test_the_aggregate_is_normalised_and_means_have_any_length(rows):
    head = SharedHead(2, "global")
    set_weights(head.global_map, [[1.0, 0.0], [0.0, 5.0]])
    set_weights(head.mean_map, [[7.0, 0.0], [0.0, 7.0]])
    assert head(rows, pooled_rows(rows, rows.counted)).mean[0].tolist() == pytest.approx([-7, 7], rel=1e-3)


def test_with_global_aggregation_the_mean_is_a_linear_map_of_the_plain_mean(rows):
    head = SeparateHead(2, "global")
    set_weights(head.mean_map, [[0.0, 1.0], [1.0, 0.0]])  # (2, 1) becomes (1, 2), normalised (-1, 1)
    made = head.mean(rows, pooled_rows(rows, rows.counted))
    assert made[0].tolist() == pytest.approx([-(0.5**0.5), 0.5**0.5], rel=1e-3)


def test_the_released_head_adds_the_plain_mean_to_the_mapped_pooling(rows):
    head = SeparateHead(2, "both")
    set_weights(head.mean_map, [[0.0, 0.0], [0.0, 0.0]])  # a sigmoid of 0 is one half
    made = head.mean(rows, pooled_rows(rows, rows.counted))  # (2.5, 1.5), normalised (1, -1)
    assert made[0].tolist() == pytest.approx([0.5**0.5, -(0.5**0.5)], rel=1e-3)
