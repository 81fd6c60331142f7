"""Find methods and attachments by name, and build models from them."""

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

from torch import nn

import untrimmed.models
from untrimmed.config import build, checked, override, to_plain
from untrimmed.errors import ConfigError, UnknownNameError, shown, shown_value
from untrimmed.models.attachment import Attachment, AttachmentConfig, StepLoss
from untrimmed.models.base import RetrievalModel
from untrimmed.models.hooks import reporting
from untrimmed.models.naming import ModelName
from untrimmed.models.settings import ModelConfig
from untrimmed.plugins import imported, load_installed

K = TypeVar("K", bound=type[RetrievalModel] | type[Attachment])
METHODS: dict[str, type[RetrievalModel]] = {}
ATTACHMENTS: dict[str, type[Attachment]] = {}


def register(name: str) -> Callable[[K], K]:
    """Return a class decorator that registers a method or an attachment under a name.

    Raises: ConfigError for a name that is taken, is not an identifier, or is the name of a setting of all methods.
        ConfigError for an attachment with a setting that has no default.
        ConfigError for a class that is neither a method nor an attachment.
    """

    def add(cls: K) -> K:
        if not (isinstance(cls, type) and issubclass(cls, RetrievalModel | Attachment)):
            own = getattr(cls, "__qualname__", cls)
            raise ConfigError(
                f"{own}: is neither a method nor an attachment; derive it from AttachedLoss, StepLoss, another "
                "Attachment, or RetrievalModel (see CONTRIBUTING.md)"
            )
        if not name.isidentifier() or name in ModelConfig.__dataclass_fields__:
            reason = "a setting of every model" if name.isidentifier() else "not an identifier"
            raise ConfigError(f"{cls.__qualname__}: the name {name!r} is {reason}; choose another name")
        kind = "attachments" if issubclass(cls, Attachment) else "methods"
        if first := METHODS.get(name) or ATTACHMENTS.get(name):
            raise ConfigError(f"two {kind} are named {name!r}: {first.__module__} and {cls.__module__}; rename one")
        _require_config(cls)
        if missing := sorted(getattr(cls, "__abstractmethods__", ())):
            raise ConfigError(f"{cls.__qualname__}: {missing[0]} is not defined; define it (see CONTRIBUTING.md)")
        settings = fields(cls.Config) if issubclass(cls, Attachment) else ()
        if required := [field.name for field in settings if field.default is field.default_factory is MISSING]:
            raise ConfigError(f"{cls.__qualname__}: its setting {required[0]!r} has no default; add a default")
        cls.name = name
        registered: dict[str, Any] = ATTACHMENTS if issubclass(cls, Attachment) else METHODS
        registered[name] = cls
        return cls

    return add


def _require_config(cls: type[RetrievalModel] | type[Attachment]) -> None:
    """Raise a ConfigError if the class has no `Config`, or a `Config` whose settings would have no effect.

    A setting has no effect without `@dataclass`, or without a type annotation.
    """
    kind = AttachmentConfig if issubclass(cls, Attachment) else ModelConfig
    config = getattr(cls, "Config", None)
    if not isinstance(config, type) or not issubclass(config, kind):
        raise ConfigError(f"{cls.__qualname__}: has no class Config({kind.__name__}); add it, with its settings")
    if "__dataclass_fields__" not in vars(config):
        raise ConfigError(
            f"{config.__qualname__}: is not a dataclass, so its settings have no effect; write "
            "@dataclass(frozen=True, kw_only=True) above it"
        )
    annotated = inspect.get_annotations(config)
    settings = {field.name for field in fields(config)}
    for name, value in vars(config).items():
        is_plain = not (name.startswith("_") or callable(value) or hasattr(type(value), "__get__"))
        is_class_variable = name not in settings and any(hasattr(base, name) for base in config.__bases__)
        if is_plain and name not in annotated and not is_class_variable:
            raise ConfigError(
                f"{config.__qualname__}: {name} has no type annotation, so its value has no effect; write "
                f"{name}: {type(value).__name__} = {shown_value(value)}"
            )


@cache
def _import_all() -> None:
    for module in pkgutil.iter_modules(untrimmed.models.__path__):
        importlib.import_module(f"untrimmed.models.{module.name}")
    load_installed()


def model_class(name: ModelName) -> type[RetrievalModel]:
    """Return the class of the method in a model's name. The method must accept the attachments in the name.

    Raises: UnknownNameError that suggests the most similar name, ConfigError if the method does not accept an
        attachment.
    """
    _import_all()
    if name.method not in METHODS:
        if name.method in ATTACHMENTS:
            raise UnknownNameError(
                f"{name.method!r} is an attachment; put a method before it, for example ms_sl+{name.method}"
            )
        raise _unknown("method", name.method, list_models())
    cls = METHODS[name.method]
    for attachment in name.attachments:
        _require_fit(cls, attachment, str(name))
    return cls


def attachment_class(name: str) -> type[Attachment]:
    """Return the class of an attachment; raises UnknownNameError that suggests the most similar name."""
    _import_all()
    if name not in ATTACHMENTS:
        raise _unknown("attachment", name, list_attachments())
    return ATTACHMENTS[name]


def _unknown(kind: str, name: str, known: list[str]) -> UnknownNameError:
    error = UnknownNameError.among(kind, name, known)
    if not imported():
        return UnknownNameError(f"{error}; for your own {kind}, add --import FILE.py (in Python: import_module)")
    used = [f"{cls.__module__}." for cls in (*METHODS.values(), *ATTACHMENTS.values())]
    for plugin in imported():
        if not any(module.startswith(f"{plugin.name}.") for module in used):
            advice = f'{shown(Path(plugin.file))} registers no class; add @register("{name}") above your class'
            return UnknownNameError(f"{error}; {advice}")
    return error


def is_loss(attachment: str) -> bool:
    """Whether an attachment is a loss, with one term and settings in `losses`; raises UnknownNameError."""
    return issubclass(attachment_class(attachment), StepLoss)


def _require_fit(method: type[RetrievalModel], name: str, model_name: str) -> None:
    if name in METHODS:
        names = ", ".join(list_attachments())
        raise ConfigError(f"{model_name!r}: {name} is a method, not an attachment; known: {names}")
    attachment = attachment_class(name)
    if name in _by_default(method, "losses") | _by_default(method, "parts"):
        section = "losses" if is_loss(name) else "model"
        raise ConfigError(f"{method.name} includes {name} already; change its settings with {section}.{name}.KEY=VALUE")
    _require_units(method, attachment)
    if missing := sorted(attachment.Config().provides - method.places):
        places = ", ".join(sorted(method.places)) or "none"
        raise ConfigError(
            f"{name} does not fit {method.name}: it provides the {', '.join(missing)} branch of the score, and "
            f"{method.name} has no place for it (its places: {places})"
        )


def _by_default(method: type[RetrievalModel], section: str) -> dict[str, Any]:
    """Return {name: settings} of the parts or losses that a method has by default."""
    field = method.Config.__dataclass_fields__[section]
    default: Any = field.default if field.default_factory is MISSING else field.default_factory()
    return dict(default)


def default_losses(method: type[RetrievalModel]) -> dict[str, Any]:
    """Return {name: settings as plain values} of the losses that a method has by default."""
    return dict(to_plain(_by_default(method, "losses")))


def _require_units(method: type[RetrievalModel], attachment: type[Attachment]) -> None:
    extra = "adds rows to those of clips and frames that layers read"
    for needs, has, action, lack in (
        (attachment.Config.replaces_clips, method.has_clips, "replaces clips", "none to replace"),
        (attachment.reads_clips, method.has_clips, "reads clips", "none to read"),
        (attachment.reads_frames, method.keeps_frames, "reads frames", "none to read"),
        (attachment.joins_layers, method.has_layers, extra, "no layers that can read more"),
    ):
        if needs and not has:
            raise ConfigError(
                f"{attachment.name} does not fit {method.name}: it {action}, and {method.name} has {lack}"
            )


def configure(name: ModelName, settings: Mapping[str, Any], *, where: str = "") -> ModelConfig:
    """Return the settings of a model, built from the plain values of a preset or a saved model.

    Each part has a section with the name of the part. Attached losses are in the section `losses`, where None switches
    a loss off. `where` names the source of the values in error messages.

    Raises: the errors of `create_model`.
    """
    cls = model_class(name)
    where = where or str(name)
    values_by_key = dict(settings)
    named_losses = [attachment for attachment in name.attachments if is_loss(attachment)]
    named_parts = [attachment for attachment in name.attachments if not is_loss(attachment)]
    parts: dict[str, AttachmentConfig] = {}
    owners: dict[str, str] = {}
    for part in (*_by_default(cls, "parts"), *named_parts):
        parts[part] = build(ATTACHMENTS[part].Config, values_by_key.pop(part, {}), where=f"{where}: {part}")
        for branch in parts[part].provides:
            if owners.setdefault(branch, part) != part:
                raise ConfigError(
                    f"{name}: {owners[branch]} and {part} both provide the {branch} branch; leave one out"
                )
    if len(joining := [part for part in parts if ATTACHMENTS[part].joins_layers]) > 1:
        raise ConfigError(f"{name}: {' and '.join(joining)} both add rows to the layers; leave one out")
    losses: dict[str, AttachmentConfig | None] = {}
    chosen = values_by_key.get("losses", default_losses(cls) | {loss: {} for loss in named_losses})
    if not isinstance(chosen, Mapping):
        raise ConfigError(f"losses is {chosen!r}, expected a mapping")
    loss_names = [loss for loss in list_attachments() if is_loss(loss)]
    for loss, values in chosen.items():
        if loss not in loss_names:
            raise UnknownNameError.among("attached loss", loss, loss_names)
        losses[loss] = None if values is None else build(ATTACHMENTS[loss].Config, values, where=f"losses.{loss}")
        if values is not None:
            _require_units(cls, ATTACHMENTS[loss])
    if missing := [loss for loss in named_losses if losses.get(loss) is None]:
        raise ConfigError(f"{name} contains {missing[0]}, but the section losses does not; add losses.{missing[0]}")
    if reserved := sorted({"attached", "parts"} & values_by_key.keys()):
        raise ConfigError(f"{where}: unknown key {reserved[0]!r}; attach a part by its name, METHOD+PART")
    _refuse_unattached(name, values_by_key, where)
    attached = {"attached": name.attachments, "parts": parts, "losses": losses}
    return build(cls.Config, values_by_key | attached, where=where)


def _refuse_unattached(name: ModelName, settings: Mapping[str, Any], where: str) -> None:
    """Raise a ConfigError for settings of an attachment that is not in the model's name."""
    fields = METHODS[name.method].Config.__dataclass_fields__
    for key in settings:
        if key in name.attachments and key not in fields:
            raise ConfigError(f"{where}: {key} is a loss; write its settings as losses.{key}.KEY=VALUE")
        if key in ATTACHMENTS and key not in fields:
            extended = ModelName(name.method, (*name.attachments, key))
            model_class(extended)  # raises if the attachment does not fit
            fix = f"write losses.{key}" if is_loss(key) else f"name the model {extended}"
            raise ConfigError(f"{where}: {name} does not include {key}; {fix}, or remove the settings of {key}")


def plain_settings(config: ModelConfig) -> dict[str, Any]:
    """Return the settings of a model as plain values for JSON. `configure` restores the settings from these values."""
    plain = to_plain(config)
    del plain["attached"]
    parts = plain.pop("parts")
    return plain | parts


def plain_sections(config: ModelConfig) -> dict[str, dict[str, Any]]:
    """Return the settings of a model as plain values for JSON, in the sections `losses` and `model` of a preset."""
    model = plain_settings(config)
    return {"losses": model.pop("losses"), "model": model}


@checked(name="METHOD or METHOD+ATTACHMENT+...")
def create_model(name: str | ModelName, **overrides: Any) -> RetrievalModel:
    """Return a new model with initial weights.

    `overrides` are fields of the method's `Config`. Nested fields have dotted keys.

    `create_model("gmmformer_v2", query_dim=768, video_dim=3072, **{"losses.query_diversity.margin": 0.15})`
    `create_model("gmmformer_v2+ral", query_dim=768, video_dim=3072, **{"ral.num_proxies": 4})`

    Raises: UnknownNameError for an unknown method or attachment, ConfigError if the method does not accept an
        attachment, or if a setting is unknown or wrong.
    """
    model_name = ModelName.of(name)
    cls = model_class(model_name)
    dotted = {key: value for key, value in overrides.items() if "." in key}
    config = configure(model_name, {key: value for key, value in overrides.items() if key not in dotted})
    if dotted:
        config = configure(model_name, override(plain_settings(config), dotted))
    return build_model(cls, config)


def build_model(method: type[RetrievalModel], config: ModelConfig) -> RetrievalModel:
    """Return a new model of a method's class with settings from `configure`.

    The order of random draws is fixed, so that a seed always gives the same weights: first the method's constructor and
    its `draw_weights`, then the constructors of all attachments, then the `draw_weights` of each attachment.
    """
    with reporting(method.__qualname__):
        model = method(config)
        model.draw_weights()
    # the constructor of an attachment may copy the model and encode with it, so `attachments` must already exist
    model.attachments = nn.ModuleDict()
    attachments = {}
    for name, settings in config.attachments.items():
        with reporting(ATTACHMENTS[name].__qualname__):
            attachments[name] = ATTACHMENTS[name](settings, model)
    model.attachments.update(attachments)
    for attachment in attachments.values():
        attachment.draw_weights(model)
    return model


def is_method(text: str) -> bool:
    """Whether a text is the name of a method, with or without attachments."""
    return text.partition("+")[0] in list_models()


def list_models() -> list[str]:
    """Return the names of all methods, sorted."""
    _import_all()
    return sorted(METHODS)


def list_attachments() -> list[str]:
    """Return the names of all attachments (parts with weights, and losses), sorted."""
    _import_all()
    return sorted(ATTACHMENTS)


def list_compositions() -> dict[str, str]:
    """Return {METHOD+ATTACHMENT: reason why it is refused, or "" if it is allowed}, sorted by name."""
    names = [ModelName(method, (attached,)) for method, attached in product(list_models(), list_attachments())]
    return {str(name): _why_refused(name) for name in names}


def _why_refused(name: ModelName) -> str:
    try:
        model_class(name)
    except ConfigError as error:
        return str(error)
    return ""


def paper_of(name: str) -> str:
    """Return one line that describes a method or an attachment and names its paper; raises UnknownNameError."""
    cls = attachment_class(name) if name in list_attachments() else model_class(ModelName.of(name))
    source = cls if issubclass(cls, StepLoss) else sys.modules[cls.__module__]
    return (source.__doc__ or "").partition("\n")[0]
