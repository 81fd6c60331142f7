"""Runs printed commands with the real command line. They must train and evaluate the same as the table."""

import inspect
import re
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer

from untrimmed.cli.app import build_app
from untrimmed.data.dataset import RetrievalDataset
from untrimmed.data.packed import PackSettings
from untrimmed.evaluation.report import COLUMNS, heading
from untrimmed.plots.catalogue import PICTURES
from untrimmed.reproduction import runner
from untrimmed.reproduction.commands import commands_of
from untrimmed.reproduction.document import SHARED_NOTES, document
from untrimmed.reproduction.efficiency import MethodCosts
from untrimmed.reproduction.papers import PAPERS
from untrimmed.reproduction.render import command_of
from untrimmed.reproduction.results import left_out_note, notes_of, printed_grids
from untrimmed.reproduction.runner import RunSettings, _evaluate, pairs_of, trial_of
from untrimmed.reproduction.tables import (
    CommandEntry,
    EfficiencyTable,
    NotCovered,
    SettingsTable,
    TrainedTable,
    UntrainedTable,
)
from untrimmed.running import evaluate as evaluation
from untrimmed.running.run import DataSettings, Run
from untrimmed.training import arguments
from untrimmed.training import train as training

COMMANDS = typer.main.get_command(build_app()).commands
TABLES = [
    pytest.param(entry, id=f"{paper.name}-{entry.name}")
    for paper in PAPERS.values()
    for entry in paper.entries
    if isinstance(entry, TrainedTable)
]
MEASURED = (TrainedTable, UntrainedTable, EfficiencyTable, SettingsTable)
WIDTHS = {  # of the features of words and of frames, as they are published
    "tvr": (768, 3072),
    "activitynet": (1024, 1024),
    "charades": (1024, 1024),
    "didemo": (1024, 4352),
    "qvhighlights": (512, 2816),
    "msrvtt": (512, 512),
    "msrvtt_b16": (512, 512),
    "tvr_clip": (768, 768),
    "activitynet_clip": (768, 768),
}


class Features(RetrievalDataset):
    """A split with only its name, and the settings with which its features are read."""

    def __init__(self, name, settings):
        features = SimpleNamespace(settings=settings)
        self.__dict__ |= {"name": name, "split": "train", "video_ids": ("a", "b"), "features": features}
        self.__dict__["annotations"] = ()

    @classmethod
    def load(cls, data, sizes, features, split, **_):
        limits = {key: getattr(sizes, key) for key in ("num_clips", "max_frames", "max_words")}
        return cls(data.name, PackSettings(**limits, fixed_frames=features.fixed_frames))

    @property
    def query_dim(self):
        return WIDTHS[self.name][0]

    @property
    def video_dim(self):
        return WIDTHS[self.name][1]


class Stopped(Exception):  # noqa: N818 - no error
    """Raised instead of training or evaluating; it holds the arguments."""

    def __init__(self, *what):
        super().__init__()
        self.what = what


@pytest.fixture
def type_in():
    """Runs a command line like a shell, without catching errors."""

    def run(line):
        program, name, *rest = shlex.split(line)
        assert program == "untrimmed"
        COMMANDS[name].main(rest, prog_name=name, standalone_mode=False)

    return run


@pytest.fixture
def caught(monkeypatch):
    """Returns what a call would train or evaluate. Training stops when all settings are known and fit the data."""

    def stop_training(folder, config, made):
        raise Stopped(config)

    def sets(data, root, preset, *_):
        settings = DataSettings(name=data, root="DIR")
        loaded = (Features.load(settings, preset.sizes(), preset.features, split) for split in ("train", "val"))
        return settings, tuple(loaded)

    def stop_evaluating(run, **options):
        bound = inspect.signature(real_evaluate).bind(None, **options)
        bound.apply_defaults()
        raise Stopped(bound.arguments | {"changed": bound.arguments["changed"] or {}})

    real_evaluate = evaluation.evaluate
    monkeypatch.setattr(training, "_sets", sets)
    monkeypatch.setattr(arguments, "require_content", lambda _: None)  # this checks features, and there are none
    monkeypatch.setattr(training, "_with_initial_digest", stop_training)
    monkeypatch.setattr(evaluation, "evaluate", stop_evaluating)
    monkeypatch.setattr(runner, "evaluate", stop_evaluating)
    monkeypatch.setattr("untrimmed.cli.run_evaluation.is_model_folder", lambda folder: True)

    def catch(call, *arguments):
        with pytest.raises(Stopped) as stopped:
            call(*arguments)
        return stopped.value.what[0]

    return catch


@pytest.mark.check
@pytest.mark.parametrize("table", TABLES)
def test_a_printed_command_trains_and_evaluates_what_the_table_does(table, caught, type_in, tmp_path):
    settings = RunSettings(tmp_path, root=tmp_path)
    printed = list(commands_of(table))
    assert [(each.row, each.column) for each in printed] == list(pairs_of(table))
    for each in printed:
        trial = trial_of(each.row, each.column, settings)
        settled = caught(trial.train)
        assert (settled.train, settled.features) == (trial.settings.train, trial.settings.features)
        assert caught(type_in, each.train) == settled
        assert caught(type_in, each.evaluate) == caught(
            _evaluate, Run(tmp_path, settled, []), each.row, each.column, "auto"
        )
        assert caught(type_in, each.evaluate)["moments"] == each.column.events


def test_ranking_strategies_are_evaluated_by_different_commands():
    table = next(entry for entry in PAPERS["jsg"].entries if entry.name == "table5")
    similarities = [each for each in commands_of(table) if each.row.name in ("full", "GLC-sim", "GZ-sim", "Sum-sim")]
    assert len({(each.train, each.evaluate) for each in similarities}) == len(similarities) == 8


LISTED = [
    command
    for paper in PAPERS.values()
    for entry in paper.entries
    if not isinstance(entry, NotCovered)
    for command in command_of(paper, entry).split("\n")
]


def understood(name, words):
    """The arguments that a command gets from its words. A wrong subcommand, option or value raises an error."""
    command = COMMANDS[name]
    while hasattr(command, "commands"):  # `data` has commands of its own
        name, *words = words
        command = command.commands[name]
    return command.make_context(name, list(words)).params


@pytest.mark.parametrize("words", [["describes", "tvr"], ["describe", "tvr", "--root", "DIR", "--text", "last"]])
def test_a_wrong_subcommand_or_option_of_a_group_would_be_found(words):
    with pytest.raises(Exception, match=r"describes|--text"):
        understood("data", words)


@pytest.mark.parametrize("command", dict.fromkeys(LISTED))
def test_commands_of_tables_and_figures_are_understood(command, caught, type_in):
    program, name, *rest = shlex.split(command)
    assert program == "untrimmed"
    given = understood(name, rest)
    if name == "train":
        assert caught(type_in, command).method == given["method"]
    elif name == "plot":
        picture = PICTURES[given["name"]]
        assert picture.fewest_runs <= len(given["runs"]) <= picture.most_runs
    elif name == "reproduce":
        assert isinstance(PAPERS[given["paper"]].entry(given["entry"]), MEASURED)


def test_a_row_of_the_page_has_the_arguments_of_its_commands():
    tables = [table.values[0] for table in TABLES]
    page = "".join(document(list(PAPERS.values()), tables, RunSettings(Path("runs")), "untrimmed reproduce"))
    train, evaluate = re.findall(r"`(untrimmed (?:train|evaluate) [^`]*)`", page.partition("\n## ")[0])
    for commands in (commands for table in tables if table.has_figures for commands in commands_of(table)):
        rows = [line for line in page.splitlines() if line.startswith(f"| {commands.row.label} | ")]
        cells = [set(re.findall(r"`([^`]*)`", row)) for row in rows]
        arguments = {commands.train_arguments, commands.train_template}
        assert any(cell & arguments and {commands.evaluate_arguments or min(cell)} <= cell for cell in cells)
        assert commands.train == train.replace("TRAIN", commands.train_arguments)
        command = evaluate.replace(" --no-moments", "") if commands.column.events else evaluate
        assert commands.evaluate == command.replace("EVALUATE", commands.evaluate_arguments).rstrip()


def _no_costs(quantities, sizes):
    single = {"params_m", "flops_g", "attention_g"}
    return {quantity: (0.0,) * (1 if quantity in single else len(sizes)) for quantity in quantities}


def test_links_lead_to_headings_of_the_page():
    entries = [entry for entry in PAPERS["gmmformer_v2"].entries if isinstance(entry, SettingsTable)]
    page = "".join(document([PAPERS["gmmformer_v2"]], entries, RunSettings(Path("runs")), "made"))
    headings = re.findall(r"(?m)^##+ (.*)$", page)
    anchors = {re.sub(r"[^\w\s-]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert set(re.findall(r"\]\(#([^)]*)\)", page)) == {"gmmformer-v2-arxiv-240513824", "notes"} < anchors


def test_metrics_have_the_names_that_evaluate_prints():
    printed = {heading(column) for column in COLUMNS}
    tables = [parameter.values[0] for parameter in TABLES]
    metrics = {heading(m) for table in tables for c in table.columns if not c.events for m in c.metrics}
    assert {"MdR", "MnR", "SumR"} < metrics
    assert {name for name in metrics if "M/V" not in name} - {"MB a video"} <= printed
    (grid,) = printed_grids(PAPERS["ral"].entry("table5"))
    assert grid.header[-2:] == ("MdR", "MnR")


def test_tables_that_differ_only_by_their_data_share_a_section():
    page = "".join(document([PAPERS["jsg"]], PAPERS["jsg"].entries, RunSettings(Path("runs")), "made"))
    headings = re.findall(r"(?m)^### (.*)$", page)
    assert [heading.partition(":")[0] for heading in headings] == [
        *("jsg table1, table2", "jsg table3, table4", "jsg table5", "jsg table6", "jsg settings")
    ]
    assert re.search(r"\| JSG \| 13.27, [^|]* \| 7.23, [^|]* \| 10.95, ", page)
    assert re.search(r"\| JSG \| 2.4, [^|]* \| 6.8, [^|]* \| `jsg --data DATA` \|", page)


def test_notes_of_several_tables_are_printed_once(monkeypatch):
    monkeypatch.setattr(MethodCosts, "measure", lambda self, method, quantities, sizes: _no_costs(quantities, sizes))
    entries = [entry for paper in PAPERS.values() for entry in paper.entries]
    page = "".join(document(list(PAPERS.values()), entries, RunSettings(Path("runs")), "made"))
    tables = [entry for entry in entries if isinstance(entry, MEASURED) and getattr(entry, "has_figures", True)]
    notes = [note for table in tables for note in notes_of(table)]
    shared = [note for note in SHARED_NOTES if note in notes]
    assert sum(notes.count(note) > 1 for note in shared) >= 5
    assert [page.count(note) for note in shared] == [1] * len(shared)
    left_out = {left_out_note(entry) for entry in entries if getattr(entry, "left_out", "")}
    assert all(note in page for note in notes if note not in left_out)


def test_costs_of_all_papers_are_one_table_with_the_largest_corpora(monkeypatch):
    def costs(self, method, quantities, sizes):
        return {quantity: tuple(float(size) for size in sizes or [7]) for quantity in quantities}

    monkeypatch.setattr(MethodCosts, "measure", costs)
    papers = [PAPERS["gmmformer"], PAPERS["proto"]]
    entries = [entry for paper in papers for entry in paper.entries if isinstance(entry, EfficiencyTable)]
    page = "".join(document(papers, entries, RunSettings(Path("runs")), "made"))
    assert re.findall(r"(?m)^\| MS-SL .*$", page) == [
        "| MS-SL | 1.29 / 7.00 | 4.85 / 7.00 | - / 7.00 | 12.93 / 2500.00 | 250.11 / 2500.00 "
        "| 1.66 / 4000.00 | 2.02 / 4000.000 |"
    ]
    alone = "".join(document([PAPERS["proto"]], entries, RunSettings(Path("runs")), "made"))
    assert "| MS-SL | ms a query | 0.53 / 1000.00 | 0.91 / 2000.00 |" in alone


def test_a_run_of_a_paper_has_one_command_that_trains_it():
    for paper in PAPERS.values():
        shown = [line for entry in paper.entries if isinstance(entry, CommandEntry) for line in entry.commands]
        trained = {line for line in shown if line.startswith("untrimmed train ")}
        runs = [re.search(r"--out (\w+)", line)[1] for line in trained]
        assert len(set(runs)) == len(runs), paper.name


def test_a_figure_lists_and_draws_the_same_captions():
    for paper in PAPERS.values():
        for entry in paper.entries:
            commands = "" if isinstance(entry, NotCovered) else command_of(paper, entry)
            listed = [caption for ids in re.findall(r"--queries (\S+)", commands) for caption in ids.split(",")]
            assert listed == re.findall(r"--query (\S+)", commands), entry.title
    assert "--query ID --query ID2" in command_of(PAPERS["jsg"], PAPERS["jsg"].entry("figure3"))
