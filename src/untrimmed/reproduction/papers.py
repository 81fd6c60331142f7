"""Load the papers with their tables and figures from `presets/published.yaml`."""

from collections.abc import Mapping
from typing import Any

from untrimmed.config import build
from untrimmed.errors import UnknownNameError
from untrimmed.presets.published import EVENTS, RECALL, figures_of, read_papers
from untrimmed.reproduction.tables import (
    Column,
    CommandEntry,
    EfficiencyTable,
    Entry,
    NotCovered,
    Paper,
    SettingsTable,
    TableRow,
    TrainedTable,
    UntrainedTable,
)

METHODS = {
    "CLIP4Clip": "clip4clip",
    "MS-SL": "ms_sl",
    "JSG": "jsg",
    "GMMFormer": "gmmformer",
    "DL-DKD": "dl_dkd",
    "GMMFormer v2": "gmmformer_v2",
    "ProtoPRVR": "proto",
    "HLFormer": "hlformer",
    "Holmes": "holmes",
    "DreamPRVR": "dreamprvr",
}
DRAWING = "an illustration without results"


def _entry(name: str, values: Mapping[str, Any]) -> Entry:
    """Return a table or figure. Its class depends on the keys of `values`."""
    fields = {"name": name, **values}
    if "columns" in fields:
        shared: dict[str, Any] = {key: fields.pop(key) for key in ("metrics", "split") if key in fields}
        columns = fields["columns"]
        columns = columns if isinstance(columns, dict) else {column: {} for column in columns}
        fields["columns"] = [_column(column, {**shared, **settings}) for column, settings in columns.items()]
    if "rows" in fields:
        table = {"method": fields.pop("method", ""), "set": fields.pop("set", {})}
        fields["rows"] = [_row(row, settings, table) for row, settings in fields["rows"].items()]
        return build(TrainedTable, fields, where=name)
    fields["paper"] = fields.pop("figures", {})
    if "model" in fields:
        return build(UntrainedTable, fields, where=name)
    if "datasets" in fields:
        return build(SettingsTable, fields, where=name)
    if "methods" in fields:
        if isinstance(fields["methods"], list):
            fields["methods"] = {method: METHODS[method] for method in fields["methods"]}
        return build(EfficiencyTable, fields, where=name)
    del fields["paper"]
    if "commands" in fields:
        fields["commands"] = [f"untrimmed {command}" for command in fields["commands"]]
        return build(CommandEntry, fields, where=name)
    return build(NotCovered, {"reason": DRAWING, **fields}, where=name)


def _column(name: str, settings: Mapping[str, Any]) -> Column:
    is_event = name.endswith("_event")
    defaults = {
        "name": name,
        "metrics": EVENTS if is_event else RECALL,
        "events": is_event,
        "data": name.removesuffix("_event") if is_event else "",
        "overrides": settings.get("set", {}),
    }
    return build(Column, defaults | {key: value for key, value in settings.items() if key != "set"}, where=name)


def _row(name: str, settings: Mapping[str, Any], table: Mapping[str, Any]) -> TableRow:
    fields = {
        "name": name,
        "method": settings.get("method") or METHODS.get(name) or table["method"],
        "overrides": {**table["set"], **settings.get("set", {})},
        "evaluated_with": settings.get("evaluate", {}),
        "paper": figures_of(settings),
    }
    return build(TableRow, fields, where=name)


def _papers() -> dict[str, Paper]:
    papers = {}
    for name, values in read_papers().items():
        if "title" in values:  # the results of a paper without a title are used only in presets
            entries = (_entry(entry, fields) for entry, fields in values.items() if entry != "title")
            papers[name] = Paper(name=name, title=values["title"], entries=tuple(entries))
    return papers


PAPERS = _papers()


def paper_named(name: str) -> Paper:
    """Return the paper with this name; raises UnknownNameError for an unknown name."""
    if name not in PAPERS:
        raise UnknownNameError.among("paper", name, PAPERS)
    return PAPERS[name]
