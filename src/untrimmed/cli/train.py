"""`untrimmed train`: train a method on a data set."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn

from untrimmed.cli.bars import ProgressBar
from untrimmed.cli.console import clock, print_json, progress_console, result_console
from untrimmed.cli.options import (
    CompileOption,
    DeviceOption,
    FeaturesOption,
    ImportOption,
    JsonOption,
    OverridesArgument,
    PrecisionOption,
    RootOption,
    SeedOption,
    data_option,
    output_option,
    settings_option,
)
from untrimmed.config import parse_overrides, require_sections
from untrimmed.errors import counted
from untrimmed.precision import read_precision

if TYPE_CHECKING:
    from untrimmed.running.run import Run
    from untrimmed.training.callbacks import TrainingProgress


OutOption = Annotated[
    Path | None, output_option("--out", metavar="RUN", help="Folder of the run.  \\[default: runs/METHOD-NAME]")
]
PresetOption = Annotated[
    str | None,
    settings_option(
        "--preset",
        metavar="NAME|FILE",
        help="Data set whose published settings are used, or a YAML file.  "
        "\\[default: that of --data; tvr for your own data]",
    ),
]

CallbackOption = Annotated[
    list[str] | None,
    output_option("--callback", metavar="NAME", help="Also report to tensorboard, wandb or your own MODULE:NAME."),
]


def train(
    method: Annotated[
        str, typer.Argument(metavar="METHOD", help="METHOD or METHOD+ATTACHMENT. See: untrimmed models.")
    ],
    data: Annotated[str, data_option("--data", metavar="NAME", help="Data set at DIR/NAME.")],
    root: RootOption,
    video_features: FeaturesOption = None,
    preset: PresetOption = None,
    seed: SeedOption = None,
    out: OutOption = None,
    callbacks: CallbackOption = None,
    json_output: JsonOption = False,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "float32",
    compile: CompileOption = False,
    overrides: OverridesArgument = None,
    imports: ImportOption = None,
) -> None:
    """Train a method with its published settings.

    After an interruption, run the same command again to continue.
    Several processes: torchrun --nproc-per-node 4 -m untrimmed train METHOD ...
    """
    from untrimmed.presets import keys_by_section
    from untrimmed.training.train import train as run_training

    values = parse_overrides(overrides or [])
    # a key without a section would become an argument of `run_training`
    require_sections(values, lambda: keys_by_section(method))
    with _TrainDisplay() as display:
        run = run_training(
            method,
            data=data,
            root=root,
            out=out,
            device=device,
            precision=read_precision(precision),
            compile=compile,
            seed=seed,
            preset=preset,
            video_features=video_features,
            callback=[display, *(callbacks or ())],
            packing=display.packing,
            **values,
        )
    if json_output and not display.muted:
        print_json({"run": str(run.folder), "epochs": len(run.history), "best": run.best})
    elif not display.muted:
        _print_best(run)


def _print_best(run: Run) -> None:
    from untrimmed.presets.published import RECALL

    best = run.best
    names = dict.fromkeys((*RECALL, run.config.train.selects_by))
    figures = "  ".join(f"{name} {best['val'][name]:.1f}" for name in names)
    epochs = "untrained"
    if run.config.train.epochs:
        epochs = f"best of {counted(len(run.history), 'epoch')}: epoch {best['epoch']}"
    result_console.print(f"{epochs}, validation {figures}")
    result_console.print(f"run     {run.folder}")
    result_console.print(f"next    untrimmed evaluate {run.folder}")


class _TrainDisplay(ProgressBar):
    """Shows the progress of training: as a bar on a terminal, otherwise as a line per epoch.

    If several processes train together, only the first one prints.
    """

    def __init__(self) -> None:
        self.muted = _is_further_process()
        super().__init__(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[figures]}", markup=False),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            muted=self.muted,
            description="starting",
            total=None,
            figures="",
            left="",
        )

    def packing(self, done: int, total: int) -> None:
        """Show how many videos have prepared features."""
        self.show(description="preparing features", completed=done, total=total)

    def __call__(self, step: TrainingProgress) -> None:
        """Show one step of training."""
        done = (step.epoch - 1) * step.num_steps + step.step
        where = "untrained"
        figures = ""
        if step.num_epochs:
            where = f"epoch {step.epoch}/{step.num_epochs}"
            figures = f"loss {step.loss:.3f} ({', '.join(f'{name} {value:.3g}' for name, value in step.terms.items())})"
        if step.sum_r is not None:
            figures += f"  {step.selects_by} {step.sum_r:.1f}"
        if step.best_epoch is not None:
            figures += f", best {step.best_sum_r:.1f} in epoch {step.best_epoch}"
        self.show(
            description=f"{where} {step.stage}",
            completed=done,
            total=step.num_epochs * step.num_steps,
            figures=figures,
            left=f"at most {clock(step.left_s)} left" if step.left_s else "",
        )
        if step.stage == "validated" and not self.muted and not progress_console.is_terminal:
            progress_console.print(f"{where}  {figures.lstrip()}")


def _is_further_process() -> bool:
    """Whether torchrun started several processes and this process is not the first."""
    return os.environ.get("RANK", "0") != "0"
