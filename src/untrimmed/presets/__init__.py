"""Published settings: one YAML file per method and data set, with the table or section of every number.

What an attachment brings stands in `attachments/<name>/<dataset>.yaml` and is laid over the method's preset; what a
composition changes beyond that, in `<method>+<attachment>/<dataset>.yaml`, for all that carry the attachment; for one
alone in `<method>+<attachment>+<attachment>/<dataset>.yaml`. All files have the same sections.
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
OWN_DATA_PRESET = "tvr"  # whose settings data without a preset of its own gets; widths come from the data


@dataclass(frozen=True, kw_only=True)
class Preset:
    """Everything a run needs: settings of the model, attached losses, weights of all terms, training, features.

    `model` and `losses` go to the method's `Config`, which checks them; `reported` are the authors' results
    in percent by metric; in a file it may be a row of `published.yaml`: `[paper, table, row, column]`.
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
        """The method and what is attached to it; `method` says it as text."""
        return ModelName.of(self.method)

    @property
    def settings(self) -> dict[str, Any]:
        """The keyword arguments of `create_model`."""
        return self.model | {"losses": self.losses}

    def sizes(self) -> "ModelConfig":
        """The settings of the model, checked and with all defaults.

        Raises: ConfigError for an unknown setting or a wrong value.
        """
        from untrimmed.models.registry import configure  # imports torch, which reading a preset does not need

        return configure(self.name, self.settings, where=f"{self.method}/{self.dataset}")

    def weights_in(self, sizes: "ModelConfig") -> dict[str, float]:
        """The weights of terms that a model of these settings has; what is off leaves its own behind."""
        return {name: weight for name, weight in self.weights.items() if name not in sizes.absent_terms}


def load_preset(method: str | ModelName, dataset: str, overrides: Mapping[str, Any] | None = None) -> Preset:
    """The preset of a method on a data set, with some dotted keys changed (`model.dim`, `train.epochs`).

    Raises: UnknownNameError when there is none, ConfigError for an unknown key or a wrong value.
    """
    name = ModelName.of(method)
    base, attached = name.method, name.attachments
    path = FOLDER / base / f"{dataset}.yaml"
    if not path.is_file():
        known = [data for method, data in list_presets() if method == base]
        if not known:  # a method from outside this package
            raise UnknownNameError(f"{base} has no presets; write one as CONTRIBUTING.md shows, and give --preset FILE")
        raise UnknownNameError.among(f"preset of {base}", dataset, known)
    if not attached:
        return read_preset(path, overrides)
    values = read_yaml(path) | {"reported": {}}
    for part in attached:
        values = _merge(values, _brought_by(part, dataset))
    own = [folder.name for folder in FOLDER.glob(f"{base}+*+*") if {*folder.name.split("+")} == {base, *attached}]
    for overlay in (FOLDER / known / f"{dataset}.yaml" for known in [*(f"{base}+{part}" for part in attached), *own]):
        if overlay.is_file():
            values = _merge(values, read_yaml(overlay))
    values["method"] = str(name)
    if len(attached) > 1:  # results are those of one attachment
        values["reported"] = {}
    return _build(values, overrides, where=f"{name}/{dataset}")


def has_preset(method: str | ModelName, dataset: str) -> bool:
    """Whether a method, with or without attachments, has a preset for a data set."""
    return (FOLDER / ModelName.of(method).method / f"{dataset}.yaml").is_file()


def _brought_by(attachment: str, dataset: str) -> dict[str, Any]:
    """What an attachment brings: for this data set, for that of which it is a variant (`tvr_event`), or TVR's.

    A loss without a file, which is registered outside this package, brings its default settings.
    """
    for known in (dataset, dataset.partition("_")[0], "tvr"):
        path = FOLDER / "attachments" / attachment / f"{known}.yaml"
        if path.is_file():
            return read_yaml(path)
    from untrimmed.models.registry import is_loss  # imports torch, which presets do without

    return {"losses": {attachment: {}}} if is_loss(attachment) else {}


def _merge(values: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    """`values` with those of `overlay` in their place, section by section."""
    merged = dict(values)
    for key, value in overlay.items():
        below = merged.get(key)
        merged[key] = _merge(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged


def read_preset(path: Path, overrides: Mapping[str, Any] | None = None) -> Preset:
    """A preset from any YAML file of the same form.

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
        if carriers := [part for part in _bringing(term) if _can_carry(preset.name, part)]:
            raise ConfigError(
                f"{where}: weights.{term} is of {carriers[0]}, which {preset.method} does not carry; train "
                f"{preset.method}+{carriers[0]}, or leave the weight out"
            )
    return preset


def _can_carry(name: ModelName, part: str) -> bool:
    """Whether a model that does not carry the attachment could."""
    from untrimmed.models.registry import model_class  # imports torch, which reading a preset does not need

    try:
        model_class(ModelName(name.method, (*name.attachments, part)))
    except (ConfigError, UnknownNameError):
        return False
    return part not in name.attachments


def _require_losses(names: Iterable[str]) -> None:
    from untrimmed.models.registry import is_loss, list_attachments  # as above

    known = [attachment for attachment in list_attachments() if is_loss(attachment)]
    for name in names:
        if name not in known:
            raise UnknownNameError.among("attached loss", name, known)


def _bringing(term: str) -> list[str]:
    """The attachments of this package that bring a loss term of that name."""
    files = sorted(FOLDER.glob(f"attachments/*/{OWN_DATA_PRESET}.yaml"))
    return [path.parent.name for path in files if term in read_yaml(path).get("weights", {})]


def list_presets() -> list[tuple[str, str]]:
    """All (method, data set) pairs that have a file of their own, sorted; others compose (`has_preset`)."""
    return sorted((path.parent.name, path.stem) for path in FOLDER.glob("*/*.yaml"))
