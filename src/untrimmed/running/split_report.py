"""What the scores of a split amount to, whatever model gave them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from untrimmed.data.dataset import RetrievalDataset
from untrimmed.data.truths import Truths
from untrimmed.evaluation.report import Report, make_report


def split_report(
    name: str,
    dataset: RetrievalDataset,
    fused: Float[np.ndarray, "Q V"],
    branches: Mapping[str, Float[np.ndarray, "Q V"]],
    *,
    events: Mapping[str, float] | None,
    note: str,
    labels: Truths | None,
) -> Report:
    """The results of the model of that name; `events` and `note` as in `make_report`, `labels` are dense ones."""
    report = make_report(
        f"{name} on {dataset.name}, {dataset.split}",
        fused,
        branches,
        dataset.video_index,
        caption_ids=dataset.caption_ids,
        moment_ratios=dataset.moment_ratios,
        events=events,
        num_events=sum(len(spans) > 0 for spans in dataset.moments),
        note=note,
        right_videos=None if labels is None else labels.video_index,
        truths=None if labels is None else labels.counts,
    )
    return replace(report, source=dataset.source)
