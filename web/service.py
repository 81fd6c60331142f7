"""Write web/src/service.ts from the OpenAPI document: the service's types, and the fields of a query with their bounds.

`make page` runs this file.
"""

import json
from pathlib import Path
from typing import Any

import untrimmed
from untrimmed.server.app import create_app

FILE = Path(__file__).with_name("src") / "service.ts"
SMALLEST = 0.01  # for numbers that must be above 0, because HTML has no open bounds
FIELDS = {"QUERY": "SearchRequest", "FILTERS": "FiltersJson", "WEIGHTS": "WeightsJson"}


def type_of(schema: dict[str, Any]) -> str:
    """The TypeScript type of a schema."""
    if "anyOf" in schema:
        return " | ".join(map(type_of, schema["anyOf"]))
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "const" in schema:
        return f"'{schema['const']}'"
    if "enum" in schema:
        return " | ".join(f"'{value}'" for value in schema["enum"])
    if schema["type"] == "array":
        item = type_of(schema["items"])
        return f"({item})[]" if " " in item else f"{item}[]"
    return {"integer": "number"}.get(schema["type"], schema["type"])


def interface(name: str, schema: dict[str, Any]) -> str:
    """The interface of an object, on one line."""
    required = schema.get("required", ())
    fields = (
        f"{field}{'' if field in required else '?'}: {type_of(kind)}" for field, kind in schema["properties"].items()
    )
    return f"export interface {name} {{ {'; '.join(fields)} }}"


def field(schema: dict[str, Any]) -> dict[str, Any]:
    """Type, help, unit, default and bounds of a field, for inputs."""
    merged = {**schema, **schema.get("anyOf", [{}])[0]}
    minimum = merged.get("minimum", SMALLEST if "exclusiveMinimum" in merged else None)
    bounds = {"min": minimum, "max": merged.get("maximum")}
    step = {"step": "any"} if merged["type"] == "number" else {}
    unit = {"unit": merged["x-unit"]} if "x-unit" in merged else {}
    max_length = {"maxLength": merged["maxLength"]} if "maxLength" in merged else {}
    numbers = {name: bound for name, bound in bounds.items() if bound is not None} | step
    return {
        "type": merged["type"],
        "help": merged["description"].rstrip("."),
        **unit,
        "default": merged.get("default"),
        "bounds": numbers,
    } | max_length


def service() -> str:
    """The content of the file."""
    schemas = create_app(untrimmed.open("nowhere")).openapi()["components"]["schemas"]
    objects = {name: schema for name, schema in schemas.items() if "properties" in schema}
    lines = ["// Written by web/service.py from the OpenAPI document: run `make page` after a change.", ""]
    lines += [interface(name, schema) for name, schema in objects.items()]
    lines += ["", "export interface Bounds { min?: number; max?: number; step?: 'any' }"]
    lines += [
        "export interface Field "
        "{ type: string; help: string; unit?: string; default?: unknown; maxLength?: number; bounds: Bounds }"
    ]
    for constant, name in FIELDS.items():
        properties = objects[name]["properties"].items()
        fields = {key: field(schema) for key, schema in properties if "$ref" not in schema}
        keys = " | ".join(f"'{key}'" for key in fields)
        rows = ",\n".join(f"  {key}: {json.dumps(row)}" for key, row in fields.items())
        lines += ["", f"export const {constant}: Record<{keys}, Field> = {{", rows, "}"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    FILE.write_text(service(), encoding="utf-8")
