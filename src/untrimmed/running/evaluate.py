"""Score a trained or imported model on a split of a data set."""

from __future__ import annotations

from pathlib import Path

from untrimmed.evaluation.report import Report
from untrimmed.precision import Precision
from untrimmed.running.opened import open_model
from untrimmed.running.run import Run


def evaluate(
    run: Run | Path | str,
    *,
    split: str = "test",
    data: str | None = None,
    root: Path | str | None = None,
    video_features: str | None = None,
    device: str = "auto",
    precision: Precision = "float32",
    moments: bool = True,
) -> Report:
    """The results of a run's best model, or of any saved model, on a split.

    A run is scored on its own data set unless `data` and `root` name another; an imported model needs both. Where the
    data has moments, event-level recall is reported for any method, else the report's note says why not;
    `moments=False` leaves it out, which saves most of the time.

    Raises:
        CheckpointError: when the folder holds no model, or a damaged one.
        ConfigError: when the data set is not known.
        FeatureError: for missing, damaged or unfitting features.
    """
    opened = open_model(
        run.folder if isinstance(run, Run) else Path(run),
        split=split,
        data=data,
        root=root,
        video_features=video_features,
        device=device,
        precision=precision,
    )
    return opened.report(moments=moments)
