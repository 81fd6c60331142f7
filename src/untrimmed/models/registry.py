"""Methods and attachments by name, and models made of them."""

import importlib
import pkgutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import MISSING
from functools import cache
from itertools import product
from typing import Any, TypeVar

from torch import nn

import untrimmed.models
from untrimmed.config import build, checked, override, to_plain
from untrimmed.errors import ConfigError, UnknownNameError
from untrimmed.models.attachment import Attachment, AttachmentConfig, StepLoss
from untrimmed.models.base import RetrievalModel
from untrimmed.models.naming import ModelName
from untrimmed.models.settings import ModelConfig
from untrimmed.plugins import load_installed

K = TypeVar("K", bound=type[RetrievalModel] | type[Attachment])
METHODS: dict[str, type[RetrievalModel]] = {}
ATTACHMENTS: dict[str, type[Attachment]] = {}


def register(name: str) -> Callable[[K], K]:
    """Make a method or an attachment available under a name.

    Raises: ConfigError when the name is taken, is no identifier, or names a setting that all methods share: the
    settings of a part are the section of its name among the model's.
    """

    def add(cls: K) -> K:
        if not name.isidentifier() or name in ModelConfig.__dataclass_fields__:
            wrong = "a setting of every model" if name.isidentifier() else "no identifier"
            raise ConfigError(f"{cls.__qualname__} is to be named {name!r}, which is {wrong}; choose another name")
        kind = "attachments" if issubclass(cls, Attachment) else "methods"
        if taken := METHODS.get(name) or ATTACHMENTS.get(name):
            raise ConfigError(f"two {kind} are named {name!r}: {taken.__module__} and {cls.__module__}; rename one")
        cls.name = name
        registered: dict[str, Any] = ATTACHMENTS if issubclass(cls, Attachment) else METHODS
        registered[name] = cls
        return cls

    return add


@cache
def _import_all() -> None:
    for module in pkgutil.iter_modules(untrimmed.models.__path__):
        importlib.import_module(f"untrimmed.models.{module.name}")
    load_installed()


def model_class(name: ModelName) -> type[RetrievalModel]:
    """The class of a method, with attachments or without: METHOD+ATTACHMENT+...

    Raises: UnknownNameError naming the nearest method or attachment, ConfigError for a composition that does not fit.
    """
    _import_all()
    if name.method not in METHODS:
        if name.method in ATTACHMENTS:
            raise UnknownNameError(
                f"{name.method!r} is no model but an attachment; name a method too, e.g. ms_sl+{name.method}"
            )
        raise UnknownNameError.among("model", name.method, list_models())
    cls = METHODS[name.method]
    for attachment in name.attachments:
        _require_fit(cls, attachment, str(name))
    return cls


def attachment_class(name: str) -> type[Attachment]:
    """Return the class of an attachment; an UnknownNameError names the nearest one."""
    _import_all()
    if name not in ATTACHMENTS:
        raise UnknownNameError.among("attachment", name, list_attachments())
    return ATTACHMENTS[name]


def is_loss(attachment: str) -> bool:
    """Return whether an attachment is a loss, one term with settings in `losses`; raises UnknownNameError."""
    return issubclass(attachment_class(attachment), StepLoss)


def _require_fit(method: type[RetrievalModel], name: str, whole: str) -> None:
    if name in METHODS:
        raise ConfigError(f"{whole!r}: {name} is a method, not an attachment; known: {', '.join(list_attachments())}")
    attachment = attachment_class(name)
    if name in _by_default(method, "losses") | _by_default(method, "parts"):
        section = "losses" if is_loss(name) else "model"
        raise ConfigError(f"{method.name} carries {name} already; change its settings with {section}.{name}.KEY=VALUE")
    _require_units(method, attachment)
    if missing := sorted(attachment.Config().provides - method.places):
        places = ", ".join(sorted(method.places)) or "none"
        raise ConfigError(
            f"{name} does not fit {method.name}: it provides the {', '.join(missing)} branch of the score, and "
            f"{method.name} has no place for it (its places: {places})"
        )


def _by_default(method: type[RetrievalModel], section: str) -> dict[str, Any]:
    """The settings of the parts or losses that a method carries by default, by name."""
    field = method.Config.__dataclass_fields__[section]
    default: Any = field.default if field.default_factory is MISSING else field.default_factory()
    return dict(default)


def _require_units(method: type[RetrievalModel], attachment: type[Attachment]) -> None:
    beside = "adds rows that layers over clips and frames read beside them"
    for needs, has, action, lack in (
        (attachment.Config.replaces_clips, method.has_clips, "replaces clips", "none to replace"),
        (attachment.reads_clips, method.has_clips, "reads clips", "none to read"),
        (attachment.reads_frames, method.keeps_frames, "reads frames", "none to read"),
        (attachment.joins_layers, method.has_layers, beside, "no layers that can"),
    ):
        if needs and not has:
            raise ConfigError(
                f"{attachment.name} does not fit {method.name}: it {action}, and {method.name} has {lack}"
            )


def configure(name: ModelName, settings: Mapping[str, Any], *, where: str = "") -> ModelConfig:
    """The settings of a model from plain values, as presets and saved models hold them (`plain_settings`).

    Those of a part are the section of its name; those of attached losses the section `losses`, None for one that is
    off. `where` names the source in messages.

    Raises: as `create_model`.
    """
    cls = model_class(name)
    where = where or str(name)
    given = dict(settings)
    named_losses = [attachment for attachment in name.attachments if is_loss(attachment)]
    named_parts = [attachment for attachment in name.attachments if not is_loss(attachment)]
    parts: dict[str, AttachmentConfig] = {}
    owners: dict[str, str] = {}
    for part in (*_by_default(cls, "parts"), *named_parts):
        parts[part] = build(ATTACHMENTS[part].Config, given.pop(part, {}), where=f"{where}: {part}")
        for branch in parts[part].provides:
            if owners.setdefault(branch, part) != part:
                raise ConfigError(
                    f"{name}: {owners[branch]} and {part} both provide the {branch} branch; leave one out"
                )
    if len(joining := [part for part in parts if ATTACHMENTS[part].joins_layers]) > 1:
        raise ConfigError(f"{name}: {' and '.join(joining)} both put rows beside those of its layers; leave one out")
    losses: dict[str, AttachmentConfig | None] = {}
    chosen = given.get("losses", to_plain(_by_default(cls, "losses")) | {loss: {} for loss in named_losses})
    if not isinstance(chosen, Mapping):
        raise ConfigError(f"losses is {chosen!r}, wanted a mapping")
    known = [loss for loss in list_attachments() if is_loss(loss)]
    for loss, values in chosen.items():
        if loss not in known:
            raise UnknownNameError.among("attached loss", loss, known)
        losses[loss] = None if values is None else build(ATTACHMENTS[loss].Config, values, where=f"losses.{loss}")
        if values is not None:
            _require_units(cls, ATTACHMENTS[loss])
    if missing := [loss for loss in named_losses if losses.get(loss) is None]:
        raise ConfigError(f"{name} is to carry {missing[0]}, and its losses have none; add losses.{missing[0]}")
    if own := sorted({"attached", "parts"} & given.keys()):
        raise ConfigError(f"{where}: unknown key {own[0]!r}; a part is attached by the name, METHOD+PART")
    _refuse_others(name, given, where)
    made = {"attached": name.attachments, "parts": parts, "losses": losses}
    return build(cls.Config, given | made, where=where)


def _refuse_others(name: ModelName, given: Mapping[str, Any], where: str) -> None:
    """Refuse settings of what the model does not carry, saying how it would, unless its method has such settings."""
    fields = METHODS[name.method].Config.__dataclass_fields__
    for key in given:
        if key in ATTACHMENTS and key not in fields:
            carrying = ModelName(name.method, (*name.attachments, key))
            model_class(carrying)  # which says why, where it does not fit
            way = f"write losses.{key}" if is_loss(key) else f"name it {carrying}"
            raise ConfigError(f"{where}: settings of {key}, which {name} does not carry here; {way}, or leave them out")


def plain_settings(config: ModelConfig) -> dict[str, Any]:
    """The settings of a model as JSON-ready values that `configure` reads back, given the model's name."""
    plain = to_plain(config)
    del plain["attached"]
    parts = plain.pop("parts")
    return plain | parts


@checked(name="METHOD or METHOD+ATTACHMENT+...")
def create_model(name: str | ModelName, **overrides: Any) -> RetrievalModel:
    """A new model with its weights drawn; settings are fields of the method's `Config`, dotted keys reach inside.

    `create_model("gmmformer_v2", query_dim=768, video_dim=3072, **{"losses.query_diversity.margin": 0.15})`
    `create_model("gmmformer_v2+ral", query_dim=768, video_dim=3072, **{"ral.num_proxies": 4})`

    Raises: UnknownNameError for an unknown method or attachment, ConfigError for a composition that does not fit and
    for an unknown or wrong setting.
    """
    whole = ModelName.of(name)
    cls = model_class(whole)
    dotted = {key: value for key, value in overrides.items() if "." in key}
    config = configure(whole, {key: value for key, value in overrides.items() if key not in dotted})
    if dotted:
        config = configure(whole, override(plain_settings(config), dotted))
    return build_model(cls, config)


def build_model(method: type[RetrievalModel], config: ModelConfig) -> RetrievalModel:
    """A new model of a method's class and its settings, by `configure`.

    Weights are drawn once, in an order that seeds depend on: the method's constructor and its `draw_weights`, the
    constructors of all attachments, the `draw_weights` of each.
    """
    model = method(config)
    model.draw_weights()
    model.attachments = nn.ModuleDict()  # so that an attachment may encode with a copy of the model
    attachments = {name: ATTACHMENTS[name](settings, model) for name, settings in config.attachments.items()}
    model.attachments.update(attachments)
    for attachment in attachments.values():
        attachment.draw_weights(model)
    return model


def is_method(text: str) -> bool:
    """Whether a text is the name of a method, alone or with attachments."""
    return text.partition("+")[0] in list_models()


def list_models() -> list[str]:
    """The names of all methods, sorted."""
    _import_all()
    return sorted(METHODS)


def list_attachments() -> list[str]:
    """The names of all that can be attached to a method, sorted: parts with weights, and losses."""
    _import_all()
    return sorted(ATTACHMENTS)


def list_compositions() -> dict[str, str]:
    """Every METHOD+ATTACHMENT, sorted, and in one line why it is refused; empty for those that exist."""
    names = [ModelName(method, (attached,)) for method, attached in product(list_models(), list_attachments())]
    return {str(name): _why_refused(name) for name in names}


def _why_refused(name: ModelName) -> str:
    try:
        model_class(name)
    except ConfigError as error:
        return str(error)
    return ""


def paper_of(name: str) -> str:
    """Return the line that names a method or an attachment and its paper; raises UnknownNameError."""
    cls = attachment_class(name) if name in list_attachments() else model_class(ModelName.of(name))
    source = cls if issubclass(cls, StepLoss) else sys.modules[cls.__module__]
    return (source.__doc__ or "").partition("\n")[0]
