"""The rows of JSG's tables have the settings that their names describe."""

from pathlib import Path

import pytest

from untrimmed.reproduction.papers import paper_named
from untrimmed.reproduction.runner import RunSettings, trial_of
from untrimmed.reproduction.tables import TrainedTable

TABLES = [entry for entry in paper_named("jsg").entries if isinstance(entry, TrainedTable)]
TRIALS = [
    pytest.param(row, on, trial_of(row, on, settings), id=f"{table.name}-{row.name}-{on.name}-{settings.is_simulated}")
    for table in TABLES
    for on in table.columns
    for row in table.rows
    for settings in (RunSettings(Path("runs"), root=Path("data")), RunSettings(Path("runs")))
]


def is_untrained(trial):
    return trial.settings.train.epochs == 0


@pytest.mark.parametrize(("row", "column", "trial"), TRIALS)
def test_only_a_trained_gaze_ranks(row, column, trial):
    if row.method != "jsg" or is_untrained(trial):
        return
    weights, sizes = trial.settings.weights, trial.settings.sizes()
    if weights["gaze_triplet"] == weights["gaze_nce"] == 0:
        assert sizes.rank_moments_by == "glance"
        assert (sizes.glance_weight, sizes.gaze_weight) == (1, 0)
        assert row.evaluated_with == {}
    else:
        assert sizes.gaze_weight > 0


def test_without_centre_based_proposals_the_gaze_still_uses_them():
    (slid,) = {
        str(row.overrides): trial for row, _, trial in (p.values for p in TRIALS) if row.name == "w/o CBPG"
    }.values()
    sizes = slid.settings.sizes()
    assert (sizes.proposals, sizes.gaze_proposals) == ("sliding", "centered")


def test_moments_of_ms_sl_are_its_clips_in_event_columns():
    for row, column, trial in (p.values for p in TRIALS):
        if row.method == "ms_sl":
            assert trial.settings.sizes().moments == ("clips" if column.events else "windows")


def test_on_didemo_one_matching_annotation_is_enough():
    wanted = {p.values[1].name: p.values[2].settings.train.annotators for p in TRIALS if "True" not in p.id}
    assert wanted.pop("didemo_event") == 1
    assert set(wanted.values()) == {2}  # has no effect if a caption has one moment


def test_only_the_row_without_losses_is_untrained():
    assert {p.values[0].name for p in TRIALS if is_untrained(p.values[2])} == {"none"}
