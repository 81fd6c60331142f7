"""Computes the losses of every row once, so that settings that contradict the weights fail here.

`make stress` trains and evaluates every row.
"""

import numpy as np
import pytest
import torch

from tests.reproduction.conftest import TINY
from untrimmed.losses.draws import Draws
from untrimmed.losses.total import total_loss
from untrimmed.models.registry import create_model
from untrimmed.reproduction.papers import PAPERS
from untrimmed.reproduction.runner import RunSettings, pairs_of, run_table, simulated_data, trial_of
from untrimmed.reproduction.tables import TrainedTable
from untrimmed.running.batches import caption_training_batch, training_batch
from untrimmed.running.run import DataSettings
from untrimmed.running.split import load_split

ROWS = [
    pytest.param(row, column, id=f"{paper.name}-{table.name}-{row.name}-{column.name}")
    for paper in PAPERS.values()
    for table in paper.entries
    if isinstance(table, TrainedTable)
    for row, column in pairs_of(table)
]
TABLES = [
    pytest.param(entry, id=f"{paper.name}-{entry.name}")
    for paper in PAPERS.values()
    for entry in paper.entries
    if isinstance(entry, TrainedTable)
]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    settings = RunSettings(tmp_path_factory.mktemp("rows"), seed=3, device="cpu", scale=TINY)
    return settings, simulated_data(settings)


@pytest.mark.check
@pytest.mark.parametrize(("row", "column"), ROWS)
def test_the_losses_of_every_row_are_weighed_and_finite(row, column, tiny):
    settings, (root, name) = tiny
    preset = trial_of(row, column, settings).settings
    torch.manual_seed(0)
    model = create_model(row.method, **preset.settings)
    dataset = load_split(DataSettings(name=name, root=str(root)), model.config, preset.features, "train")
    if preset.train.batch_of == "captions":
        batch = caption_training_batch(dataset, np.arange(4))
    else:
        batch = training_batch(dataset, np.arange(3), sort_by=preset.features.sort_by)
    weights = {term: weight for term, weight in preset.weights.items() if term not in model.config.absent_terms}
    assert total_loss(model(batch, draws=Draws()), weights).isfinite()


@pytest.mark.slow
@pytest.mark.parametrize("table", TABLES)
def test_every_row_of_a_table_trains_and_is_evaluated(table, tiny):
    settings, _ = tiny
    figures = run_table(table, settings).figures
    assert set(figures) == {(row.name, column.name) for row, column in pairs_of(table)}
    for metrics in figures.values():  # the few test videos may have no moment in a group by ratio
        assert all(np.isfinite(value) for name, value in metrics.items() if "M/V" not in name)
