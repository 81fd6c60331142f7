"""The papers by name, with what they print: `presets/published.yaml` as tables."""

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
DRAWING = "a drawing of the idea, nothing is measured"


def _entry(name: str, values: Mapping[str, Any]) -> Entry:
    """A table or figure; its kind follows from what is said of it."""
    own = {"name": name, **values}
    if "columns" in own:
        shared: dict[str, Any] = {key: own.pop(key) for key in ("metrics", "split") if key in own}
        columns = own["columns"] if isinstance(own["columns"], dict) else {column: {} for column in own["columns"]}
        own["columns"] = [_column(column, {**shared, **said}) for column, said in columns.items()]
    if "rows" in own:
        table = {"method": own.pop("method", ""), "set": own.pop("set", {})}
        own["rows"] = [_row(row, said, table) for row, said in own["rows"].items()]
        return build(TrainedTable, own, where=name)
    own["paper"] = own.pop("figures", {})
    if "model" in own:
        return build(UntrainedTable, own, where=name)
    if "datasets" in own:
        return build(SettingsTable, own, where=name)
    if "methods" in own:
        if isinstance(own["methods"], list):
            own["methods"] = {method: METHODS[method] for method in own["methods"]}
        return build(EfficiencyTable, own, where=name)
    del own["paper"]
    if "commands" in own:
        own["commands"] = [f"untrimmed {command}" for command in own["commands"]]
        return build(CommandEntry, own, where=name)
    return build(NotCovered, {"reason": DRAWING, **own}, where=name)


def _column(name: str, said: Mapping[str, Any]) -> Column:
    is_event = name.endswith("_event")
    own = {
        "name": name,
        "metrics": EVENTS if is_event else RECALL,
        "events": is_event,
        "data": name.removesuffix("_event") if is_event else "",
        "overrides": said.get("set", {}),
    }
    return build(Column, own | {key: value for key, value in said.items() if key != "set"}, where=name)


def _row(name: str, said: Mapping[str, Any], table: Mapping[str, Any]) -> TableRow:
    own = {
        "name": name,
        "method": said.get("method") or METHODS.get(name) or table["method"],
        "overrides": {**table["set"], **said.get("set", {})},
        "evaluated_with": said.get("evaluate", {}),
        "paper": figures_of(said),
    }
    return build(TableRow, own, where=name)


def _papers() -> dict[str, Paper]:
    papers = {}
    for name, values in read_papers().items():
        if "title" in values:  # else only presets name its figures
            entries = (_entry(entry, said) for entry, said in values.items() if entry != "title")
            papers[name] = Paper(name=name, title=values["title"], entries=tuple(entries))
    return papers


PAPERS = _papers()


def paper_named(name: str) -> Paper:
    """The paper of that name. Raises UnknownNameError when there is none."""
    if name not in PAPERS:
        raise UnknownNameError.among("paper", name, PAPERS)
    return PAPERS[name]
