import pytest
import torch

from tests.refusals import refused
from untrimmed.errors import ConfigError
from untrimmed.losses.total import total_loss


def test_terms_are_weighed_and_added():
    terms = {"a": torch.tensor(2.0), "b": torch.tensor(3.0)}
    assert total_loss(terms, {"a": 0.5, "b": 2.0}).item() == 7


def test_a_weight_of_zero_turns_a_term_off_even_if_it_is_not_finite():
    assert total_loss({"a": torch.tensor(2.0), "b": torch.tensor(torch.nan)}, {"a": 1.0, "b": 0.0}).item() == 2


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"a": 1.0}, ("weights.b",)),
        ({}, ("weights.a", "weights.b")),
        ({"a": 1.0, "b": 1.0, "c": 1.0}, ("weights.c",)),
        ({"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0}, ("weights.c", "weights.d")),
        ({"a": 0.0, "b": 0.0}, ("0",)),
    ],
)
def test_terms_and_weights_must_agree(weights, message):
    with refused(ConfigError, *message):
        total_loss({"a": torch.tensor(1.0), "b": torch.tensor(1.0)}, weights)
