"""Invalid settings of training are refused."""

import pytest

from untrimmed.errors import ConfigError
from untrimmed.presets.settings import TrainSettings


@pytest.mark.parametrize("setting", [{"epochs": -1}, {"learning_rate": 0.0}, {"warmup_share": 1.0}, {"patience": -1}])
def test_impossible_settings_are_refused(setting):
    with pytest.raises(ConfigError, match=next(iter(setting))):
        TrainSettings(**setting)
