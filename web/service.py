"""Writes web/src/service.ts: the types of the service, and the fields of a query with their bounds and defaults.

All of it is read from the OpenAPI document, so that the page spells out nothing of it. `make page` runs this file.
"""

import json
from pathlib import Path
from typing import Any

import untrimmed
from untrimmed.server.app import create_app

FILE = Path(__file__).with_name("src") / "service.ts"
SMALLEST = 0.01  # of a number that has to be above 0: HTML knows no open bounds
FIELDS = {"QUERY": "SearchRequest", "FILTERS": "FiltersJson", "WEIGHTS": "WeightsJson"}


def type_of(schema: dict[str, Any]) -> str:
    """A schema as TypeScript writes it."""
    if "anyOf" in schema:
        return " | ".join(map(type_of, schema["anyOf"]))
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "enum" in schema:
        return " | ".join(f"'{value}'" for value in schema["enum"])
    if schema["type"] == "array":
        item = type_of(schema["items"])
        return f"({item})[]" if " " in item else f"{item}[]"
    return {"integer": "number"}.get(schema["type"], schema["type"])


def interface(name: str, schema: dict[str, Any]) -> str:
    """An object as an interface on one line."""
    required = schema.get("required", ())
    fields = (
        f"{field}{'' if field in required else '?'}: {type_of(one)}" for field, one in schema["properties"].items()
    )
    return f"export interface {name} {{ {'; '.join(fields)} }}"


def field(schema: dict[str, Any]) -> dict[str, Any]:
    """What an input says of a field."""
    own = {**schema, **schema.get("anyOf", [{}])[0]}
    bounds = {"min": own.get("minimum", SMALLEST if "exclusiveMinimum" in own else None), "max": own.get("maximum")}
    step = {"step": "any"} if own["type"] == "number" else {}
    longest = {"longest": own["maxLength"]} if "maxLength" in own else {}
    numbers = {name: bound for name, bound in bounds.items() if bound is not None} | step
    return {
        "type": own["type"],
        "help": own["description"].rstrip("."),
        "usual": own.get("default"),
        "bounds": numbers,
    } | longest


def service() -> str:
    """The whole file."""
    schemas = create_app(untrimmed.open("nowhere")).openapi()["components"]["schemas"]
    objects = {name: schema for name, schema in schemas.items() if "properties" in schema}
    lines = ["// Written by web/service.py from the OpenAPI document: run `make page` after a change.", ""]
    lines += [interface(name, schema) for name, schema in objects.items()]
    lines += ["", "export interface Bounds { min?: number; max?: number; step?: 'any' }"]
    lines += [
        "export interface Field { type: string; help: string; usual?: unknown; longest?: number; bounds: Bounds }"
    ]
    for constant, name in FIELDS.items():
        fields = {one: field(own) for one, own in objects[name]["properties"].items() if "$ref" not in own}
        names = " | ".join(f"'{one}'" for one in fields)
        made = ",\n".join(f"  {one}: {json.dumps(own)}" for one, own in fields.items())
        lines += ["", f"export const {constant}: Record<{names}, Field> = {{", made, "}"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    FILE.write_text(service(), encoding="utf-8")
