import pytest
import torch
from torch import nn

from untrimmed.errors import ConfigError
from untrimmed.presets.settings import TrainSettings
from untrimmed.training.optim import BertAdam
from untrimmed.training.schedule import warmup_linear, warmup_linear_schedule


def test_the_first_update_of_a_run_moves_nothing_and_the_rate_peaks_after_the_warmup():
    weight = nn.Parameter(torch.ones(1))
    optimizer = BertAdam([weight], lr=0.5)
    schedule = warmup_linear_schedule(optimizer, total_steps=20, warmup_share=0.1)
    rates = []
    for step in range(22):
        rates.append(optimizer.param_groups[0]["lr"])
        weight.grad = torch.ones(1)
        before = weight.item()
        optimizer.step()
        schedule.step()
        assert (weight.item() == before) == (step in (0, 20, 21))
    assert rates[:3] == [0.0, 0.25, 0.5]
    assert rates[11] == pytest.approx(0.25)
    assert rates[20:] == [0.0, 0.0]


def test_the_rate_stays_zero_past_the_end():
    assert warmup_linear(1000, total_steps=10, warmup_share=0.01) == 0


@pytest.mark.parametrize("setting", [{"epochs": -1}, {"learning_rate": 0.0}, {"warmup_share": 1.0}, {"patience": -1}])
def test_impossible_settings_are_refused(setting):
    with pytest.raises(ConfigError, match=next(iter(setting))):
        TrainSettings(**setting)
