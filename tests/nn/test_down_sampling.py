import pytest
import torch

from untrimmed.nn.down_sampling import DownSampling


def layer(weight, bias=0.0):
    made = DownSampling(4, 4, len(weight), 1)
    made.conv.weight.data = torch.tensor(weight)[None, None]
    made.conv.bias.data.fill_(bias)
    return made


@torch.no_grad()
def test_maxima_are_combined_by_the_same_numbers_in_every_dimension():
    x = torch.zeros(1, 8, 2)
    x[0, 2], x[0, 7] = torch.tensor([3.0, -1.0]), torch.tensor([5.0, 4.0])
    rows, mask = layer([10.0, 1.0], bias=0.5)(x, torch.ones(1, 8, dtype=torch.bool))
    # maxima (3, 0) and (5, 4): 10 * 3 + 5 + 0.5 and 10 * 0 + 4 + 0.5
    assert rows.tolist() == [[[35.5, 4.5]]]
    assert mask.tolist() == [[True]]


@pytest.mark.parametrize(("length", "rows"), [(64, 13), (128, 29), (16, 1), (19, 1), (20, 2)])
def test_lengths_are_those_of_the_release(length, rows):
    made, mask = DownSampling(4, 4, 4, 1)(torch.zeros(2, length, 3), torch.ones(2, length, dtype=torch.bool))
    assert made.shape == (2, rows, 3)
    assert mask.shape == (2, rows)


def test_a_row_is_real_if_a_fifth_of_its_input_is():
    mask = torch.arange(20)[None] < 1
    _, pooled_mask = DownSampling(4, 4, 4, 1).pooled(torch.zeros(1, 20, 3), mask)
    _, coarse_mask = DownSampling(4, 4, 4, 1)(torch.zeros(1, 20, 3), mask)
    assert pooled_mask.tolist() == [[True, False, False, False, False]]
    assert coarse_mask.tolist() == [[True, False]]


def test_fewer_rows_than_the_kernels_need_are_padded():
    rows, mask = layer([1.0, 1.0, 1.0, 1.0])(torch.ones(1, 1, 2), torch.ones(1, 1, dtype=torch.bool))
    assert rows.tolist() == [[[1.0, 1.0]]]
    assert mask.tolist() == [[True]]
