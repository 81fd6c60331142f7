"""Run a study: search learning rates, add attachments greedily, then train the best candidates with several seeds."""

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from threading import Thread

import torch

from untrimmed.errors import ConfigError, counted
from untrimmed.evaluation.report import Report
from untrimmed.models.naming import ModelName
from untrimmed.models.registry import attachment_class, model_class
from untrimmed.plugins import PluginModule, import_again, imported
from untrimmed.presets import attachment_terms
from untrimmed.running.training_free import require_learner
from untrimmed.study.costs import CandidateCosts, stored_costs
from untrimmed.study.greedy import CandidateResult, Growth, grow
from untrimmed.study.setup import COSTS, Candidate, Point, StudySetup, points_of, reached, require_files, require_terms
from untrimmed.training.trials import Trial

SEARCH_SEED = 0


@dataclass(frozen=True, kw_only=True)
class StudyPlan:
    """The training runs on each data set.

    1. The search trains each method for `search_steps` steps with every combination of a learning rate from `rates` and
       values from `grid` (entries `KEY=VALUE,VALUE,...`). All later runs use the combination with the best SumR.
    2. The best `grow` methods are extended with `attachments`, at most `max_attachments` each.
    3. The best `finalists` candidates, and the methods that these candidates extend, are trained for `steps` steps with
       `seeds` different seeds. Without attachments, all methods are finalists.
    """

    methods: tuple[Candidate, ...]
    attachments: tuple[str, ...] = ()
    rates: tuple[float, ...] = (1e-3, 3e-4, 1e-4)
    grid: tuple[str, ...] = ()
    search_steps: int = 750
    steps: int = 3000
    seeds: int = 5
    grow: int = 1
    max_attachments: int | None = None
    finalists: int = 5

    def __post_init__(self) -> None:
        for name in ("search_steps", "steps", "seeds", "grow", "finalists"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}, expected at least 1")
        if not self.methods or not self.rates:
            raise ConfigError("a study needs at least one method and one learning rate; add them")
        points_of(self.rates, self.grid)
        for what, names in (("method", self.methods), ("attachment", self.attachments)):
            if repeated := [name for name in names if names.count(name) > 1]:
                raise ConfigError(f"{what} '{repeated[0]}' is named twice; name it once")

    @property
    def points(self) -> tuple[Point, ...]:
        """The learning rates and settings that the search tries for each method."""
        return points_of(self.rates, self.grid)


@dataclass(frozen=True, kw_only=True)
class StudyResults:
    """The current results on one data set.

    `searched` contains the SumR on validation videos of each choice that is trained; a method with a single choice has
    none. `reports` contains, for each candidate, one report on test videos per finished seed.
    """

    setup: StudySetup
    plan: StudyPlan
    points: Mapping[Candidate, Point]  # {method: best learning rate and settings}
    growths: tuple[Growth, ...]
    finalists: tuple[Candidate, ...]
    untrained: Mapping[str, Mapping[str, float]]
    searched: Mapping[Candidate, Mapping[Point, float]] = field(default_factory=dict)
    costs: Mapping[Candidate, CandidateCosts] = field(default_factory=dict)
    reports: Mapping[Candidate, tuple[Report, ...]] = field(default_factory=dict)

    @property
    def untried(self) -> Mapping[Candidate, tuple[Point, ...]]:
        """{method: learning rates and settings that were not trained yet}."""
        return {
            method: tuple(
                point for point in self.plan.points if not _knows(trial_of(self.setup, self.plan, method, point), "val")
            )
            for method in self.points
        }

    def base_of(self, candidate: Candidate) -> Candidate:
        """Return the method that a candidate extends. The candidate uses the best learning rate of this method.

        If the search found the candidate from several methods, return the method that gave the best SumR. If the search
        did not find the candidate, return the candidate.
        """
        return next((result.base for result in self.ranking if result.candidate == candidate), candidate)

    def compared_with(self, candidate: Candidate) -> Candidate:
        """Return the candidate to compare with: the method that a candidate extends.

        If the search did not find the candidate, return its method without attachments and without their settings. If
        that method has no results, return the candidate itself.
        """
        base = self.base_of(candidate)
        attached = candidate.name.attachments
        owned = {*attached, *chain.from_iterable(map(attachment_terms, attached))}
        settings = tuple(text for text in candidate.settings if text.partition("=")[0].split(".")[1] not in owned)
        bare = Candidate(ModelName(candidate.name.method), settings)
        return bare if base == candidate and bare in self.reports else base

    @property
    def ranking(self) -> list[CandidateResult]:
        """The candidates of the search with their best SumR, best first. No candidate is repeated."""
        best: dict[Candidate, CandidateResult] = {}
        results = (result for growth in self.growths for result in growth.results)
        for result in sorted(results, key=lambda result: -result.sum_r):
            best.setdefault(result.candidate, result)
        return list(best.values())


@dataclass(frozen=True)
class Trainer:
    """Trains up to `jobs` trials at a time and prints a line for each finished trial.

    With 0 jobs, nothing is trained.
    """

    print_line: Callable[[str], None] = lambda line: None
    jobs: int = 1

    def reached(self, trials: Sequence[Trial]) -> list[float | None]:
        """Return the SumR of each trial on validation videos, or None for a trial that is not trained."""
        are_known = self.known(trials, "val")
        return [reached(trial) if is_known else None for trial, is_known in zip(trials, are_known, strict=True)]

    def known(self, trials: Sequence[Trial], figure: str) -> list[bool]:
        """Return whether each trial has the result `figure`. Trials without it are trained first, if `jobs` > 0."""
        untrained = [trial for trial in trials if not _knows(trial, figure)]
        if not self.jobs:
            return [trial not in untrained for trial in trials]
        if self.jobs == 1 or len(untrained) < 2:
            for trial in untrained:
                self._report(trial, *_timed(trial))
        else:
            with workers(self.jobs) as pool:
                for trial, result in zip(untrained, pool.map(_timed, untrained), strict=True):
                    self._report(trial, *result)
        return [True for _ in trials]

    def _report(self, trial: Trial, sum_r: float, seconds: float) -> None:
        self.print_line(f"{trial.data}: {trial.folder.name}: {sum_r:.1f} on validation videos, {seconds:.0f} s")


def workers(jobs: int) -> ProcessPoolExecutor:
    """Return a pool of processes that share the processor cores.

    The processes exit when this process exits or is killed.
    """
    spawn = multiprocessing.get_context("spawn")  # a fork of a process with threads can hang
    threads = max(1, (os.cpu_count() or 1) // jobs)
    return ProcessPoolExecutor(jobs, mp_context=spawn, initializer=_begin_work, initargs=(threads, imported()))


def _begin_work(threads: int, plugins: Sequence[PluginModule]) -> None:
    torch.set_num_threads(threads)
    for plugin in plugins:
        import_again(plugin)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)  # exit even during a step; the next study resumes from the saved state


def _timed(trial: Trial) -> tuple[float, float]:
    """Train a trial, and return its SumR on validation videos and the duration of the training in seconds."""
    start_s = time.perf_counter()
    trial.train()
    return reached(trial), time.perf_counter() - start_s


def study(setup: StudySetup, plan: StudyPlan, trainer: Trainer) -> Iterator[StudyResults]:
    """Yield the results on one data set after the search, and again after each seed of the finalists.

    Raises: the errors of `outlook` and of training.
    """
    outlook(setup, plan)
    setup.require_own()
    searched = {method: _searched(setup, plan, method, trainer) for method in plan.methods}
    points = {method: max(sum_r, key=sum_r.__getitem__, default=plan.points[0]) for method, sum_r in searched.items()}

    def reach(base: Candidate, candidates: Sequence[Candidate]) -> list[float | None]:
        return trainer.reached([trial_of(setup, plan, candidate, points[base]) for candidate in candidates])

    def refusal(base: Candidate, candidate: Candidate) -> str:
        return trial_of(setup, plan, candidate, points[base]).refusal()

    sum_r = {method: reach(method, [method])[0] or 0.0 for method in plan.methods}
    growths = []
    for rank, method in enumerate(sorted(sum_r, key=lambda method: -sum_r[method])):
        attachments = plan.attachments if rank < plan.grow else ()
        growths.append(
            grow(method, attachments, partial(refusal, method), partial(reach, method), plan.max_attachments)
        )
    results = StudyResults(
        setup=setup,
        plan=plan,
        points=points,
        searched=searched,
        growths=tuple(growths),
        finalists=(),
        untrained=setup.untrained(),
    )
    results = replace(results, finalists=_finalists(results))
    yield results
    yield from _finals(results, trainer)


def outlook(setup: StudySetup, plan: StudyPlan) -> list[str]:
    """Return lines of text that describe what the study will train. Nothing is trained or written.

    Raises: UnknownNameError for an unknown method or attachment, ConfigError for an impossible method or a folder with
        runs of other sizes or data, FeatureError if files of a teacher or of subtitles are missing.
    """
    for attachment in plan.attachments:
        attachment_class(attachment)
    for method in plan.methods:
        require_learner(method.name.method)
        model_class(method.name)
        for point in plan.points:
            if reason := _refusal(setup, plan, method, point):
                row = "" if str(method) in reason else f"{method}: "
                raise ConfigError(f"{row}{reason}{_grid_advice(setup, plan, method, point)}")
    setup.require_same()
    searched = [trial_of(setup, plan, method, point) for method in plan.methods for point in plan.points]
    finished = sum(_knows(trial, "val") for trial in searched)
    trainings = f"{counted(len(searched), 'training')} of {counted(plan.search_steps, 'step')}"
    purpose = " for the rates" if len(plan.rates) > 1 else ""  # a single rate needs no search
    purpose = " for rates and settings" if plan.grid else purpose
    lines = [f"{setup.data}: {trainings}{purpose}, {finished} finished"]
    for method in plan.methods if plan.attachments else ():
        added = {name: trial_of(setup, plan, method.carrying(name), plan.points[0]) for name in plan.attachments}
        reasons = {name: trial.refusal() for name, trial in added.items()}
        fitting = [name for name, reason in reasons.items() if not reason]
        lines.append(f"{method}, if it is among the best {plan.grow}: + {', + '.join(fitting) or 'nothing'}; and so on")
        lines += [f"  refused: {reason}" for reason in reasons.values() if reason]
    count = f"{plan.finalists} and their methods" if plan.attachments else f"{len(plan.methods)}"
    return [*lines, f"finalists: {count}; {counted(plan.steps, 'step')} and {counted(plan.seeds, 'seed')} each"]


def _refusal(setup: StudySetup, plan: StudyPlan, method: Candidate, point: Point) -> str:
    """Return the reason why the search cannot train a method with the settings of `point`, or "" if it can.

    Raises: FeatureError if files of a teacher or of subtitles are missing.
    """
    try:
        trial = trial_of(setup, plan, method, point)
        if reason := trial.refusal():
            return reason
        require_files(trial)
        require_terms(trial)
    except ConfigError as error:
        return str(error)
    return ""


def _grid_advice(setup: StudySetup, plan: StudyPlan, method: Candidate, point: Point) -> str:
    """Return a text for a method that cannot have the grid's settings, if another method can have them."""
    if not point.settings or _refusal(setup, plan, method, Point(point.rate)):
        return ""
    for other in plan.methods:
        if not _refusal(setup, plan, other, point):
            added = f"{other},{point.settings[0]}"
            return f"; --grid applies to all methods; remove it and add the method {added}, or run two studies"
    return ""


def trial_of(setup: StudySetup, plan: StudyPlan, candidate: Candidate, point: Point) -> Trial:
    """Return a trial of the search."""
    return setup.trial(candidate, point=point, steps=plan.search_steps, seed=SEARCH_SEED)


def _knows(trial: Trial, figure: str) -> bool:
    """Whether the result `figure` of a trial is stored, or can be measured from the finished run.

    Raises: ConfigError if the existing run has other settings.
    """
    trial.require_same()
    return figure in trial.figures or trial.is_finished


def _searched(setup: StudySetup, plan: StudyPlan, method: Candidate, trainer: Trainer) -> dict[Point, float]:
    """Return {choice: SumR on validation videos}. If there is only one choice, nothing is trained."""
    points = plan.points
    if len(points) == 1:
        return {}
    results = trainer.reached([trial_of(setup, plan, method, point) for point in points])
    return {point: value for point, value in zip(points, results, strict=True) if value is not None}


def _finalists(results: StudyResults) -> tuple[Candidate, ...]:
    if not results.plan.attachments:
        trained = {result.candidate for result in results.ranking}
        return tuple(method for method in results.plan.methods if method in trained)
    finalists = [result.candidate for result in results.ranking[: results.plan.finalists]]
    # the loop also visits appended methods, because such a method can itself extend another method
    for finalist in finalists:
        if (base := results.base_of(finalist)) not in finalists:
            finalists.append(base)
    return tuple(finalists)


def _finals(results: StudyResults, trainer: Trainer) -> Iterator[StudyResults]:
    """Yield the results after each seed of the finalists, with their reports on test videos."""
    setup = results.setup
    plan = results.plan

    def trial(candidate: Candidate, seed: int) -> Trial:
        point = results.points[results.base_of(candidate)]
        return setup.trial(candidate, point=point, steps=plan.steps, seed=seed)

    costs = stored_costs(setup.folder / COSTS, {str(candidate): trial(candidate, 0) for candidate in results.finalists})
    results = replace(results, costs={candidate: costs[str(candidate)] for candidate in results.finalists})
    for seed in range(plan.seeds):
        trials = [trial(candidate, seed) for candidate in results.finalists]
        if not all(trainer.known(trials, "test")):
            return
        new = {finalist: setup.report(trial) for finalist, trial in zip(results.finalists, trials, strict=True)}
        results = replace(
            results, reports={name: (*results.reports.get(name, ()), new[name]) for name in results.finalists}
        )
        yield results
