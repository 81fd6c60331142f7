"""Published settings: one YAML file per method and data set, with the table or section of every number.

`load_preset` merges up to four kinds of files. All have the same sections, and later ones override earlier ones:

1. `<method>/<dataset>.yaml`: the method alone.
2. `attachments/<name>/<dataset>.yaml`: what an attachment adds to any method.
3. `<method>+<attachment>/<dataset>.yaml`: changes for this method whenever it carries the attachment.
4. `<method>+<attachment>+<attachment>/<dataset>.yaml`: changes for exactly this set of attachments.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from untrimmed.config import build, override, read_yaml
from untrimmed.errors import ConfigError, UnknownNameError
from untrimmed.models.naming import ModelName
from untrimmed.presets.published import reported
from untrimmed.presets.settings import FeatureSettings, TrainSettings

if TYPE_CHECKING:
    from untrimmed.models.base import ModelConfig

FOLDER = Path(__file__).parent
OWN_DATA_PRESET = "tvr"  # used for a data set without a preset; widths come from its features


@dataclass(frozen=True, kw_only=True)
class Preset:
    """All settings of a run: the model, attached losses, the weight of each loss term, training, features.

    The method's `Config` checks `model` and `losses`. `reported` has the authors' results in percent by metric. In a
    file it may name a row of `published.yaml` instead: `[paper, table, row, column]`.
    """

    method: str
    dataset: str
    model: dict[str, Any]
    losses: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    weights: dict[str, float]
    train: TrainSettings
    features: FeatureSettings = field(default_factory=FeatureSettings)
    reported: dict[str, float] = field(default_factory=dict)

    @cached_property
    def name(self) -> ModelName:
        """`method` parsed into the method and its attachments."""
        return ModelName.of(self.method)

    @property
    def settings(self) -> dict[str, Any]:
        """The keyword arguments of `create_model`."""
        return self.model | {"losses": self.losses}

    def sizes(self) -> "ModelConfig":
        """Return the model's settings, checked and with all defaults.

        Raises: ConfigError for an unknown setting or a wrong value.
        """
        from untrimmed.models.registry import configure  # imports torch, which reading a preset does not need

        return configure(self.name, self.settings, where=f"{self.method}/{self.dataset}")

    def weights_in(self, sizes: "ModelConfig") -> dict[str, float]:
        """Return the weights of the loss terms that a model with these settings has, without those that are off."""
        return {name: weight for name, weight in self.weights.items() if name not in sizes.absent_terms}


def load_preset(method: str | ModelName, dataset: str, overrides: Mapping[str, Any] | None = None) -> Preset:
    """Return the preset of a method on a data set; `overrides` have dotted keys (`model.dim`, `train.epochs`).

    Raises: UnknownNameError if the method or data set has no preset, ConfigError for an unknown key or a wrong value.
    """
    name = ModelName.of(method)
    base, attached = name.method, name.attachments
    path = FOLDER / base / f"{dataset}.yaml"
    if not path.is_file():
        datasets = [data for method, data in list_presets() if method == base]
        if not datasets:  # a method from outside this package
            raise UnknownNameError(f"{base} has no presets; write one as CONTRIBUTING.md shows, and give --preset FILE")
        raise UnknownNameError.among(f"preset of {base}", dataset, datasets)
    if not attached:
        return read_preset(path, overrides)
    values = read_yaml(path) | {"reported": {}}
    for attachment in attached:
        values = _merge(values, _attachment_settings(attachment, dataset))
    exact = [folder.name for folder in FOLDER.glob(f"{base}+*+*") if {*folder.name.split("+")} == {base, *attached}]
    folders = [*(f"{base}+{attachment}" for attachment in attached), *exact]
    for overlay in (FOLDER / folder / f"{dataset}.yaml" for folder in folders):
        if overlay.is_file():
            values = _merge(values, read_yaml(overlay))
    values["method"] = str(name)
    if len(attached) > 1:  # the published results have one attachment
        values["reported"] = {}
    return _build(values, overrides, where=f"{name}/{dataset}")


def has_preset(method: str | ModelName, dataset: str) -> bool:
    """Return whether a method, with or without attachments, has a preset for a data set."""
    return (FOLDER / ModelName.of(method).method / f"{dataset}.yaml").is_file()


def _attachment_settings(attachment: str, dataset: str) -> dict[str, Any]:
    """Return an attachment's settings for the data set; if it has no file, for the base of a variant (`tvr_event`).

    The last resort is TVR's file. A loss without any file (registered outside this package) gets its defaults.
    """
    for candidate in (dataset, dataset.partition("_")[0], "tvr"):
        path = FOLDER / "attachments" / attachment / f"{candidate}.yaml"
        if path.is_file():
            return read_yaml(path)
    from untrimmed.models.registry import is_loss  # imports torch, which reading a preset does not need

    return {"losses": {attachment: {}}} if is_loss(attachment) else {}


def _merge(values: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    """Return `values` updated recursively by `overlay`."""
    merged = dict(values)
    for key, value in overlay.items():
        base = merged.get(key)
        merged[key] = _merge(base, value) if isinstance(base, Mapping) and isinstance(value, Mapping) else value
    return merged


def read_preset(path: Path, overrides: Mapping[str, Any] | None = None) -> Preset:
    """Return a preset from any YAML file with the same sections.

    Raises: ConfigError for an unknown key, a missing section or a wrong value.
    """
    return _build(read_yaml(path), overrides, where=str(path))


def _build(values: Mapping[str, Any], overrides: Mapping[str, Any] | None, *, where: str) -> Preset:
    if isinstance(values.get("reported"), list):
        values = {**values, "reported": reported([str(name) for name in values["reported"]])}
    if overrides:
        where = f"{where} with {' '.join(f'{key}={value}' for key, value in overrides.items())}"
    preset = build(Preset, override(values, overrides or {}), where=where)
    unweighted = [name for name, values in preset.losses.items() if values is not None and name not in preset.weights]
    if unweighted:
        _require_losses(preset.losses)
        raise ConfigError(f"{where}: attached loss {unweighted[0]!r} has no weight; add weights.{unweighted[0]}")
    for term in sorted(preset.weights.keys() - values.get("weights", {}).keys() - preset.losses.keys()):
        if carriers := [name for name in _attachments_with(term) if _can_carry(preset.name, name)]:
            raise ConfigError(
                f"{where}: weights.{term} belongs to {carriers[0]}, which {preset.method} does not carry; train "
                f"{preset.method}+{carriers[0]}, or remove the weight"
            )
    return preset


def _can_carry(name: ModelName, attachment: str) -> bool:
    """Return whether the attachment fits the model and is not attached yet."""
    from untrimmed.models.registry import model_class  # imports torch, which reading a preset does not need

    try:
        model_class(ModelName(name.method, (*name.attachments, attachment)))
    except (ConfigError, UnknownNameError):
        return False
    return attachment not in name.attachments


def _require_losses(names: Iterable[str]) -> None:
    from untrimmed.models.registry import is_loss, list_attachments  # imports torch, as above

    losses = [attachment for attachment in list_attachments() if is_loss(attachment)]
    for name in names:
        if name not in losses:
            raise UnknownNameError.among("attached loss", name, losses)


def _attachments_with(term: str) -> list[str]:
    """The attachments of this package that have a loss term of that name."""
    files = sorted(FOLDER.glob(f"attachments/*/{OWN_DATA_PRESET}.yaml"))
    return [path.parent.name for path in files if term in read_yaml(path).get("weights", {})]


def list_presets() -> list[tuple[str, str]]:
    """Return the (method, data set) pairs that have a file, sorted. Compositions have no entry (see `has_preset`)."""
    return sorted((path.parent.name, path.stem) for path in FOLDER.glob("*/*.yaml"))
