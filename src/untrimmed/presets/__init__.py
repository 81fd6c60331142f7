"""Published settings: one YAML file per method and data set, with the table and page of every number."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from untrimmed.config import build, nearest, override, read_yaml
from untrimmed.errors import ConfigError, UnknownNameError
from untrimmed.training.settings import FeatureSettings, TrainSettings

FOLDER = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class Preset:
    """Everything a run needs: settings of the model, attached losses, weights of all terms, training, features.

    `model` and `losses` go to the method's `Config`, which checks them; `reported` are the authors' results.
    """

    method: str
    dataset: str
    model: dict[str, Any]
    losses: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    weights: dict[str, float]
    train: TrainSettings
    features: FeatureSettings = field(default_factory=FeatureSettings)
    reported: dict[str, float] = field(default_factory=dict)

    @property
    def settings(self) -> dict[str, Any]:
        """The keyword arguments of `create_model`."""
        return self.model | {"losses": self.losses}


def load_preset(method: str, dataset: str, overrides: Mapping[str, Any] | None = None) -> Preset:
    """The preset of a method on a data set, with some dotted keys changed (`model.dim`, `train.epochs`).

    Raises: UnknownNameError when there is none, ConfigError for an unknown key or a wrong value.
    """
    path = FOLDER / method / f"{dataset}.yaml"
    if not path.is_file():
        known = [f"{m}/{d}" for m, d in list_presets()]
        name = f"{method}/{dataset}"
        raise UnknownNameError(f"no preset {name!r}{nearest(name, known) or '.'} Known: {', '.join(known)}")
    return read_preset(path, overrides)


def read_preset(path: Path, overrides: Mapping[str, Any] | None = None) -> Preset:
    """A preset from any YAML file of the same form.

    Raises: ConfigError for an unknown key, a missing section or a wrong value.
    """
    preset = build(Preset, override(read_yaml(path), overrides or {}), where=str(path))
    unweighted = [name for name, values in preset.losses.items() if values is not None and name not in preset.weights]
    if unweighted:
        raise ConfigError(f"{path}: attached loss {unweighted[0]!r} has no weight; add weights.{unweighted[0]}")
    return preset


def list_presets() -> list[tuple[str, str]]:
    """All (method, data set) pairs, sorted."""
    return sorted((path.parent.name, path.stem) for path in FOLDER.glob("*/*.yaml"))
