"""Settings that select a function or class, such as the optimizer: an object, MODULE:NAME or a short name."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from untrimmed.errors import ConfigError, UnknownNameError, one_line
from untrimmed.plugins import load_object
from untrimmed.presets.settings import Choice


def choose(setting: str, value: Choice, named: Mapping[str, Callable[..., Any]]) -> Callable[..., Any]:
    """Return the function or class that a setting selects. `named` maps short names to functions and classes.

    Raises: UnknownNameError for an unknown name, ConfigError for a module that cannot be imported or lacks the name.
    """
    if not isinstance(value, str):
        return value
    if value in named:
        return named[value]
    if ":" not in value:
        raise UnknownNameError(f"{UnknownNameError.among(setting, value, named)}; or write MODULE:NAME")
    try:
        chosen = load_object(value)
    except ConfigError as error:
        raise ConfigError(f"{setting}: {error}") from None
    if not callable(chosen):
        raise ConfigError(f"{setting}: {value} is {chosen!r}, expected a function or a class; correct the name")
    return chosen


def call_choice(
    setting: str, chosen: Callable[..., Any], *args: Any, settings: Mapping[str, Any], **values: Any
) -> Any:
    """Call a function or class that a setting selects, and return the result. `settings` are the user's arguments.

    Raises: ConfigError if the function or class does not accept the arguments.
    """
    try:
        return chosen(*args, **values, **settings)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{setting}: {_name(chosen)}: {one_line(error)}; correct {setting}_settings") from error


def ready_to_call(setting: str, chosen: Callable[..., Any], settings: Mapping[str, Any]) -> Callable[..., Any]:
    """Return a function with `settings` as default arguments or, for a class, an object created with `settings`.

    Raises: ConfigError if the class does not accept the settings.
    """
    if isinstance(chosen, type):
        return call_choice(setting, chosen, settings=settings)
    return partial(chosen, **settings) if settings else chosen


def accepted(function: Callable[..., Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of `values` for which the function has a parameter.

    >>> accepted(lambda update, total_steps: 0, {"total_steps": 8, "warmup_share": 0.1})
    {'total_steps': 8}
    """
    parameters = inspect.signature(function).parameters
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return dict(values)
    return {name: value for name, value in values.items() if name in parameters}


def is_required(parameter: inspect.Parameter) -> bool:
    """Whether a parameter is positional and has no default value."""
    is_positional = parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    return is_positional and parameter.default is parameter.empty


def require_one_parameter(setting: str, function: Callable[..., Any], argument: str) -> None:
    """Raise a ConfigError if a function cannot be called with one argument. In the message, `argument` names it."""
    try:
        inspect.signature(function).bind(None)
    except TypeError as error:
        message = f"{setting} cannot be called with one argument, {argument} ({error})"
        raise ConfigError(f"{message}; correct its parameters") from None
    except ValueError:  # functions written in C can lack a signature
        return


def classes_of(module: Any, base: type, without: Iterable[str] = ()) -> dict[str, Callable[..., Any]]:
    """Return the public classes of a module that inherit from `base`, by name."""
    classes = {name: value for name, value in vars(module).items() if isinstance(value, type) and name[0] != "_"}
    known = {name: cls for name, cls in classes.items() if issubclass(cls, base) and cls is not base}
    return {name: known[name] for name in sorted(known) if name not in without}


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)
