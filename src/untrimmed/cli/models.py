"""`untrimmed models` and `untrimmed import-checkpoint`: list methods, and convert authors' weights to ours."""

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.table import Table

from untrimmed.cli.console import print_json, result_console
from untrimmed.cli.options import ImportOption, JsonOption
from untrimmed.errors import ConfigError, named

if TYPE_CHECKING:
    from untrimmed.running.released import ImportedModel


def models(json_output: JsonOption = False, imports: ImportOption = None) -> None:
    """List methods, attachments and published settings."""
    from untrimmed.models.listing import list_all
    from untrimmed.presets import list_presets, load_preset

    listing = list_all(with_plugins=bool(imports))
    methods: dict[str, dict[str, Any]] = {
        name: {
            "paper": paper,
            "presets": {data: load_preset(name, data).reported for method, data in list_presets() if method == name},
        }
        for name, paper in listing.methods.items()
    }
    attachments: dict[str, dict[str, Any]] = {
        name: {"paper": paper, "attaches_to": listing.methods_of(name)} for name, paper in listing.attachments.items()
    }
    combined: dict[str, dict[str, Any]] = {}
    for name, data in list_presets():
        if "+" in name:
            combined.setdefault(name, {})[data] = load_preset(name, data).reported
    if json_output:
        document = {
            "methods": methods,
            "attachments": attachments,
            "combinations": combined,
            "training_free": {name: {"paper": paper} for name, paper in listing.training_free.items()},
            "compositions": listing.compositions,
            "refused": listing.refused,
        }
        print_json(document)
        return
    table = Table("method", "paper", title="methods", title_justify="left", box=box.SIMPLE)
    table.add_column("presets (published SumR)")
    for name, about in methods.items():
        table.add_row(name, about["paper"], _presets(about["presets"]))
    result_console.print(table)
    table = Table("attachment", "paper", "attaches to", title="attachments", title_justify="left", box=box.SIMPLE)
    for name, about in attachments.items():
        table.add_row(name, about["paper"], "\n".join(about["attaches_to"]))
    result_console.print(table)
    table = Table("combination", title="combinations with presets", title_justify="left", box=box.SIMPLE)
    table.add_column("presets (published SumR)")
    for name, presets in combined.items():
        table.add_row(name, _presets(presets))
    result_console.print(table)
    result_console.print("attach any number: untrimmed train METHOD+ATTACHMENT+... --data NAME --root DIR")
    table = Table("model", "paper", title="training-free", title_justify="left", box=box.SIMPLE)
    for name, paper in listing.training_free.items():
        table.add_row(name, paper)
    result_console.print(table)
    result_console.print("no training: untrimmed evaluate NAME --data NAME --root DIR, or untrimmed index --model NAME")


def _presets(by_data: dict[str, dict[str, float]]) -> str:
    """Return one line per data set that has a preset, with the SumR that the authors report."""
    sums = {data: f"({reported['SumR']:g})" if "SumR" in reported else "" for data, reported in by_data.items()}
    return "\n".join(f"{data} {sum_r}" for data, sum_r in sums.items())


def import_checkpoint(
    method: Annotated[str, typer.Argument(metavar="METHOD", help="Method of the checkpoint. See: untrimmed models.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The released checkpoint.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder to write.")],
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            metavar="NAME",
            help="Data set of the checkpoint's training.  "
            "\\[default: the one named in the checkpoint, or one with features of equal width]",
            show_default=False,
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Settings to use instead of the file's and the preset's."),
    ] = None,
    json_output: JsonOption = False,
    imports: ImportOption = None,
) -> None:
    """Convert a paper's released checkpoint. Code in it is not executed.

    Settings and sizes in the file replace those of the preset. The command
    prints each difference, and the validation results in the file.
    """
    from untrimmed.config import parse_overrides
    from untrimmed.models.storage import save_model
    from untrimmed.running.released import import_released_file
    from untrimmed.running.run import is_model, is_run

    if is_model(out) or is_run(out):
        raise ConfigError(f"{out}: holds a model already; choose another --out, or remove it first")
    imported = import_released_file(method, file, data=data, overrides=parse_overrides(overrides or []))
    save_model(imported.model, out)
    count = sum(parameter.numel() for parameter in imported.model.parameters())
    next_command = f"untrimmed evaluate {shlex.quote(str(out))} --data {imported.dataset} --root DIR"
    next_command += " --split val" if imported.validation else ""
    if json_output:
        document = {
            "method": method,
            "data": imported.dataset,
            "parameters": count,
            "folder": out,
            "has_settings": imported.has_settings,
            "differences": [asdict(difference) for difference in imported.differences],
            "unknown": imported.unknown,
            "validation": imported.validation,
            "epoch": imported.epoch,
            "next": next_command,
        }
        print_json(document)
        return
    result_console.print(f"{method}, {count:,} parameters, settings of {imported.dataset}: written to {out}")
    _print_import(imported)
    result_console.print(f"next        {next_command}")


def _print_import(imported: "ImportedModel") -> None:
    """Print differences from the preset, settings without an equivalent in our code, and validation results."""
    if imported.differences:
        title = f"settings that differ from the preset of {imported.dataset}"
        table = Table("setting", "preset", "in the file", "used", title=title, title_justify="left", box=box.SIMPLE)
        for difference in imported.differences:
            used = "no, training only" if difference.used is None else _shown(difference.used)
            stored = f"{_shown(difference.checkpoint)} ({difference.key})" if difference.key else ""
            table.add_row(difference.setting, _shown(difference.preset), stored, used)
        result_console.print(table)
    elif imported.has_settings:
        result_console.print(f"settings    no difference from the preset of {imported.dataset}")
    if not imported.has_settings:
        result_console.print(
            f"settings    the file has none; those of {imported.dataset} are used, with the sizes of the file. Scores "
            "depend on branch weights and temperatures: compare these with the authors' code"
        )
    if imported.unknown:
        listed = named((f"{key}={value}" for key, value in imported.unknown.items()), limit=30)
        result_console.print(f"not read    {listed}")
    if imported.validation:
        recalls = "  ".join(f"{metric} {value:.1f}" for metric, value in imported.validation.items())
        epoch = "" if imported.epoch is None else f" (epoch {imported.epoch})"
        result_console.print(f"validation  {recalls}{epoch}, as stored in the file: compare with the next command")


def _shown(value: Any) -> str:
    return ", ".join(map(_shown, value)) if isinstance(value, list | tuple) else str(value)
