"""Check settings and arguments against type annotations.

Settings are typed dataclasses. `build` creates a dataclass from plain values (for example from YAML), and `to_plain`
converts a dataclass to plain values. `checked` applies the same checks to the arguments of functions, and `Checked` to
the arguments of dataclass constructors.
"""

import dataclasses
import functools
import inspect
import json
import math
import os
import re
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, Union

import yaml

from untrimmed.errors import ConfigError, nearest, one_line, shown_value

T = TypeVar("T")
C = TypeVar("C", bound=Callable[..., Any])
SECTIONS = ("model", "losses", "weights", "train", "features")  # of the settings of a run
_WORDS = {str: "a text", Path: "a path", int: "a whole number", float: "a number", bool: "True or False"}
_SHORT_FLOAT = re.compile(r"[+-]?\d+(\.\d*)?[eE][+-]?\d+")
_SHORT_FLOAT_ERROR = re.compile(rf" is '{_SHORT_FLOAT.pattern}', expected a number$")


def build(cls: type[T], values: object, *, where: str = "configuration") -> T:
    """Return an instance of the dataclass `cls` with the given plain values.

    Each value is checked against the field's annotation. Integers are accepted as floats, lists as tuples, and "inf" as
    infinity. `where` names the source of the values in error messages.

    Raises: ConfigError for an unknown or missing key, or a value of the wrong type.
    """
    if not isinstance(values, Mapping):
        raise ConfigError(f"{where} is {shown_value(values)}, expected a mapping with the fields of {cls.__name__}")
    hints = _hints(cls)  # type: ignore[arg-type]
    fields = {f.name: f for f in dataclasses.fields(cls) if f.init}  # type: ignore[arg-type]
    for key in values:
        if key not in fields:
            hint = nearest(key, fields) or "."
            raise ConfigError(f"{where}: unknown key {key!r}{hint} Known: {', '.join(sorted(fields))}")
    for name, field in fields.items():
        no_default = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if no_default and name not in values:
            raise ConfigError(f"{where}: {name!r} is missing and has no default; add it")
    try:
        converted_values = {key: _convert(value, hints[key], f"{where}: {key}") for key, value in values.items()}
    except ConfigError as error:
        if _SHORT_FLOAT_ERROR.search(str(error)):
            raise ConfigError(f"{error} (write 8.0e-5, not 8e-5: YAML reads the latter as text)") from None
        raise
    return cls(**converted_values)


def checked(**descriptions: str) -> Callable[[C], C]:
    """Return a decorator that checks and converts the arguments of every call according to their annotations.

    Arguments are converted as in `build`. For example, numpy scalars and tensors of one number become Python numbers.
    Arrays and arguments annotated as Any are not checked. `descriptions` describes the expected values of arguments
    whose annotation would be unclear in an error message.

    Annotations are evaluated at the first call, so that imports are fast.

    Raises: ConfigError when the decorated function is called. The message names the argument, its value, the expected
    value and the function's help.

    >>> @checked()
    ... def wait(seconds: float) -> float:
    ...     return seconds
    >>> wait(2), wait("2")
    Traceback (most recent call last):
    ...
    untrimmed.errors.ConfigError: seconds is '2', expected a number; see help(wait)
    """

    def decorate(function: C) -> C:
        return typing.cast(C, _with_checks(function, descriptions))

    return decorate


def _with_checks(function: Callable[..., Any], descriptions: Mapping[str, str]) -> Callable[..., Any]:
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            return function(*args, **kwargs)  # this call raises Python's error about a missing or unknown argument
        _convert_arguments(bound, _parameter_hints(function), descriptions, function.__qualname__)
        return function(*bound.args, **bound.kwargs)

    return call


def _convert_arguments(
    bound: inspect.BoundArguments, hints: Mapping[str, Any], descriptions: Mapping[str, str], title: str
) -> None:
    for name, hint in hints.items():
        if name in bound.arguments:
            value = bound.arguments[name]
            try:
                bound.arguments[name] = _convert(value, hint, name)
            except ConfigError as error:
                message = str(error)
                if name in descriptions and message.startswith((f"{name} is ", f"{name} has ", f"{name}[")):
                    message = f"{name} is {shown_value(value)}, expected {descriptions[name]}"
                raise ConfigError(f"{message}; see help({title})") from None


class Checked(type):
    """Metaclass of settings dataclasses.

    The constructors of these dataclasses check and convert arguments like `checked`.

    This is a metaclass, because a decorator would not apply to subclasses: each dataclass has its own constructor.
    """

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Return a new instance with checked and converted arguments.

        Raises: ConfigError, as for `checked`.
        """
        try:
            bound = cls.__signature__.bind(*args, **kwargs)
        except TypeError:
            return super().__call__(*args, **kwargs)
        _convert_arguments(bound, _hints(cls), {}, cls.__qualname__)
        return super().__call__(*bound.args, **bound.kwargs)

    @property
    def __signature__(cls) -> inspect.Signature:
        return _signature(cls)  # `help` shows the parameters of the dataclass instead of those of `__call__`


@functools.cache
def _signature(cls: Checked) -> inspect.Signature:
    signature = inspect.signature(cls.__init__)  # type: ignore[misc]
    return signature.replace(parameters=list(signature.parameters.values())[1:])


@functools.cache
def _hints(cls: Any) -> dict[str, Any]:
    return typing.get_type_hints(cls)


@functools.cache
def _parameter_hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations of all parameters except *args and **kwargs.

    Return annotations are not evaluated, because their types may be imported only for type checkers.
    """
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    names = {parameter.name for parameter in parameters if parameter.kind not in variadic}
    annotations = {name: hint for name, hint in function.__annotations__.items() if name in names}
    namespace = inspect.unwrap(function).__globals__
    return typing.get_type_hints(types.SimpleNamespace(__annotations__=annotations), namespace)


def converted(record: T, *, where: str) -> T:
    """Return a copy of a dataclass instance with its fields checked and converted as in `build`.

    Raises: ConfigError, as for `build`.
    """
    values = {name: (getattr(record, name), hint) for name, hint in _hints(type(record)).items()}  # type: ignore[arg-type]
    return dataclasses.replace(
        record,  # type: ignore[type-var]
        **{name: _convert(value, hint, f"{where}: {name}") for name, (value, hint) in values.items()},
    )


def _convert(value: Any, hint: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any or hasattr(hint, "array_type"):  # annotations of jaxtyping are not checked here
        return value
    if origin in (Union, types.UnionType):
        return _convert_union(value, hint, where)
    if origin is tuple:
        return _convert_tuple(value, arguments, where)
    if origin is Sequence:
        return [_convert(item, arguments[0], f"{where}[{index}]") for index, item in enumerate(_items(value, where))]
    if origin in (dict, Mapping):
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where} is {shown_value(value)}, expected a mapping")
        # the mapping is not copied, because it may read its values lazily
        if origin is Mapping and arguments[1] is Any:
            for key in value:
                _convert(key, str, f"{where}, a key,")
            return value
        return {str(k): _convert(v, arguments[1], f"{where}.{k}") for k, v in value.items()}
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return value if isinstance(value, hint) else build(hint, value, where=where)
    return _convert_scalar(value, hint, where)


def _convert_union(value: Any, hint: Any, where: str) -> Any:
    choices = typing.get_args(hint)
    if value is None and type(None) in choices:
        return None
    failures = []
    for choice in (c for c in choices if c is not type(None)):
        try:
            return _convert(value, choice, where)
        except ConfigError as failure:
            failures.append(str(failure))
    nested = [failure for failure in failures if not failure.startswith(f"{where} is ")]
    if nested or len(failures) == 1:
        raise ConfigError((nested or failures)[0])
    raise ConfigError(f"{where} is {shown_value(value)}, expected {_in_words(hint)}")


def _in_words(hint: Any) -> str:
    """Return a description of the values that an annotation allows.

    >>> _in_words(str | Path | None), _in_words(Literal["a", "b"]), _in_words(Callable[[int], None])
    ('a path or None', 'one of a, b', 'a function')
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return f"one of {', '.join(map(str, arguments))}"
    if origin in (Union, types.UnionType):
        texts = [_in_words(choice) for choice in arguments if not (choice is str and Path in arguments)]
        return " or ".join(texts)
    if hint is type(None):
        return "None"
    if origin is not None or hint is Callable:
        return "a function" if (origin or hint) is Callable else "a list"
    article = "an" if hint.__name__[0] in "AEIO" else "a"
    return _WORDS.get(hint) or ("a function" if "__call__" in vars(hint) else f"{article} {hint.__name__}")


def _items(value: Any, where: str) -> Iterable[Any]:
    try:
        if not isinstance(value, str | bytes | Mapping):
            return iter(value)
    except TypeError:
        pass
    raise ConfigError(f"{where} is {shown_value(value)}, expected a list")


def _convert_tuple(value: Any, items: tuple[Any, ...], where: str) -> tuple[Any, ...]:
    values = list(_items(value, where))
    if len(items) == 2 and items[1] is Ellipsis:
        items = (items[0],) * len(values)
    if len(items) != len(values):
        raise ConfigError(f"{where} has {len(values)} entries, expected {len(items)}")
    return tuple(_convert(v, hint, f"{where}[{i}]") for i, (v, hint) in enumerate(zip(values, items, strict=True)))


def _convert_scalar(value: Any, hint: Any, where: str) -> Any:
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        value = value.item()  # a numpy scalar or a tensor of one number
    origin = typing.get_origin(hint)
    expected = _in_words(hint)
    if origin is Literal:
        for choice in typing.get_args(hint):
            if (type(value) is type(choice) or isinstance(value, str)) and value == choice:
                return choice  # return the text for a member of a text enum
    elif origin is Callable:
        if callable(value):
            return value
    elif hint is float:
        if isinstance(value, str) and value.lower().lstrip("+-.") == "inf":
            return -math.inf if value.startswith("-") else math.inf
        if isinstance(value, int | float) and not isinstance(value, bool):
            if not math.isnan(value):
                return float(value)
            expected = f"{expected}, not nan"
    elif hint is Path:
        if isinstance(value, os.PathLike):
            return Path(value)
    elif isinstance(value, hint) and not (hint is int and isinstance(value, bool)):
        return value
    raise ConfigError(f"{where} is {shown_value(value)}, expected {expected}")


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file.

    Raises: ConfigError if the file cannot be read, is not YAML, or does not contain a mapping.
    """
    try:
        # the C loader is much faster
        values = yaml.load(path.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); name an existing YAML file") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is not valid YAML ({one_line(error)}); fix the file") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: contains {shown_value(values)}, expected a mapping of sections")
    return values


def read_json(path: Path) -> dict[str, Any]:
    """Return the mapping in a JSON file that this package has written.

    Raises: ConfigError if the file cannot be read, is not JSON, or does not contain a mapping.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read ({one_line(error)}); restore or remove the file") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: contains {shown_value(values)}, expected a mapping; restore or remove the file")
    return values


def parse_overrides(assignments: Iterable[str]) -> dict[str, Any]:
    """Return {dotted key: value} for texts of the form `key=value`. The values are parsed as YAML.

    >>> parse_overrides(["model.dim=256", "losses.optimal_matching=null"])
    {'model.dim': 256, 'losses.optimal_matching': None}
    >>> parse_overrides(["train.learning_rate=1e-3"])  # YAML 1.1 would read this as text
    {'train.learning_rate': 0.001}
    """
    overrides: dict[str, Any] = {}
    for assignment in assignments:
        key, sign, text = assignment.partition("=")
        if not sign or not key:
            raise ConfigError(
                f"setting {assignment!r} has the wrong form; write settings as KEY=VALUE, e.g. train.epochs=30, after "
                "all other arguments"
            )
        try:
            overrides[key.strip()] = float(text) if _SHORT_FLOAT.fullmatch(text) else yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ConfigError(f"setting {assignment!r}: {text!r} is not valid YAML; fix the value") from error
    return overrides


def require_sections(
    keys: Iterable[str], known: Callable[[], Mapping[str, Collection[str]]] = dict, form: str = "{}.{}=…"
) -> None:
    """Check that the keys of a run's settings begin with a section, as in `train.epochs`.

    `known` returns the known keys of each section. It is called only for an error. `form` is how the user writes a
    section and a key.

    Raises: ConfigError for a key with an empty part, without a section, or with an unknown one. For a key without a
        section, the message names the sections that have this key.

    >>> require_sections(["train.epochs", "epochs"], lambda: {"train": ["epochs"]})
    Traceback (most recent call last):
    ...
    untrimmed.errors.ConfigError: setting 'epochs' needs a section; write train.epochs=…
    """
    for key in keys:
        first, _, rest = key.partition(".")
        if "" in key.split("."):
            advice = form.format(first if first in SECTIONS else "SECTION", "KEY")
            raise ConfigError(f"setting {key!r} has an empty part; write {advice} (sections: {', '.join(SECTIONS)})")
        if rest and first in SECTIONS:
            continue
        if rest:
            found = [form.format(section, rest) for section in known() if section.endswith(f".{first}")]
        else:
            found = [form.format(section, key) for section, names in known().items() if key in names]
        if rest and not found:
            hint = nearest(first, SECTIONS) or "."
            raise ConfigError(f"setting {key!r}: unknown section {first!r}{hint} Known: {', '.join(SECTIONS)}")
        advice = " or ".join(found) or f"{form.format('SECTION', key)} (sections: {', '.join(SECTIONS)})"
        raise ConfigError(f"setting {key!r} needs a section; write {advice}")


def with_dotted_keys(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of settings in which each nested mapping is replaced by dotted keys.

    >>> with_dotted_keys({"weights": {"nce": 0.1}, "train.epochs": 3})
    {'weights.nce': 0.1, 'train.epochs': 3}

    Raises: ConfigError for a setting that is given in both forms.
    """
    result: dict[str, Any] = {}
    for key, value in settings.items():
        added = flat(value, f"{key}.") if isinstance(value, Mapping) and "." not in key else {key: value}
        if twice := [name for name in added if name in result]:
            name = twice[0]
            raise ConfigError(f"setting {name!r} is given twice: {result[name]!r} and {added[name]!r}; keep one")
        result |= added
    return result


def override(values: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the nested mapping `values` in which the values at the dotted keys of `overrides` are replaced.

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
                raise ConfigError(f"setting {dotted!r}: {part!r} is a single value, not a section; check the key")
        section[last] = value
    return result


def to_plain(config: Any) -> Any:
    """Convert a dataclass to values for JSON or YAML. `build` converts them back.

    Infinity becomes "inf". A function or class becomes its name, as returned by `reference_of`.
    """
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        return {f.name: to_plain(getattr(config, f.name)) for f in dataclasses.fields(config)}
    if isinstance(config, Mapping):
        return {key: to_plain(value) for key, value in config.items()}
    if isinstance(config, list | tuple):
        return [to_plain(value) for value in config]
    if isinstance(config, float) and math.isinf(config):
        return "inf" if config > 0 else "-inf"
    if callable(config):
        return reference_of(config)
    return config


def reference_of(function: Callable[..., Any]) -> str:
    """Return the name of a function or class in settings: MODULE:NAME.

    >>> import json
    >>> reference_of(json.loads)
    'json:loads'

    Raises: ConfigError for a lambda, a partial or an object, because they have no name in a module.
    """
    name = getattr(function, "__qualname__", "<lambda>")
    if name.endswith("<lambda>"):
        raise ConfigError(
            f"{shown_value(function)} has no name that a run could store; define a function or a class with a name"
        )
    return f"{function.__module__}:{name}"


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested mappings as one mapping with dotted keys.

    Nested mappings that are empty, or whose keys contain dots, stay mappings.

    >>> flat({"weights": {"nce": 0.1}, "losses": {}})
    {'weights.nce': 0.1, 'losses': {}}
    """
    result: dict[str, Any] = {}
    for key, value in values.items():
        is_section = isinstance(value, Mapping) and value and not any("." in str(name) for name in value)
        result |= flat(value, f"{prefix}{key}.") if is_section else {f"{prefix}{key}": value}
    return result
