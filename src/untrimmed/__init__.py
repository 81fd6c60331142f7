"""Find, by a sentence, the moment inside long untrimmed videos."""

import importlib
import os
from typing import TYPE_CHECKING, Any

from untrimmed.version import __version__

if TYPE_CHECKING:
    from untrimmed.data.annotations import Annotation
    from untrimmed.data.dataset import dataset_of_arrays, load_dataset
    from untrimmed.data.simulation.simulate import simulate
    from untrimmed.data.simulation.world import SimulationSettings
    from untrimmed.errors import UntrimmedError
    from untrimmed.models.registry import create_model, list_attachments, list_models
    from untrimmed.plugins import import_module
    from untrimmed.running.evaluate import evaluate
    from untrimmed.running.loaded import load
    from untrimmed.search.indexing.pipeline import IndexReport, Progress
    from untrimmed.search.indexing.video_files import Failure
    from untrimmed.search.library import Library
    from untrimmed.search.library import Library as open  # noqa: N813
    from untrimmed.search.query.hits import Hit
    from untrimmed.search.query.query import Filters, Place, Query, Weights
    from untrimmed.search.store.records import VideoRecord
    from untrimmed.training.train import train
    from untrimmed.types import Moment

# Some libraries send statistics about their use over the network, unless they are told not to before they are imported.
for _name, _value in {
    "ORT_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}.items():
    os.environ.setdefault(_name, _value)

# Public name -> module and attribute. A module is imported when its name is first used, so `import untrimmed` is fast
# and needs no torch.
_PUBLIC = {
    "Annotation": "untrimmed.data.annotations:Annotation",
    "Failure": "untrimmed.search.indexing.video_files:Failure",
    "Filters": "untrimmed.search.query.query:Filters",
    "Hit": "untrimmed.search.query.hits:Hit",
    "IndexReport": "untrimmed.search.indexing.pipeline:IndexReport",
    "Library": "untrimmed.search.library:Library",
    "Moment": "untrimmed.types:Moment",
    "Place": "untrimmed.search.query.query:Place",
    "Progress": "untrimmed.search.indexing.pipeline:Progress",
    "Query": "untrimmed.search.query.query:Query",
    "SimulationSettings": "untrimmed.data.simulation.world:SimulationSettings",
    "UntrimmedError": "untrimmed.errors:UntrimmedError",
    "VideoRecord": "untrimmed.search.store.records:VideoRecord",
    "Weights": "untrimmed.search.query.query:Weights",
    "create_model": "untrimmed.models.registry:create_model",
    "dataset_of_arrays": "untrimmed.data.dataset:dataset_of_arrays",
    "evaluate": "untrimmed.running.evaluate:evaluate",
    "import_module": "untrimmed.plugins:import_module",
    "list_attachments": "untrimmed.models.registry:list_attachments",
    "list_models": "untrimmed.models.registry:list_models",
    "load": "untrimmed.running.loaded:load",
    "load_dataset": "untrimmed.data.dataset:load_dataset",
    "open": "untrimmed.search.library:Library",
    "simulate": "untrimmed.data.simulation.simulate:simulate",
    "train": "untrimmed.training.train:train",
}

__all__ = [
    "Annotation",
    "Failure",
    "Filters",
    "Hit",
    "IndexReport",
    "Library",
    "Moment",
    "Place",
    "Progress",
    "Query",
    "SimulationSettings",
    "UntrimmedError",
    "VideoRecord",
    "Weights",
    "__version__",
    "create_model",
    "dataset_of_arrays",
    "evaluate",
    "import_module",
    "list_attachments",
    "list_models",
    "load",
    "load_dataset",
    "open",
    "simulate",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _PUBLIC[name].partition(":")
    value = getattr(importlib.import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
