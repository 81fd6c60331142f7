"""The Markdown document of what the papers print and what comes out here."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Sequence

import torch

from untrimmed.reproduction.commands import commands_of
from untrimmed.reproduction.render import Grid, command_of, listing, markdown
from untrimmed.reproduction.results import efficiency_grid, settings_grid, trained_grids
from untrimmed.reproduction.runner import Place, Step, run_table
from untrimmed.reproduction.tables import EfficiencyTable, Entry, Paper, SettingsTable, TrainedTable
from untrimmed.version import __version__

Tell = Callable[[Step], None]


def grids_of(entry: Entry, place: Place, tell: Tell = lambda step: None) -> Iterator[Grid]:
    """What an entry comes to: one grid for each data set of a trained table, none for what is not measured here."""
    if isinstance(entry, TrainedTable):
        yield from trained_grids(entry, run_table(entry, place, tell), place)
    elif isinstance(entry, EfficiencyTable):
        names = list(entry.methods)

        def measuring(name: str) -> None:
            tell(Step(names.index(name) + 1, len(names), name, "measuring"))

        yield efficiency_grid(entry, measuring)
    elif isinstance(entry, SettingsTable):
        yield settings_grid(entry)


def document(
    papers: Sequence[Paper], wanted: Sequence[Entry], place: Place, command: str, tell: Tell = lambda step: None
) -> Iterator[str]:
    """The parts of a document: how it was made, then each paper's list and its wanted entries."""
    yield _preface(command, place)
    for paper in papers:
        yield f"\n## {paper.title}\n\n"
        yield markdown(listing(paper))
        for entry in paper.entries:
            grids = [markdown(grid) for grid in grids_of(entry, place, tell)] if entry in wanted else []
            if not grids:
                continue
            yield f"\n### {paper.name} {entry.name}\n\n`{command_of(paper, entry)}`\n\n"
            yield "\n".join(grids)
            if isinstance(entry, TrainedTable):
                yield "\nEach row by itself:\n\n```\n"
                for each in commands_of(entry):
                    yield f"# {each.row.name}, {each.column.name}\n{each.train}\n{each.evaluate}\n"
                yield "```\n"


def _preface(command: str, place: Place) -> str:
    seed = place.data_seed if place.simulated else "of the presets" if place.seed is None else place.seed
    lines = [
        "# What the papers print, and what comes out here",
        f"Made by `{command}` with untrimmed {__version__}, torch {torch.__version__}, Python "
        f"{platform.python_version()}, {torch.get_num_threads()} threads on a machine with {os.cpu_count()} cores; "
        f"seed {seed}.",
    ]
    if place.simulated:
        scale = place.scale
        settings = ", ".join(f"{key}={value}" for key, value in scale.overrides.items())
        lines.append(
            f"**Trained tables are simulated**: the same programs, options and protocol on {scale.num_videos} videos "
            "of simulated features, clearer than those of `untrimmed data simulate`, a fifth of them in the test "
            f"split, with models far smaller and training far shorter than published ({settings}). They show that "
            f"every row runs and learns (chance is SumR {_chance(scale.num_videos // 5):.0f}); they say little about "
            "which row is better, and nothing about the papers' data. DL-DKD's "
            "teacher is simulated too (docs/data.md). With extracted features: add `--root DIR`. "
            "Efficiency tables and hyper-parameters are at the published sizes. Sweeps are run by name, not here."
        )
    return "\n\n".join(lines) + "\n"


def _chance(num_videos: int) -> float:
    """SumR of a random order."""
    return sum(min(100.0, 100.0 * k / num_videos) for k in (1, 5, 10, 100))
