"""Published settings: one YAML file per method and data set. Each file names the source of every number.

`load_preset` merges up to four kinds of files with the same sections. Later files override earlier files:

1. `<method>/<dataset>.yaml`: the method alone.
2. `attachments/<name>/<dataset>.yaml`: the settings that an attachment adds to any method.
3. `<method>+<attachment>/<dataset>.yaml`: changes for this method whenever it has the attachment.
4. `<method>+<attachment>+<attachment>/<dataset>.yaml`: changes for exactly this set of attachments.

A method or attachment from outside this package needs no file. The preset then consists of the class's
`training_defaults` and the default values of the class's `Config`. `choose_preset` also accepts any YAML file with the
same sections.
"""

import contextlib
import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from untrimmed.config import SECTIONS, build, override, read_yaml
from untrimmed.errors import ConfigError, UnknownNameError, nearest, shown_value
from untrimmed.models.naming import ModelName
from untrimmed.presets.published import reported
from untrimmed.presets.settings import FeatureSettings, TrainSettings

if TYPE_CHECKING:
    from untrimmed.models.attachment import Attachment
    from untrimmed.models.base import ModelConfig, RetrievalModel

FOLDER = Path(__file__).parent
OWN_DATA_PRESET = "tvr"  # preset for data sets that have no preset; their features determine the widths
# TVR's feature widths. They apply until the features are read, if the preset sets no widths.
WIDTHS = {"query_dim": 768, "video_dim": 3072}


@dataclass(frozen=True, kw_only=True)
class Preset:
    """All settings of a run.

    - `model` and `losses`: settings of the model and of attached losses. The method's `Config` checks them.
    - `weights`: the weight of each loss term.
    - `reported`: the authors' results in percent by metric. In a preset file, `reported` may instead name a row of
      `published.yaml`: `[paper, table, row, column]`.
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
        """The method and its attachments, parsed from `method`."""
        return ModelName.of(self.method)

    @property
    def settings(self) -> dict[str, Any]:
        """The keyword arguments of `create_model`."""
        return self.model | {"losses": self.losses}

    def sizes(self) -> "ModelConfig":
        """Return the model's settings after checking them. Missing settings have their default values.

        Raises: ConfigError for an unknown setting or a wrong value.
        """
        from untrimmed.models.registry import configure  # imports torch, which is not needed to read a preset

        return configure(self.name, self.settings, where=f"{self.method}/{self.dataset}")

    def weights_in(self, sizes: "ModelConfig") -> dict[str, float]:
        """Return the weights of the loss terms, without the terms that `sizes` turns off."""
        return {name: weight for name, weight in self.weights.items() if name not in sizes.absent_terms}


def choose_preset(
    method: str | ModelName, data: str, preset: str | None = None, overrides: Mapping[str, Any] | None = None
) -> Preset:
    """Return the settings of a method on a data set.

    `preset` is either the name of another data set that has a preset, or a YAML file for this method with the same or
    fewer attachments. The default is the preset of `data`, or `OWN_DATA_PRESET` if `data` has no preset.

    Raises: the errors of `load_preset`, and ConfigError for a file of another method.
    """
    name = ModelName.of(method)
    if not is_file(preset):
        return load_preset(name, preset or (data if has_preset(name, data) else OWN_DATA_PRESET), overrides)
    path = Path(preset or "")
    values = read_yaml(path)
    stated = _stated_method(path, values)
    missing = [attachment for attachment in name.attachments if attachment not in stated.attachments]
    if stated.method != name.method or {*stated.attachments} - {*name.attachments}:
        raise ConfigError(f"{path}: is for {stated}, not for {name}; name that method, or another file")
    for attachment in missing:
        values = _merge(values, _attachment_settings(attachment, str(values.get("dataset", OWN_DATA_PRESET))))
    return _build(values | {"method": str(name)}, overrides, where=str(path))


@contextlib.contextmanager
def naming_own_data_preset(method: str | ModelName, data: str, preset: str | None) -> Iterator[None]:
    """Explain in each ConfigError of the `with` block that the preset was not chosen by the user, if that is so."""
    try:
        yield
    except ConfigError as error:
        if preset is not None or has_preset(method, data) or not has_preset(method, OWN_DATA_PRESET):
            raise
        raise ConfigError(f"{error} ({data} has no preset, so the preset {OWN_DATA_PRESET} is used)") from None


def preset_method(path: Path) -> ModelName:
    """Return the name of the method to which the settings in a YAML file belong.

    Raises: ConfigError for a file that is not a preset.
    """
    return _stated_method(path, read_yaml(path))


def _stated_method(path: Path, values: Mapping[str, Any]) -> ModelName:
    if "method" not in values:
        raise ConfigError(f"{path}: 'method' is missing; add the name of the method that the settings are for")
    return ModelName.of(str(values["method"]))


def is_file(preset: str | None) -> bool:
    """Whether the value of the option `preset` is the path of a YAML file."""
    return preset is not None and preset.endswith((".yaml", ".yml"))


def stated_widths(method: str | ModelName, data: str, preset: str | None) -> frozenset[str]:
    """Return the names of the feature widths that the preset sets. The data set determines the other widths."""
    if is_file(preset):
        return frozenset(WIDTHS.keys() & read_yaml(Path(preset or "")).get("model", {}).keys())
    return frozenset(WIDTHS if preset is not None or has_preset(method, data) else ())


def load_preset(method: str | ModelName, dataset: str, overrides: Mapping[str, Any] | None = None) -> Preset:
    """Return the preset of a method on a data set. `overrides` has dotted keys, such as `model.dim`.

    Raises: UnknownNameError if the method or data set has no preset, ConfigError for an unknown key or a wrong value.
    """
    name = ModelName.of(method)
    base, attached = name.method, name.attachments
    path = FOLDER / base / f"{dataset}.yaml"
    if not path.is_file() and (datasets := [data for method, data in list_presets() if method == base]):
        raise UnknownNameError.among(f"preset of {base}", dataset, datasets)
    if not attached and path.is_file():
        return read_preset(path, overrides)
    values = read_yaml(path) | {"reported": {}} if path.is_file() else _class_settings(name, dataset)
    for attachment in attached:
        values = _merge(values, _attachment_settings(attachment, dataset))
    exact = [folder.name for folder in FOLDER.glob(f"{base}+*+*") if {*folder.name.split("+")} == {base, *attached}]
    folders = [*(f"{base}+{attachment}" for attachment in attached), *exact]
    for overlay in (FOLDER / folder / f"{dataset}.yaml" for folder in folders):
        if overlay.is_file():
            values = _merge(values, read_yaml(overlay))
    values["method"] = str(name)
    if len(attached) > 1:  # published results are for at most one attachment
        values["reported"] = {}
    return _build(values, overrides, where=f"{name}/{dataset}")


def _class_settings(name: ModelName, dataset: str) -> dict[str, Any]:
    """Return the default settings of a method from outside this package."""
    from untrimmed.models.registry import (  # imports torch, which is not needed to read a file
        default_losses,
        list_attachments,
        model_class,
    )

    cls = model_class(name)
    defaults = _training_defaults(cls)
    known = {*cls.Config.__dataclass_fields__, *list_attachments()}
    for key in defaults.get("model", {}):
        if key not in known:
            raise ConfigError(
                f"{cls.__qualname__}.training_defaults: model: unknown key {key!r}{nearest(key, known) or '.'} Known: "
                f"{', '.join(sorted(known))}"
            )
    values = {"method": name.method, "dataset": dataset, "model": {}, "losses": default_losses(cls), "weights": {}}
    return _merge(values | {"train": {}}, defaults)


def _training_defaults(cls: "type[RetrievalModel] | type[Attachment]") -> Mapping[str, Any]:
    """Return the `training_defaults` of a class.

    Raises: ConfigError if a key of `training_defaults` is not a section of a preset, or if a section has an unknown key
    or a wrong value.
    """
    where = f"{cls.__qualname__}.training_defaults"
    for section, values in cls.training_defaults.items():
        if section not in SECTIONS:
            known = ", ".join(SECTIONS)
            raise ConfigError(f"{where}: unknown section {section!r}{nearest(section, SECTIONS) or '.'} Known: {known}")
        if not isinstance(values, Mapping):
            raise ConfigError(f"{where}: {section!r} is {shown_value(values)}, expected a mapping")
    required: dict[str, Any] = {"method": "", "dataset": "", "model": {}, "weights": {}, "train": {}}
    build(Preset, required | dict(cls.training_defaults), where=where)
    return cls.training_defaults


def keys_by_section(method: str | ModelName) -> dict[str, list[str]]:
    """Return {section: keys} of the settings of a method with its attachments, for example {"train": ["epochs", ...]}.

    Raises: UnknownNameError for an unknown method or attachment, ConfigError for an attachment that does not fit.
    """
    from untrimmed.models.registry import attachment_class, is_loss, model_class  # imports torch, as above

    name = ModelName.of(method)
    settings: dict[str, Any] = {"model": model_class(name).Config, "train": TrainSettings, "features": FeatureSettings}
    for attachment in name.attachments:
        settings[f"{'losses' if is_loss(attachment) else 'model'}.{attachment}"] = attachment_class(attachment).Config
    not_settings = ("losses", "parts", "attached")  # fields of `Config` that are not settings in the section `model`
    return {section: [f.name for f in fields(cls) if f.name not in not_settings] for section, cls in settings.items()}


def has_preset(method: str | ModelName, dataset: str) -> bool:
    """Whether a method has a preset for a data set. Attachments of the method are ignored."""
    return (FOLDER / ModelName.of(method).method / f"{dataset}.yaml").is_file()


def _attachment_settings(attachment: str, dataset: str) -> dict[str, Any]:
    """Return an attachment's settings for a data set.

    If a variant of a data set (`tvr_event`) has no file, the file of the base data set (`tvr`) is read. If this file
    does not exist, the file of TVR is read. If an attachment has no file at all, the defaults of its class apply.
    """
    for candidate in (dataset, dataset.partition("_")[0], "tvr"):
        path = FOLDER / "attachments" / attachment / f"{candidate}.yaml"
        if path.is_file():
            return read_yaml(path)
    from untrimmed.models.registry import attachment_class, is_loss  # imports torch, as above

    settings: dict[str, Any] = {"losses": {attachment: {}}} if is_loss(attachment) else {}
    return _merge(settings, _training_defaults(attachment_class(attachment)))


def _merge(values: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of `values`, updated recursively with the values of `overlay`."""
    merged = dict(values)
    for key, value in overlay.items():
        base = merged.get(key)
        merged[key] = _merge(base, value) if isinstance(base, Mapping) and isinstance(value, Mapping) else value
    return merged


def read_preset(path: Path, overrides: Mapping[str, Any] | None = None) -> Preset:
    """Return the preset in a YAML file. The file must have the same sections as the preset files of this package.

    Raises: ConfigError for an unknown key, a missing section or a wrong value.
    """
    return _build(read_yaml(path), overrides, where=str(path))


def _build(values: Mapping[str, Any], overrides: Mapping[str, Any] | None, *, where: str) -> Preset:
    if isinstance(model := values.get("model"), Mapping):
        values = {**values, "model": WIDTHS | dict(model)}
    if isinstance(values.get("reported"), list):
        values = {**values, "reported": reported([str(name) for name in values["reported"]])}
    if overrides:
        where = f"{where} with {' '.join(f'{key}={value}' for key, value in overrides.items())}"
    preset = build(Preset, override(values, overrides or {}), where=where)
    unweighted = [name for name, values in preset.losses.items() if values is not None and name not in preset.weights]
    if unweighted:
        _require_losses(preset.losses)
        added = " ".join(f"weights.{name}=1.0" for name in unweighted)
        similar = difflib.get_close_matches(unweighted[0], preset.weights.keys() - preset.losses.keys(), n=1)
        correction = f", or correct the name weights.{similar[0]}" if similar else ""
        raise ConfigError(
            f"{where}: attached losses without a weight: {', '.join(unweighted)}; add {added}{correction}"
        )
    for term in sorted(preset.weights.keys() - values.get("weights", {}).keys() - preset.losses.keys()):
        if carriers := [name for name in _attachments_with(term) if _can_carry(preset.name, name)]:
            raise ConfigError(
                f"{where}: weights.{term} belongs to {carriers[0]}, which {preset.method} does not carry; train "
                f"{preset.method}+{carriers[0]}, or remove the weight"
            )
    return preset


def _can_carry(name: ModelName, attachment: str) -> bool:
    """Whether the attachment can be added to the model and is not part of the model yet."""
    from untrimmed.models.registry import model_class  # imports torch, which is not needed to read a preset

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
    """Return the attachments that have the loss term `term`."""
    from untrimmed.models.registry import list_attachments  # imports torch, as above

    return [name for name in list_attachments() if term in attachment_terms(name)]


def attachment_terms(name: str) -> frozenset[str]:
    """Return the loss terms of an attachment; raises UnknownNameError."""
    settings = _attachment_settings(name, OWN_DATA_PRESET)
    return frozenset((*settings.get("losses", ()), *settings.get("weights", ())))


def list_presets() -> list[tuple[str, str]]:
    """Return the sorted (method, data set) pairs that have a file. Methods with attachments are not included."""
    return sorted((path.parent.name, path.stem) for path in FOLDER.glob("*/*.yaml"))
