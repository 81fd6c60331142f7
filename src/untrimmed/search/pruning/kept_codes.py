"""Codes as plain arrays and back: how they lie in files beside the blocks of which they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from untrimmed.search.cache.mapped import MappedArrays
from untrimmed.search.pruning.codes import Axes, Codes

# To be raised where codes of the same names, types and shapes come to mean something else; those of before are then
# made anew.
_VERSION = 2

C = TypeVar("C")


@dataclass(frozen=True)
class KeptCodes:
    """Where the codes of a block are kept, if they are, and the axes that all codes of a library have, if there are."""

    axes: Path | None = None
    codes: Path | None = None


def arrays_of(codes: Mapping[str, Any], context: str) -> dict[str, np.ndarray]:
    """Codes by branch as arrays, without their axes; `context` says what else than the block they depend on."""
    flat = {f"{branch}/{name}": array for branch, own in codes.items() for name, array in _flat(own, "")}
    return {"context": np.array(context), "branches": np.array([*codes], dtype=str), **flat}


def codes_of(arrays: Mapping[str, np.ndarray], axes: Mapping[str, Axes], kind: type[C]) -> dict[str, C]:
    """What `arrays_of` was given, each of this kind.

    Raises: DamagedError where the arrays are in a file that is not as it was written.
    """
    return {branch: _restored(kind, arrays, f"{branch}/", axes[branch]) for branch in arrays["branches"].tolist()}


def arrays_of_axes(axes: Mapping[str, Axes], kind: type[Any]) -> dict[str, np.ndarray]:
    """Axes by branch as arrays, with what codes of this kind consist of: they count for no others."""
    arrays = {"made as": np.array(_made_as(kind)), "branches": np.array([*axes], dtype=str)}
    for branch, own in axes.items():
        arrays |= {f"{branch}/{field.name}": np.asarray(getattr(own, field.name)) for field in fields(own)}
    return arrays


def read_axes(path: Path, kind: type[Any]) -> dict[str, Axes]:
    """Axes that are kept; none where they are those of codes of another kind, or of another program.

    Raises: DamagedError where they are not as they were written.
    """
    arrays = MappedArrays(path)
    if "made as" not in arrays or arrays["made as"] != _made_as(kind):
        return {}
    return {
        branch: Axes(
            matrix=arrays[f"{branch}/matrix"],
            mixed=arrays[f"{branch}/mixed"],
            splits=tuple(arrays[f"{branch}/splits"].tolist()),
        )
        for branch in arrays["branches"].tolist()
    }


def _flat(codes: Any, place: str) -> list[tuple[str, np.ndarray]]:
    """All arrays and numbers of codes, those within codes behind the name of these."""
    found = []
    for field in fields(codes):
        value = getattr(codes, field.name)
        if isinstance(value, np.ndarray | float):
            found.append((place + field.name, np.asarray(value)))
        elif not isinstance(value, Axes):
            found += _flat(value, f"{place}{field.name}/")
    return found


def _restored(kind: type[C], arrays: Mapping[str, np.ndarray], place: str, axes: Axes) -> C:
    values: dict[str, Any] = {}
    for field in fields(kind):  # type: ignore[arg-type]
        if field.type in ("Axes", "Codes"):
            inner = axes if field.type == "Axes" else _restored(Codes, arrays, f"{place}{field.name}/", axes)
            values[field.name] = inner
        else:
            array = arrays[place + field.name]
            values[field.name] = array if array.ndim else array.item()
    return kind(**values)


def _made_as(kind: type[Any]) -> str:
    """Names what codes of this kind consist of."""
    return repr([_VERSION, *((field.name, field.type) for some in (kind, Codes, Axes) for field in fields(some))])
