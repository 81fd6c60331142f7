"""The papers by name, with what they print."""

from dataclasses import replace
from typing import Any

from untrimmed.errors import UnknownNameError
from untrimmed.presets.published import published
from untrimmed.reproduction import dreamprvr, gmmformer, gmmformer_v2, hlformer, holmes, jsg, proto, ral, tf_prvr
from untrimmed.reproduction.tables import EfficiencyTable, Entry, Paper, SettingsTable, TrainedTable, UntrainedTable


def _printed(paper: Paper) -> Paper:
    """The paper with the figures of `published.yaml` in its tables."""
    figures = published()[paper.name]
    return replace(paper, entries=tuple(_with_figures(entry, figures.get(entry.name, {})) for entry in paper.entries))


def _with_figures(entry: Entry, figures: dict[str, Any]) -> Entry:
    if isinstance(entry, TrainedTable):
        return replace(entry, rows=tuple(replace(row, paper=figures.get(row.name, {})) for row in entry.rows))
    if isinstance(entry, EfficiencyTable):
        return replace(entry, paper=figures)
    if isinstance(entry, UntrainedTable):
        return replace(entry, paper=figures)
    return replace(entry, paper=figures) if isinstance(entry, SettingsTable) else entry


MODULES = (gmmformer, gmmformer_v2, ral, proto, jsg, dreamprvr, holmes, hlformer, tf_prvr)
PAPERS = {module.PAPER.name: _printed(module.PAPER) for module in MODULES}


def paper_named(name: str) -> Paper:
    """The paper of that name.

    Raises: UnknownNameError when there is none.
    """
    if name not in PAPERS:
        raise UnknownNameError.among("paper", name, PAPERS)
    return PAPERS[name]
