"""`untrimmed study`: compare methods and attachments with paired tests."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from untrimmed.cli.console import print_json, progress_console, result_console
from untrimmed.cli.options import (
    DeviceOption,
    ImportOption,
    JsonOption,
    PrecisionOption,
    RootOption,
    data_option,
    output_option,
    runtime_option,
)
from untrimmed.errors import ConfigError
from untrimmed.precision import read_precision

if TYPE_CHECKING:
    from untrimmed.study.setup import StudySetup
    from untrimmed.study.study import StudyPlan, StudyResults

_comparison_option = partial(typer.Option, rich_help_panel="What to compare")
_training_option = partial(typer.Option, rich_help_panel="Training")
MethodsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="METHOD",
        help="Methods to compare. Attachments and settings can follow, e.g. gmmformer_v2+ral,model.dropout=0.1",
    ),
]
DataOption = Annotated[list[str], data_option("--data", metavar="NAME", help="Data set at DIR/NAME (repeatable).")]
OutOption = Annotated[Path, data_option("--out", metavar="DIR", help="Folder for runs; finished runs are reused.")]
AttachOption = Annotated[
    str,
    _comparison_option(
        metavar="NAME,...",
        help="Additional losses and parts to try. They are added to a method one after another.  \\[default: none]",
        show_default=False,
    ),
]
GrowOption = Annotated[int, _comparison_option(metavar="N", help="Try attachments on the N best methods.")]
MostOption = Annotated[
    int | None,
    _comparison_option(
        metavar="N", min=1, help="Maximum number of attachments per method.  \\[default: no limit]", show_default=False
    ),
]
FinalistsOption = Annotated[
    int, _comparison_option(metavar="N", help="Fully train the N best combinations (the finalists).")
]
RatesOption = Annotated[str, _training_option(metavar="X,...", help="Learning rates to try.")]
GridOption = Annotated[
    list[str] | None,
    _training_option(
        "--grid",
        metavar="KEY[+KEY...]=V,...",
        help="Values to try with each rate, e.g. model.dropout=0.1,0.2 (repeatable). Keys joined by + share values.",
    ),
]
PresetOption = Annotated[
    list[Path] | None,
    _training_option(
        "--preset", metavar="FILE.yaml", help="File that contains a method and its settings (repeatable)."
    ),
]
SearchStepsOption = Annotated[
    int, _training_option(metavar="N", help="Training steps used to choose learning rates and attachments.")
]
StepsOption = Annotated[int, _training_option(metavar="N", help="Training steps per finalist.")]
SeedsOption = Annotated[
    int,
    _training_option(metavar="N", help="Seeds per finalist. You can add seeds later; finished runs are reused."),
]
DimOption = Annotated[int, _training_option(metavar="N", help="Width of all models.")]
FramesOption = Annotated[int, _training_option(metavar="N", help="Maximum number of frames per video.")]
BatchOption = Annotated[int, _training_option(metavar="N", help="Videos per step, each with all its captions.")]
JobsOption = Annotated[
    int,
    runtime_option(
        metavar="N",
        min=0,
        help="Number of runs to train in parallel. With 0, nothing is trained and only existing runs are used.",
    ),
]
PageOption = Annotated[
    Path | None,
    output_option(
        metavar="FILE.md", help="Write results to this file, and a figure to figures/ beside it.", show_default=False
    ),
]
DryRunOption = Annotated[bool, output_option("--dry-run", help="Only list what would be trained.")]


def study(
    methods: MethodsArgument,
    data: DataOption,
    root: RootOption,
    out: OutOption,
    attach: AttachOption = "",
    grow: GrowOption = 1,
    most: MostOption = None,
    finalists: FinalistsOption = 5,
    rates: RatesOption = "1e-3,3e-4,1e-4",
    grid: GridOption = None,
    preset: PresetOption = None,
    search_steps: SearchStepsOption = 750,
    steps: StepsOption = 3000,
    seeds: SeedsOption = 5,
    dim: DimOption = 128,
    frames: FramesOption = 32,
    batch: BatchOption = 16,
    jobs: JobsOption = 1,
    page: PageOption = None,
    as_json: JsonOption = False,
    dry_run: DryRunOption = False,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "float32",
    imports: ImportOption = None,
) -> None:
    """Train methods with attachments, and compare them with paired tests.

    All methods get the same data, sizes and number of steps.
    Run the same command again to continue; finished runs are reused.
    Several commands can share one --out: each run is trained only once.
    The results are in small files beside the runs, so you can delete the runs.
    """
    from untrimmed.study.setup import Candidate, StudySetup
    from untrimmed.study.study import StudyPlan, outlook

    if page is not None and page.suffix.lower() != ".md":
        raise ConfigError(f"--page {page}: the page is Markdown; name a file that ends in .md")
    plan = StudyPlan(
        methods=tuple(Candidate.of(text) for text in methods),
        attachments=tuple(filter(None, attach.split(","))),
        rates=_rates(rates),
        grid=tuple(grid or ()),
        search_steps=search_steps,
        steps=steps,
        seeds=seeds,
        grow=grow,
        max_attachments=most,
        finalists=finalists,
    )
    number_format = read_precision(precision)
    setups = [
        StudySetup(
            data=name,
            root=root,
            out=out,
            dim=dim,
            frames=frames,
            batch=batch,
            precision=number_format,
            device=device,
            presets=tuple(preset or ()),
        )
        for name in dict.fromkeys(data)
    ]
    for setup in setups:
        lines = outlook(setup, plan)
        (result_console if dry_run else progress_console).print("\n".join(lines))
    if not dry_run:
        _run(plan, setups, jobs, page, imports or [], as_json)


def _run(
    plan: StudyPlan, setups: list[StudySetup], jobs: int, page: Path | None, imports: list[str], as_json: bool
) -> None:
    from untrimmed.study.orders import across_worlds
    from untrimmed.study.page import document
    from untrimmed.study.study import Trainer
    from untrimmed.study.study import study as run_study

    trainer = Trainer(progress_console.print, jobs)
    results_by_data: dict[str, StudyResults] = {}
    for setup in setups:
        for results in run_study(setup, plan, trainer):
            results_by_data[setup.data] = results
            if page is not None:
                _write(page, list(results_by_data.values()), _command(plan, setups, page, imports))
        if not as_json:
            _print(results_by_data[setup.data])
    all_results = list(results_by_data.values())
    if as_json:
        print_json([document(results) for results in all_results])
    else:
        result_console.print("\n".join(across_worlds(all_results)))


def _rates(text: str) -> tuple[float, ...]:
    try:
        return tuple(dict.fromkeys(float(rate) for rate in text.split(",")))
    except ValueError:
        raise ConfigError(f"--rates {text}: expected numbers separated by commas, e.g. 1e-3,3e-4") from None


def _command(plan: StudyPlan, setups: list[StudySetup], page: Path, imports: list[str]) -> str:
    """Return the command that writes the page again. It includes only options that differ from their defaults."""
    from untrimmed.study.study import StudyPlan

    setup = setups[0]
    defaults = StudyPlan(methods=plan.methods)
    words = ["untrimmed study", *map(str, plan.methods)]
    words += [f"--import {shlex.quote(module)}" for module in imports]
    words += [f"--preset {shlex.quote(str(path))}" for path in setup.presets]
    words += [f"--data {setup.data}" for setup in setups] + ["--root DIR --out DIR"]
    words += [f"--attach {','.join(plan.attachments)}"] if plan.attachments else []
    options = {"grow": "grow", "most": "max_attachments", "finalists": "finalists", "search-steps": "search_steps"}
    options |= {"steps": "steps", "seeds": "seeds"}
    words += [
        f"--{name} {getattr(plan, key)}"
        for name, key in options.items()
        if getattr(plan, key) != getattr(defaults, key)
    ]
    words += [] if plan.rates == defaults.rates else [f"--rates {','.join(f'{rate:g}' for rate in plan.rates)}"]
    words += [f"--grid {shlex.quote(entry)}" for entry in plan.grid]
    sizes = {"dim": 128, "frames": 32, "batch": 16, "precision": "float32"}
    words += [f"--{name} {getattr(setup, name)}" for name, value in sizes.items() if getattr(setup, name) != value]
    return " ".join([*words, f"--page {shlex.quote(page.name)}"])


def _write(page: Path, results: list[StudyResults], command: str) -> None:
    """Write the page, and its picture to the folder `figures` beside the page."""
    from untrimmed.files import write_whole
    from untrimmed.plots.combinations import CombinationResult, Combinations, draw_combinations
    from untrimmed.plots.style import save
    from untrimmed.study.page import page as text_of

    picture = page.parent / "figures" / f"{page.stem}.png"
    picture.parent.mkdir(parents=True, exist_ok=True)
    panels = []
    for study_results in results:
        growths = study_results.growths
        accepted = {candidate for growth in growths if len(growth.results) > 1 for candidate in growth.accepted}
        searched = [result for growth in growths for result in growth.results]
        bars = tuple(
            CombinationResult(str(entry.candidate), entry.sum_r, entry.candidate in accepted) for entry in searched
        )
        panels.append(Combinations(study_results.setup.data, bars))
    save(draw_combinations(panels), picture)
    write_whole(page, text_of(results, command, f"figures/{picture.name}"))


def _print(results: StudyResults) -> None:
    from untrimmed.reproduction.render import markdown
    from untrimmed.study.orders import notes
    from untrimmed.study.page import table

    result_console.print("\n".join([markdown(table(results), heading=""), *notes(results)]))
