"""Steps that are timed for a study's costs."""

import pytest

from tests.retrieval_world import SIZES, make_batch
from untrimmed.presets import load_preset
from untrimmed.study.costs import Stepper


@pytest.mark.parametrize("name", ["holmes+ral", "gmmformer_v2+ral"])
def test_a_step_ignores_weights_of_losses_that_are_off(name):
    """Holmes uses only the words of RAL, and its preset still has the weights of the losses."""
    preset = load_preset(name, "tvr", {f"model.{key}": value for key, value in SIZES.items()})
    assert "proxy_matching" in preset.weights
    assert Stepper(preset).step(make_batch()) > 0
