"""Methods by name."""

import importlib
import pkgutil
import sys
from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any, TypeVar

import untrimmed.models
from untrimmed.config import build, override, to_plain
from untrimmed.errors import ConfigError, UnknownNameError
from untrimmed.models.base import RetrievalModel, attached_losses
from untrimmed.models.composition import compose
from untrimmed.models.extension import EXTENSIONS
from untrimmed.models.naming import parse_name

M = TypeVar("M", bound=type[RetrievalModel])
_MODELS: dict[str, type[RetrievalModel]] = {}


def register(name: str) -> Callable[[M], M]:
    """Make a method available under a name.

    Raises: ConfigError when the name is taken.
    """

    def add(cls: M) -> M:
        if name in _MODELS:
            raise ConfigError(f"two methods are named {name!r}: {_MODELS[name].__module__} and {cls.__module__}")
        cls.name = name
        _MODELS[name] = cls
        return cls

    return add


@cache
def _import_methods() -> None:
    for module in pkgutil.iter_modules(untrimmed.models.__path__):
        importlib.import_module(f"untrimmed.models.{module.name}")


def model_class(name: str) -> type[RetrievalModel]:
    """The class of a method, or of a method with attachments: METHOD+ATTACHMENT+...

    Raises: UnknownNameError naming the nearest method or attachment, ConfigError for a composition that does not fit.
    """
    _import_methods()
    method, attached = parse_name(name)
    if method not in _MODELS:
        if method in list_attachments():
            raise UnknownNameError(f"{method!r} is no model but an attachment; name a method too, e.g. ms_sl+{method}")
        raise UnknownNameError.among("model", method, list_models())
    for part in attached:
        if part in _MODELS:
            raise ConfigError(
                f"{name!r}: {part} is a method, not an attachment; known: {', '.join(list_attachments())}"
            )
    return compose(_MODELS[method], attached) if attached else _MODELS[method]


def paper_of(name: str) -> str:
    """The line that names a method or an attachment and its paper.

    Raises: UnknownNameError for an unknown name.
    """
    if name in list_attachments():
        extension = EXTENSIONS.get(name)
        text = attached_losses()[name].__doc__ if extension is None else sys.modules[extension.__module__].__doc__
        return (text or "").partition("\n")[0]
    return (sys.modules[model_class(name).__module__].__doc__ or "").partition("\n")[0]


def create_model(name: str, **overrides: Any) -> RetrievalModel:
    """A new model with its weights drawn; settings are fields of the method's `Config`, dotted keys reach inside.

    `create_model("gmmformer_v2", query_dim=768, video_dim=3072, **{"losses.query_diversity.margin": 0.15})`
    `create_model("gmmformer_v2+ral", query_dim=768, video_dim=3072, **{"ral.num_proxies": 4})`

    Raises: UnknownNameError for an unknown method or attachment, ConfigError for a composition that does not fit and
    for an unknown or wrong setting.
    """
    cls = model_class(name)
    plain = {key: value for key, value in overrides.items() if "." not in key}
    config = build(cls.Config, plain, where=name)
    if len(plain) < len(overrides):
        dotted = {key: value for key, value in overrides.items() if "." in key}
        config = build(cls.Config, override(to_plain(config), dotted), where=name)
    return cls(config)


def list_models() -> list[str]:
    """The names of all methods, sorted."""
    _import_methods()
    return sorted(_MODELS)


def list_attachments() -> list[str]:
    """The names of all that can be attached to a method, sorted: extensions with weights, and losses."""
    _import_methods()
    return sorted({*EXTENSIONS, *attached_losses()})


def list_compositions() -> dict[str, str]:
    """Every METHOD+ATTACHMENT, sorted, and in one line why it is refused; empty for those that exist."""
    names = [f"{method}+{attachment}" for method, attachment in product(list_models(), list_attachments())]
    return {name: _why_refused(name) for name in names}


def _why_refused(name: str) -> str:
    try:
        model_class(name)
    except ConfigError as error:
        return str(error)
    return ""
