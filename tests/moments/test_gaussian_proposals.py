import math

import pytest
import torch

from untrimmed.moments.gaussian_proposals import (
    centered_proposals,
    gaussian_windows,
    pool,
    pooling_weights,
    side_windows,
    sliding_proposals,
    time_grid,
)

ONE = torch.tensor([0.5])


def test_every_center_has_all_widths_and_spans_stay_inside_the_video():
    proposals = centered_proposals(3, 2, min_width=0.2, max_width=1.0)
    assert proposals.center.tolist() == pytest.approx([0.1, 0.1, 0.5, 0.5, 0.9, 0.9])
    assert proposals.width.tolist() == pytest.approx([0.2, 1.0] * 3)
    expected = [(0, 0.2), (0, 0.6), (0.4, 0.6), (0, 1), (0.8, 1), (0.4, 1)]
    assert proposals.spans.tolist() == [pytest.approx(span, abs=1e-6) for span in expected]


def test_the_paper_puts_the_outer_centers_at_the_ends():
    assert centered_proposals(3, 1, min_width=0.2, max_width=1.0, centers="paper").center.tolist() == [0, 0.5, 1]


def test_sliding_windows_skip_lengths_by_the_step():
    # lengths 1 and 3 of 4 units: four windows of a quarter, then two of three quarters
    proposals = sliding_proposals(4, step=2, min_width=0.05, max_width=0.5)
    assert proposals.center.tolist() == pytest.approx([0.125, 0.375, 0.625, 0.875, 0.375, 0.625])
    assert proposals.width.tolist() == [0.25] * 4 + [0.5] * 2  # three quarters are clamped


def test_weights_sum_to_one_and_fall_off_as_a_gaussian():
    # width 0.9 over 9 gives a deviation of 0.1; half a video away is 5 deviations
    weights = pooling_weights(ONE, torch.tensor([0.9]), time_grid(3))[0]
    side = math.exp(-12.5)
    assert weights.tolist() == pytest.approx(
        [side / (1 + 2 * side), 1 / (1 + 2 * side), side / (1 + 2 * side)], rel=1e-4
    )


@pytest.mark.parametrize("length", [1, 2, 5, 6])
def test_a_window_between_two_positions_of_a_coarse_grid_is_no_nan(length):
    proposals = centered_proposals(16, 10, min_width=0.05, max_width=1.0)
    weights = pooling_weights(proposals.center, proposals.width, time_grid(length))
    assert weights.isfinite().all()
    assert torch.allclose(weights.sum(dim=1), torch.ones(160))


def test_the_printed_density_is_not_normalised():
    # positions 0.5 and 1; deviation 0.1: at the centre 1 / (sqrt(2 pi) 0.1)
    weights = pooling_weights(ONE, torch.tensor([0.9]), time_grid(2, "density"), pooling="density")[0]
    assert weights[0].item() == pytest.approx(1 / (math.sqrt(2 * math.pi) * 0.1))
    assert weights[1].item() == pytest.approx(weights[0].item() * math.exp(-12.5), rel=1e-5)


def test_the_mean_takes_the_positions_of_the_span_and_at_least_the_nearest():
    grid = time_grid(5)
    inside = pooling_weights(ONE, torch.tensor([0.5]), grid, pooling="mean")[0]
    assert inside.tolist() == pytest.approx([0, 1 / 3, 1 / 3, 1 / 3, 0])
    nearest = pooling_weights(torch.tensor([0.6]), torch.tensor([0.01]), grid, pooling="mean")[0]
    assert nearest.tolist() == [0, 0, 1, 0, 0]


def test_pooling_gives_the_weighted_rows():
    rows = torch.randn(2, 7, 3, generator=torch.Generator().manual_seed(0))
    proposals = centered_proposals(3, 2, min_width=0.2, max_width=1.0)
    weights = pooling_weights(proposals.center, proposals.width, time_grid(7))
    for video in range(2):
        for p in range(6):
            by_hand = sum(weights[p, j] * rows[video, j] for j in range(7))
            assert torch.allclose(pool(rows, proposals)[video, p], by_hand, atol=1e-6)


def test_what_is_left_beside_a_proposal():
    center, width = torch.tensor([0.4, 0.1]), torch.tensor([0.4, 0.5])
    released, paper = side_windows(center, width, "released"), side_windows(center, width, "paper")
    # from 0.2 to 0.6: rests 0.2 and 0.4; the second starts before the video: rests 0 and 0.65
    expected = [pytest.approx([0.2, 0.4], abs=1e-6), pytest.approx([0.0, 0.65], abs=1e-6)]
    assert released.width.tolist() == expected
    assert paper.width.tolist() == expected
    assert released.center.tolist() == [[0, 1], [0, 1]]
    assert paper.center.tolist() == [pytest.approx([0.1, 0.8]), pytest.approx([0.0, 0.675])]
    assert (released.scale, paper.scale) == (4.5, 9.0)


def test_infinite_positions_get_no_weight():
    windows = gaussian_windows(ONE, ONE, torch.tensor([0.0, 1.0, torch.inf]))
    assert windows.tolist() == [[1, 1, 0]]
