"""Read a study's results from the small files beside its runs, without the data set or the runs."""

import json
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from untrimmed.errors import ConfigError
from untrimmed.study.costs import read_costs
from untrimmed.study.setup import BESIDE_RUNS, COSTS, FACTS, SIZES, UNTRAINED, Candidate, Point, StudySetup, read_sizes
from untrimmed.study.study import SEARCH_SEED, StudyPlan, StudyResults

# name of a run, as `StudySetup.trial` builds it
_NAME = re.compile(r"([^@]+?)(?:@(.+?))?-(\d[\d.]*(?:e-\d+)?)-(\d+)-(\d+)")


@dataclass(frozen=True)
class StoredRun:
    """The result file of one run. `ranks` has one rank per test caption; it is empty for runs of the search."""

    candidate: Candidate
    point: Point
    steps: int
    seed: int
    sum_r: float | None  # SumR on validation videos; None if it was not computed
    ranks: tuple[int, ...]
    path: Path


def parse_name(name: str) -> tuple[Candidate, Point, int, int]:
    """Return the candidate, point, steps and seed in the name of a run; raises ValueError for another name."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise ValueError("its name is not CANDIDATE[@SETTINGS]-RATE-STEPS-SEED")
    candidate, chosen, rate, steps, seed = match.groups()
    point = Point(float(rate), tuple(chosen.split(",")) if chosen else ())
    return Candidate.of(candidate), point, int(steps), int(seed)


def stored_runs(folder: Path) -> list[StoredRun]:
    """Return the results of all runs in OUT/DATA; raises ConfigError for a file that cannot be read as results."""
    runs = []
    for path in sorted(folder.glob("*.json")):
        if path.name in BESIDE_RUNS:
            continue
        try:
            figures = dict(json.loads(path.read_text(encoding="utf-8")))
            candidate, point, steps, seed = parse_name(path.stem)
            ranks = tuple(figures.get("test", ()))
            sum_r = figures.get("val")
            run = StoredRun(candidate, point, steps, seed, sum_r, ranks, path)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"{path}: cannot be read as results of a run ({error!r}); remove it") from None
        runs.append(run)
    return runs


def has_results(folder: Path) -> bool:
    """Whether OUT/DATA has results on test videos."""
    return any(run.ranks for run in stored_runs(folder))


def stored_results(folder: Path) -> StudyResults:
    """Return the results in OUT/DATA.

    Among the runs with results on test videos, only those with the largest number of training steps are used.
    Candidates without such a run are left out. If a candidate has runs with several settings, the runs of the settings
    with the most seeds are used.

    Raises: ConfigError if the folder has no such runs, or if a file of the study is missing or damaged.
    """
    for name in (SIZES, FACTS, UNTRAINED):
        if not (folder / name).is_file():
            raise ConfigError(f"{folder}: no {name}, expected a folder OUT/DATA of `untrimmed study`; run it again")
    runs = stored_runs(folder)
    tested = [run for run in runs if run.ranks]
    if not tested:
        raise ConfigError(f"{folder}: no results on test videos; train with `untrimmed study --out {folder.parent}`")
    steps = max(run.steps for run in tested)
    alike: dict[Candidate, dict[Point, list[StoredRun]]] = defaultdict(lambda: defaultdict(list))
    for run in tested:
        if run.steps == steps:
            alike[run.candidate][run.point].append(run)
    finals = {
        candidate: max(of.values(), key=lambda runs: (len(runs), runs[0].sum_r or 0.0))
        for candidate, of in alike.items()
    }
    sizes, _ = read_sizes(folder / SIZES)
    setup = StudySetup(data=folder.name, root=Path(), out=folder.parent, **sizes)
    return StudyResults(
        setup=setup,
        plan=StudyPlan(
            methods=tuple(finals),
            rates=tuple(sorted({run.point.rate for runs in finals.values() for run in runs}, reverse=True)),
            search_steps=min(run.steps for run in runs),
            steps=steps,
            seeds=max(map(len, finals.values())),
        ),
        points={candidate: runs[0].point for candidate, runs in finals.items()},
        searched=_searched(runs),
        growths=(),
        finalists=tuple(finals),
        untrained=setup.untrained(),
        costs={Candidate.of(name): entry for name, entry in read_costs(folder / COSTS).items()},
        reports={
            candidate: tuple(setup.report_of(str(candidate), run.ranks, run.path) for run in runs)
            for candidate, runs in finals.items()
        },
    )


def _searched(runs: Sequence[StoredRun]) -> dict[Candidate, dict[Point, float]]:
    """Return {method: {choice: SumR on validation videos}} of the runs with the fewest steps, as in `StudyResults`."""
    steps = min(run.steps for run in runs)
    searched: dict[Candidate, dict[Point, float]] = defaultdict(dict)
    for run in runs:
        if run.steps == steps and run.seed == SEARCH_SEED and run.sum_r is not None:
            searched[run.candidate][run.point] = run.sum_r
    return {candidate: sum_r if len(sum_r) > 1 else {} for candidate, sum_r in searched.items()}
