"""`untrimmed compare`: print finished runs as tables."""

from glob import glob
from pathlib import Path
from typing import Annotated

import typer

from untrimmed.cli.console import print_json, progress_console
from untrimmed.cli.options import (
    DeviceOption,
    ImportOption,
    MovedRootOption,
    PrecisionOption,
    SplitOption,
    output_option,
    parse_path,
)
from untrimmed.errors import ConfigError
from untrimmed.precision import read_precision

FORMATS = ("markdown", "latex", "csv", "json")


def compare(
    runs: Annotated[list[Path], typer.Argument(parser=parse_path, metavar="RUN", help="Folders of finished runs.")],
    split: SplitOption = "test",
    root: MovedRootOption = None,
    output: Annotated[
        str, output_option("--format", metavar="FORMAT", help="markdown, latex (booktabs), csv or json.")
    ] = "markdown",
    device: DeviceOption = "auto",
    precision: PrecisionOption = "float32",
    imports: ImportOption = None,
) -> None:
    """Compare finished runs in a table, the best first, with p-values.

    Runs that differ only in their seed share a row, which shows their mean and
    standard deviation. There is one table per data set.
    RUN can be a pattern such as study/tvr/*-3000-*. If it also matches files,
    the files are ignored. Settings that differ from the preset are listed
    after the method's name; for runs of a study, these are the settings in
    the names of the runs.
    """
    from untrimmed.evaluation.report import Report
    from untrimmed.running.evaluate import evaluate
    from untrimmed.running.run import Run, open_run
    from untrimmed.study.joint_table import joint_csv, joint_entries, joint_latex, joint_markdown, joint_rows

    if output not in FORMATS:
        raise ConfigError(f"--format is {output!r}, expected one of {', '.join(FORMATS)}")
    # shells do not expand patterns in quotes, and the name of a folder may contain brackets
    paths = [Path(path) for run in runs for path in (not run.exists() and sorted(glob(str(run)))) or [str(run)]]
    folders = [path for path in dict.fromkeys(paths) if not path.is_file()]
    if not folders:
        raise ConfigError(f"{runs[0]}: is a file; name the folders of finished runs")
    opened = [open_run(folder) for folder in folders]
    for run in opened:
        if not run.is_finished:
            raise ConfigError(f"{run.folder}: is not finished; continue its training, or leave it out")
    number_format = read_precision(precision)

    def report_of(run: Run) -> Report:
        status.update(f"scoring {run.folder}")
        return evaluate(run, split=split, root=root, device=device, precision=number_format, moments=False)

    with progress_console.status("scoring") as status:
        rows = joint_rows(opened, report_of)
    if output == "json":
        print_json(joint_entries(rows))
        return
    text = {"markdown": joint_markdown, "latex": joint_latex, "csv": joint_csv}[output](rows)
    typer.echo(text, nl=False)
