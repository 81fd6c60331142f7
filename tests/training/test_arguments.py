"""Messages of training before it begins."""

import pytest

from untrimmed.models.naming import ModelName
from untrimmed.models.registry import configure
from untrimmed.training.arguments import warn_of_idle


@pytest.mark.parametrize(
    ("loss", "weight", "epochs", "warned"),
    [
        ("transport", 0.1, 1, True),
        ("transport", 0.1, 20, True),
        ("transport", 0.1, 21, False),
        ("transport", 0.0, 1, False),
        ("transport", 0.1, 0, False),  # nothing is trained
        ("evidence", 0.1, 1, False),  # it changes in that epoch, and is there before
    ],
)
def test_a_loss_that_begins_after_the_last_epoch_is_warned_of(loss, weight, epochs, warned, caplog):
    sizes = configure(ModelName.of(f"ms_sl+{loss}"), {"query_dim": 6, "video_dim": 5})
    warn_of_idle(sizes, {loss: weight}, epochs)
    assert all(word in caplog.text for word in (loss, "21", "train.epochs")) == warned
