"""Which combinations learn best: rates by a search, attachments by greed, then the best with several seeds on test."""

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Thread

import torch

from untrimmed.errors import ConfigError
from untrimmed.evaluation.report import Report
from untrimmed.models.naming import ModelName
from untrimmed.models.registry import attachment_class, model_class
from untrimmed.running.training_free import require_learner
from untrimmed.study.costs import CandidateCosts, costs_of
from untrimmed.study.greedy import CandidateResult, Growth, grow
from untrimmed.study.setup import Candidate, StudySetup, reached, require_teacher
from untrimmed.training.trials import Trial

Tell = Callable[[str], None]
SEARCH_SEED = 0


@dataclass(frozen=True, kw_only=True)
class StudyPlan:
    """What is trained on each world.

    Each method gets the rate of `rates` that reaches most in `search_steps`, and all that it carries later shares it.
    The best `grown` methods grow by `attachments`, by `most` at most; the best `finalists` of all that was tried, and
    the methods that they grew from, train `steps` steps with each of `seeds` seeds. Without attachments all methods are
    finalists.
    """

    methods: tuple[Candidate, ...]
    attachments: tuple[str, ...] = ()
    rates: tuple[float, ...] = (1e-3, 3e-4, 1e-4)
    search_steps: int = 750
    steps: int = 3000
    seeds: int = 5
    grown: int = 1
    most: int | None = None
    finalists: int = 5

    def __post_init__(self) -> None:
        for name in ("search_steps", "steps", "seeds", "grown", "finalists"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}, wanted at least 1")
        if not self.methods or not self.rates:
            raise ConfigError("a study wants at least one method and one learning rate; name them")
        for what, names in (("method", self.methods), ("attachment", self.attachments)):
            if twice := [name for name in names if names.count(name) > 1]:
                raise ConfigError(f"{what} '{twice[0]}' is named twice; name it once")


@dataclass(frozen=True, kw_only=True)
class StudyResults:
    """What a study has found on a world so far; `reports` are on test videos, one for each seed that is complete."""

    world: StudySetup
    plan: StudyPlan
    rates: Mapping[Candidate, float]  # by method
    growths: tuple[Growth, ...]
    finalists: tuple[Candidate, ...]
    untrained: Mapping[str, Mapping[str, float]]
    costs: Mapping[Candidate, CandidateCosts] = field(default_factory=dict)
    reports: Mapping[Candidate, tuple[Report, ...]] = field(default_factory=dict)

    @property
    def untried_rates(self) -> Mapping[Candidate, tuple[float, ...]]:
        """For each method the rates that are left to train."""
        return {
            method: tuple(
                rate for rate in self.plan.rates if not _knows(trial_of(self.world, self.plan, method, rate), "val")
            )
            for method in self.rates
        }

    def base_of(self, candidate: Candidate) -> Candidate:
        """The method that a candidate grew from where it reached most: at its rate."""
        return next((each.base for each in self.tried if each.candidate == candidate), candidate)

    def compared_with(self, candidate: Candidate) -> Candidate:
        """What it grew from; for one that was named as it is, the same without attachments, if that has results."""
        base = self.base_of(candidate)
        bare = replace(candidate, name=ModelName(candidate.name.method))
        return bare if base == candidate and bare in self.reports else base

    @property
    def tried(self) -> list[CandidateResult]:
        """All that was tried, each once and where it reached most, from the best on."""
        every: dict[Candidate, CandidateResult] = {}
        for each in sorted((each for growth in self.growths for each in growth.tried), key=lambda each: -each.sum_r):
            every.setdefault(each.candidate, each)
        return list(every.values())


@dataclass(frozen=True)
class Trainer:
    """Trains some trials, `jobs` at a time, and tells of each that is done; with no job, nothing is trained."""

    tell: Tell = lambda line: None
    jobs: int = 1

    def reached(self, trials: Sequence[Trial]) -> list[float | None]:
        """The SumR of each trial on validation videos; None for one that is not trained."""
        known = self.known(trials, "val")
        return [reached(trial) if is_known else None for trial, is_known in zip(trials, known, strict=True)]

    def known(self, trials: Sequence[Trial], figure: str) -> list[bool]:
        """Which of the trials have a figure: all, unless nothing is trained; what is there already is only read."""
        left = [trial for trial in trials if not _knows(trial, figure)]
        if not self.jobs:
            return [trial not in left for trial in trials]
        if self.jobs == 1 or len(left) < 2:
            for trial in left:
                self._told(trial, *_timed(trial))
        else:
            with workers(self.jobs) as pool:
                for trial, done in zip(left, pool.map(_timed, left), strict=True):
                    self._told(trial, *done)
        return [True for _ in trials]

    def _told(self, trial: Trial, sum_r: float, seconds: float) -> None:
        self.tell(f"{trial.data}: {trial.folder.name}: {sum_r:.1f} on validation videos, {seconds:.0f} s")


def workers(jobs: int) -> ProcessPoolExecutor:
    """Processes that share the processors and end with this one, however it ends."""
    spawn = multiprocessing.get_context("spawn")  # a fork of a process with threads may never wake up
    threads = max(1, (os.cpu_count() or 1) // jobs)
    return ProcessPoolExecutor(jobs, mp_context=spawn, initializer=_begin_work, initargs=(threads,))


def _begin_work(threads: int) -> None:
    torch.set_num_threads(threads)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)  # in the middle of a step: what it had saved is taken up by the next


def _timed(trial: Trial) -> tuple[float, float]:
    """What a trial reached, and how long it took."""
    began = time.perf_counter()
    trial.train()
    return reached(trial), time.perf_counter() - began


def study(world: StudySetup, plan: StudyPlan, trainer: Trainer) -> Iterator[StudyResults]:
    """What is found on one world: after the search, and again after every seed of the finalists.

    Raises: as `outlook`; whatever training raises.
    """
    outlook(world, plan)
    world.require_own()
    rates = {method: _best_rate(world, plan, method, trainer) for method in plan.methods}

    def reach(base: Candidate, candidates: Sequence[Candidate]) -> list[float | None]:
        return trainer.reached([trial_of(world, plan, each, rates[base]) for each in candidates])

    def refusal(base: Candidate, candidate: Candidate) -> str:
        return trial_of(world, plan, candidate, rates[base]).refusal()

    alone = {method: reach(method, [method])[0] or 0.0 for method in plan.methods}
    growths = []
    for place, method in enumerate(sorted(alone, key=lambda each: -alone[each])):
        attachments = plan.attachments if place < plan.grown else ()
        growths.append(grow(method, attachments, partial(refusal, method), partial(reach, method), plan.most))
    found = StudyResults(
        world=world, plan=plan, rates=rates, growths=tuple(growths), finalists=(), untrained=world.untrained()
    )
    found = replace(found, finalists=_finalists(found))
    yield found
    yield from _finals(found, trainer)


def outlook(world: StudySetup, plan: StudyPlan) -> list[str]:
    """What the study will train, in lines for people; nothing is trained or written.

    Raises: UnknownNameError for an unknown method or attachment, ConfigError for a method that cannot be or a folder
    with runs of other sizes or data, FeatureError where a teacher's files are not there.
    """
    for attachment in plan.attachments:
        attachment_class(attachment)
    for method in plan.methods:
        require_learner(method.name.method)
        model_class(method.name)
        trial = trial_of(world, plan, method, plan.rates[0])
        if reason := trial.refusal():
            raise ConfigError(reason)
        require_teacher(trial)
    world.require_same()
    searched = [trial_of(world, plan, method, rate) for method in plan.methods for rate in plan.rates]
    finished = sum(_knows(trial, "val") for trial in searched)
    trainings = f"{len(searched)} training" + "s" * (len(searched) > 1)
    purpose = " for the rates" if len(plan.rates) > 1 else ""  # of one there is no search
    lines = [f"{world.data}: {trainings} of {plan.search_steps} steps{purpose}, {finished} finished"]
    for method in plan.methods if plan.attachments else ():
        added = {each: trial_of(world, plan, method.carrying(each), plan.rates[0]) for each in plan.attachments}
        reasons = {each: trial.refusal() for each, trial in added.items()}
        fitting = [each for each, reason in reasons.items() if not reason]
        lines.append(
            f"{method}, if it is among the best {plan.grown}: + {', + '.join(fitting) or 'nothing'}; and so on"
        )
        lines += [f"  refused: {reason}" for reason in reasons.values() if reason]
    count = f"{plan.finalists} and their methods" if plan.attachments else f"{len(plan.methods)}"
    return [*lines, f"finalists: {count}, {plan.steps} steps each with {plan.seeds} seeds"]


def trial_of(world: StudySetup, plan: StudyPlan, candidate: Candidate, rate: float) -> Trial:
    """A training of the search."""
    return world.trial(candidate, rate=rate, steps=plan.search_steps, seed=SEARCH_SEED)


def _knows(trial: Trial, figure: str) -> bool:
    return figure in trial.figures or trial.is_finished


def _best_rate(world: StudySetup, plan: StudyPlan, method: Candidate, trainer: Trainer) -> float:
    """The rate that reaches most in the steps of the search, or the only one."""
    if len(plan.rates) == 1:
        return plan.rates[0]
    found = trainer.reached([trial_of(world, plan, method, rate) for rate in plan.rates])
    sum_r = {rate: value for rate, value in zip(plan.rates, found, strict=True) if value is not None}
    return max(sum_r, key=lambda rate: sum_r[rate], default=plan.rates[0])


def _finalists(found: StudyResults) -> tuple[Candidate, ...]:
    if not found.plan.attachments:
        return tuple(each for each in found.plan.methods if each in {own.candidate for own in found.tried})
    finalists = [each.candidate for each in found.tried[: found.plan.finalists]]
    for each in finalists:  # those that are added, too: a method may be one that another grew into
        if (base := found.base_of(each)) not in finalists:
            finalists.append(base)
    return tuple(finalists)


def _finals(found: StudyResults, trainer: Trainer) -> Iterator[StudyResults]:
    """The finalists on test videos, a seed after the other."""
    world = found.world
    plan = found.plan

    def trial(candidate: Candidate, seed: int) -> Trial:
        rate = found.rates[found.base_of(candidate)]
        return world.trial(candidate, rate=rate, steps=plan.steps, seed=seed)

    costs = costs_of([trial(each, 0) for each in found.finalists])
    found = replace(found, costs=dict(zip(found.finalists, costs, strict=True)))
    for seed in range(plan.seeds):
        trials = [trial(each, seed) for each in found.finalists]
        if not all(trainer.known(trials, "test")):
            return
        new = {each: world.report(own) for each, own in zip(found.finalists, trials, strict=True)}
        found = replace(found, reports={each: (*found.reports.get(each, ()), new[each]) for each in found.finalists})
        yield found
