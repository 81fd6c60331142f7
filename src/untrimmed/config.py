"""Settings as typed dataclasses: read from YAML, checked, overridden by dotted keys, written back as plain values."""

import dataclasses
import math
import re
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, Union

import yaml

from untrimmed.errors import ConfigError, nearest, one_line

T = TypeVar("T")
_SHORT_FLOAT = re.compile(r"[+-]?\d+(\.\d*)?[eE][+-]?\d+")


def build(cls: type[T], values: object, *, where: str = "configuration") -> T:
    """An instance of the dataclass `cls` from plain values; every value is checked against its annotation.

    `where` names the source in messages. Whole numbers are taken for floats, lists for tuples, "inf" for infinity.

    Raises: ConfigError for an unknown key, a missing one, or a value of the wrong type.
    """
    if not isinstance(values, Mapping):
        raise ConfigError(f"{where} is {values!r}, wanted a mapping with the fields of {cls.__name__}")
    hints = typing.get_type_hints(cls)
    fields = {f.name: f for f in dataclasses.fields(cls) if f.init}  # type: ignore[arg-type]
    for key in values:
        if key not in fields:
            raise ConfigError(f"{where}: unknown key {key!r}{nearest(key, fields)}; known: {', '.join(sorted(fields))}")
    for name, field in fields.items():
        no_default = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if no_default and name not in values:
            raise ConfigError(f"{where}: {name!r} is missing and has no default; add it")
    return cls(**{key: _convert(value, hints[key], f"{where}: {key}") for key, value in values.items()})


def _convert(value: Any, hint: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin in (Union, types.UnionType):
        return _convert_union(value, arguments, where)
    if origin is Literal:
        if value not in arguments:
            raise ConfigError(f"{where} is {value!r}, wanted one of {', '.join(map(str, arguments))}")
        return value
    if origin is tuple:
        return _convert_tuple(value, arguments, where)
    if origin in (dict, Mapping):
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where} is {value!r}, wanted a mapping")
        return {str(k): _convert(v, arguments[1], f"{where}.{k}") for k, v in value.items()}
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        if isinstance(value, hint):
            return value
        return build(hint, value, where=where)
    return _convert_scalar(value, hint, where)


def _convert_union(value: Any, choices: Sequence[Any], where: str) -> Any:
    if value is None and type(None) in choices:
        return None
    failures = []
    for choice in (c for c in choices if c is not type(None)):
        try:
            return _convert(value, choice, where)
        except ConfigError as failure:
            failures.append(str(failure))
    raise ConfigError(failures[0])


def _convert_tuple(value: Any, items: tuple[Any, ...], where: str) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise ConfigError(f"{where} is {value!r}, wanted a list")
    if len(items) == 2 and items[1] is Ellipsis:
        items = (items[0],) * len(value)
    if len(items) != len(value):
        raise ConfigError(f"{where} has {len(value)} entries, wanted {len(items)}")
    return tuple(_convert(v, hint, f"{where}[{i}]") for i, (v, hint) in enumerate(zip(value, items, strict=True)))


def _convert_scalar(value: Any, hint: Any, where: str) -> Any:
    if hint is float:
        if isinstance(value, str) and value.lower().lstrip("+-.") == "inf":
            return -math.inf if value.startswith("-") else math.inf
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        hint_text = "a number (write 8.0e-5, not 8e-5: YAML reads that as text)"
    elif hint is int:
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        hint_text = "a whole number"
    else:
        if isinstance(value, hint):
            return value
        hint_text = getattr(hint, "__name__", str(hint))
    raise ConfigError(f"{where} is {value!r}, wanted {hint_text}")


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file.

    Raises: ConfigError when the file is missing, is not YAML, or holds no mapping.
    """
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # C: fast
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); give an existing YAML file") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not YAML ({one_line(error)})") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: holds {type(values).__name__}, wanted a mapping of sections")
    return values


def parse_overrides(assignments: Iterable[str]) -> dict[str, Any]:
    """Dotted keys and their values from `key=value` texts; values are read as YAML.

    >>> parse_overrides(["model.dim=256", "losses.optimal_matching=null"])
    {'model.dim': 256, 'losses.optimal_matching': None}
    >>> parse_overrides(["train.learning_rate=1e-3"])  # a text in YAML 1.1, which wants 1.0e-3
    {'train.learning_rate': 0.001}
    """
    overrides: dict[str, Any] = {}
    for assignment in assignments:
        key, sign, text = assignment.partition("=")
        if not sign or not key:
            raise ConfigError(f"override {assignment!r} is not of the form key=value")
        try:
            overrides[key.strip()] = float(text) if _SHORT_FLOAT.fullmatch(text) else yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ConfigError(f"override {assignment!r}: the value is not YAML") from error
    return overrides


def override(values: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of nested `values` in which every dotted key of `overrides` has the given value.

    >>> override({"model": {"dim": 384}}, {"model.dim": 256, "model.dropout": 0.1})
    {'model': {'dim': 256, 'dropout': 0.1}}
    """
    result = {key: override(value, {}) if isinstance(value, Mapping) else value for key, value in values.items()}
    for dotted, value in overrides.items():
        *path, last = dotted.split(".")
        section = result
        for part in path:
            if section.get(part) is None:
                section[part] = {}
            section = section[part]
            if not isinstance(section, dict):
                raise ConfigError(f"override {dotted!r}: {part!r} is a single value, not a section")
        section[last] = value
    return result


def to_plain(config: Any) -> Any:
    """A dataclass as JSON-ready values that `build` reads back; infinity becomes "inf"."""
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        return {f.name: to_plain(getattr(config, f.name)) for f in dataclasses.fields(config)}
    if isinstance(config, Mapping):
        return {key: to_plain(value) for key, value in config.items()}
    if isinstance(config, list | tuple):
        return [to_plain(value) for value in config]
    if isinstance(config, float) and math.isinf(config):
        return "inf" if config > 0 else "-inf"
    return config


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested values under dotted keys; an empty section stays one.

    >>> flat({"weights": {"nce": 0.1}, "losses": {}})
    {'weights.nce': 0.1, 'losses': {}}
    """
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) and value else {f"{prefix}{key}": value}
    return found
