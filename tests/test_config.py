import inspect
import math
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Literal

import numpy as np
import pytest

from tests.refusals import refused
from untrimmed.config import (
    Checked,
    build,
    checked,
    override,
    parse_overrides,
    read_yaml,
    require_sections,
    to_plain,
    with_dotted_keys,
)
from untrimmed.errors import ConfigError


@dataclass(frozen=True)
class Inner:
    rate: float = 0.1


@dataclass(frozen=True)
class Outer:
    dim: int
    kind: Literal["a", "b"] = "a"
    widths: tuple[float, ...] = (1.0,)
    pair: tuple[int, str] = (1, "x")
    limit: int | None = None
    inner: Inner = field(default_factory=Inner)
    extra: dict[str, dict[str, float] | None] = field(default_factory=dict)
    on: bool = True


def test_a_dataclass_is_built_from_plain_values_and_converted_back():
    values = {"dim": 3, "kind": "b", "widths": [1, float("inf")], "inner": {"rate": 2}, "extra": {"x": None}}
    built = build(Outer, values)
    assert built == Outer(3, "b", (1.0, math.inf), inner=Inner(2.0), extra={"x": None})
    assert isinstance(built.inner.rate, float)
    assert to_plain(built)["widths"] == [1.0, "inf"]
    assert build(Outer, to_plain(built)) == built


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"dims": 3}, ("'dims'", "'dim'")),
        ({}, ("'dim'",)),
        ({"dim": "3"}, ("dim", "'3'")),
        ({"dim": True}, ("dim", "True")),
        ({"dim": 3, "kind": "c"}, ("kind", "'c'")),
        ({"dim": 3, "widths": 1.0}, ("widths", "1.0")),
        ({"dim": 3, "widths": [1.0, "wide"]}, ("widths[1]", "'wide'")),
        ({"dim": 3, "pair": [1]}, ("pair", "1", "2")),
        ({"dim": 3, "inner": {"rates": 1}}, ("inner", "'rates'", "'rate'")),
        ({"dim": 3, "inner": 1}, ("inner", "1")),
        ({"dim": 3, "extra": {"x": {"y": "8e-5"}}}, ("extra.x.y", "'8e-5'")),
        ({"dim": 3, "limit": "many"}, ("limit", "'many'")),
        ({"dim": 3, "on": 1}, ("on", "1")),
    ],
)
def test_a_wrong_value_is_refused_with_its_key(values, message):
    with refused(ConfigError, *message):
        build(Outer, values)


def test_dotted_overrides_change_a_copy():
    source = {"model": {"dim": 1}, "losses": {"x": None}}
    changed = override(source, parse_overrides(["model.dim=2", "losses.x.margin=0.5", "new.deep.key=[1, 2]"]))
    assert changed == {"model": {"dim": 2}, "losses": {"x": {"margin": 0.5}}, "new": {"deep": {"key": [1, 2]}}}
    assert source == {"model": {"dim": 1}, "losses": {"x": None}}


def test_an_override_through_a_single_value_is_refused():
    with pytest.raises(ConfigError, match="'dim'"):
        override({"dim": 1}, {"dim.x": 2})


@pytest.mark.parametrize("text", ["model.dim", "=3", "a=[1"])
def test_an_override_without_the_form_key_value_is_refused(text):
    with pytest.raises(ConfigError):
        parse_overrides([text])


@pytest.mark.parametrize("content", ["a: [", "- 1"])
def test_a_yaml_file_without_a_mapping_is_refused(tmp_path, content):
    path = tmp_path / "run.yaml"
    path.write_text(content)
    with pytest.raises(ConfigError, match=r"run\.yaml"):
        read_yaml(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.yaml"):
        read_yaml(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("text", "value"), [("1e-3", 1e-3), ("+2.5E4", 2.5e4), ("3.e2", 300.0), ("1e", "1e"), ("5", 5)]
)
def test_a_short_float_is_a_number(text, value):
    (parsed,) = parse_overrides([f"train.learning_rate={text}"]).values()
    assert parsed == value
    assert type(parsed) is type(value)


@checked()
def wait(seconds: float = 0.0, unit: Literal["s", "ms"] = "s") -> str:
    return unit


def test_a_number_as_text_is_refused_in_arguments_and_settings():
    with refused(ConfigError, "seconds", "'1e-3'"):
        wait("1e-3")
    with refused(ConfigError, "rate", "'1e-3'"):
        build(Outer, {"dim": 3, "inner": {"rate": "1e-3"}})


def test_a_member_of_a_text_enum_becomes_its_text():
    class Unit(StrEnum):
        milli = "ms"
        micro = "us"

    assert type(wait(unit=Unit.milli)) is str
    with pytest.raises(ConfigError, match="s, ms"):
        wait(unit=Unit.micro)


@dataclass(frozen=True, kw_only=True)
class Base(metaclass=Checked):
    dim: int = 1


@dataclass(frozen=True, kw_only=True)
class Below(Base):
    widths: tuple[float, ...] = ()

    def __post_init__(self):  # without calling that of its base class
        if sum(self.widths) < 0:
            raise ConfigError("expected widths above 0")


def test_settings_are_checked_in_every_subclass():
    made = Below(dim=np.int64(3), widths=[1, 2])
    assert (made, type(made.dim), type(made.widths[0])) == (Below(dim=3, widths=(1.0, 2.0)), int, float)
    assert str(inspect.signature(Below)) == "(*, dim: int = 1, widths: tuple[float, ...] = ()) -> None"
    with pytest.raises(TypeError, match="'width'"):
        Below(width=3)
    with refused(ConfigError, "widths[0]", "'wide'"):
        Below(widths=["wide"])
    with refused(ConfigError, "dim", "True"):
        replace(made, dim=True)


def test_a_setting_in_both_forms_is_refused():
    with refused(ConfigError, "train.epochs", "4", "3"):
        with_dotted_keys({"train": {"epochs": 4}, "train.epochs": 3})


@pytest.mark.parametrize(
    ("key", "expected"), [("train.", "train.KEY"), ("train..epochs", "train.KEY"), (".epochs", "SECTION.KEY")]
)
def test_a_setting_with_an_empty_name_is_refused(key, expected):
    with refused(ConfigError, f"{key!r}", expected):
        require_sections([key])
