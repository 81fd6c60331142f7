"""Methods by name."""

import importlib
import pkgutil
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import untrimmed.models
from untrimmed.config import build, nearest, override, to_plain
from untrimmed.errors import ConfigError, UnknownNameError
from untrimmed.models.base import RetrievalModel

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
    """The class of a method.

    Raises: UnknownNameError naming the nearest method.
    """
    _import_methods()
    if name not in _MODELS:
        known = ", ".join(list_models())
        raise UnknownNameError(f"no model named {name!r}{nearest(name, _MODELS) or '.'} Known: {known}")
    return _MODELS[name]


def paper_of(name: str) -> str:
    """The line that names a method and its paper: the first of its file.

    Raises: UnknownNameError for an unknown method.
    """
    return (sys.modules[model_class(name).__module__].__doc__ or "").partition("\n")[0]


def create_model(name: str, **overrides: Any) -> RetrievalModel:
    """A new model with its weights drawn; settings are fields of the method's `Config`, dotted keys reach inside.

    `create_model("gmmformer_v2", query_dim=768, video_dim=3072, **{"losses.query_diversity.margin": 0.15})`

    Raises: UnknownNameError for an unknown method, ConfigError for an unknown or wrong setting.
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
