"""Compare orders of methods by SumR: our order, the order in papers, and orders on different simulated data sets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from typing import TYPE_CHECKING

import numpy as np

from untrimmed.data.simulation.world import BUILT_IN_SIDES, built_in_sides
from untrimmed.errors import counted
from untrimmed.evaluation.significance import SIGNIFICANT, format_p, p_over_seeds, values_of_seeds
from untrimmed.presets import has_preset, load_preset
from untrimmed.reproduction.render import Grid, in_bold, markdown, mean_and_deviation
from untrimmed.study.setup import Candidate, Point

if TYPE_CHECKING:
    from untrimmed.study.study import StudyResults

SumR = Mapping[str, Sequence[float]]  # {method: SumR on test videos of each seed}
FEWEST = 3  # orders of fewer methods are not compared


@dataclass(frozen=True)
class Agreement:
    """The agreement of two orders of the same methods. Each order begins with the best method.

    - `tau` is Kendall's tau-b: 1 for the same order, -1 for the reverse order. `p` is the two-sided p-value of `tau`.
    - `differences` are the pairs (A, B) for which A is before B in the first order, but after B in the second order.
    """

    first: tuple[str, ...]
    second: tuple[str, ...]
    tau: float
    p: float
    differences: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, first: Mapping[str, float], second: Mapping[str, float]) -> Agreement | None:
        """Return the agreement on the methods that are in both orders, or None for fewer than three such methods.

        >>> Agreement.of({"a": 3, "b": 2, "c": 1}, {"a": 3, "b": 1, "c": 2}).differences
        (('b', 'c'),)
        """
        from scipy.stats import kendalltau

        shared = [name for name in first if name in second]
        if len(shared) < FEWEST:
            return None
        orders = [tuple(sorted(shared, key=lambda name: -values[name])) for values in (first, second)]
        result = kendalltau([first[name] for name in shared], [second[name] for name in shared])
        differences = tuple(
            (ahead, passed)
            for ahead, passed in combinations(orders[0], 2)
            if first[ahead] > first[passed] and second[ahead] < second[passed]
        )
        return cls(orders[0], orders[1], float(result.statistic), float(result.pvalue), differences)

    def __str__(self) -> str:
        """Return tau and its p-value as text for a table."""
        return f"{self.tau:.2f} (p {format_p(self.p)})"


def notes(results: StudyResults) -> Iterator[str]:
    """Yield the text below a data set's table: settings that the search chose, the papers' order, and a warning."""
    yield from search_results(results)
    yield from chosen(results)
    yield from papers_order(sum_r_of(results), published_sum_r(results))
    simulation = results.setup.facts.simulation
    if simulation is not None and (sides := built_in_sides(simulation)):
        yield f"This simulated world favours some methods: {'; '.join(sides)}.\n"


def search_results(results: StudyResults) -> Iterator[str]:
    """Yield a table of the learning rates and settings that the search tried, or nothing if no method had a choice."""
    if any(results.searched.values()):
        yield f"Results of the search: SumR on validation videos after {counted(results.plan.search_steps, 'step')}.\n"
        yield markdown(search_grid(results.searched))


def chosen(results: StudyResults) -> Iterator[str]:
    """Yield one line with the learning rate and settings of each candidate, or nothing if they are the same for all."""
    settings = {
        candidate: str(results.points[base])
        for candidate in results.reports
        if (base := results.base_of(candidate)) in results.points
    }
    if len(set(settings.values())) > 1:
        entries = sorted(f"`{candidate}` {text}" for candidate, text in settings.items())
        is_search = any(len(sum_r) > 1 for sum_r in results.searched.values())
        yield f"{'Chosen on validation videos' if is_search else 'Settings of each method'}: {'; '.join(entries)}.\n"


def search_grid(searched: Mapping[Candidate, Mapping[Point, float]]) -> Grid:
    """Return a table of SumR: one row per method and learning rate, one column per setting.

    The best value of a method is bold, and the method with the highest value is first.
    """
    columns = list(dict.fromkeys(point.settings for sum_r in searched.values() for point in sum_r))
    lines = []
    tried = {method: sum_r for method, sum_r in searched.items() if sum_r}
    for method, sum_r in sorted(tried.items(), key=lambda entry: (-max(entry[1].values()), str(entry[0]))):
        for rate in sorted({point.rate for point in sum_r}, reverse=True):
            cells = (_searched_cell(sum_r, Point(rate, settings)) for settings in columns)
            lines.append((f"`{method}`", f"{rate:g}", *cells))
    return Grid("", ("", "rate", *(", ".join(settings) or "SumR" for settings in columns)), tuple(lines), num_labels=1)


def _searched_cell(sum_r: Mapping[Point, float], point: Point) -> str:
    if point not in sum_r:
        return ""
    text = f"{sum_r[point]:.1f}"
    return in_bold(text) if sum_r[point] == max(sum_r.values()) else text


def sum_r_of(results: StudyResults) -> dict[str, list[float]]:
    """Return {candidate: SumR on test videos of each seed}."""
    return {str(name): values_of_seeds(reports) for name, reports in results.reports.items()}


def published_sum_r(results: StudyResults) -> dict[str, float]:
    """Return {candidate: SumR that the papers report}. Candidates with changed settings are left out."""
    benchmark = results.setup.facts.benchmark
    published: dict[str, float] = {}
    for candidate in results.reports:
        if not candidate.settings and has_preset(candidate.name, benchmark):
            reported = load_preset(candidate.name, benchmark).reported
            published |= {str(candidate): reported["SumR"]} if "SumR" in reported else {}
    return published


def papers_order(sum_r: SumR, published: Mapping[str, float]) -> Iterator[str]:
    """Yield our order and the papers' order, Kendall's tau, the pairs of methods whose order differs, and the rows
    that are not part of the order.

    For fewer than three methods, yield nothing.
    """
    agreement = Agreement.of(_means(sum_r), published)
    if agreement is None:
        return
    places = enumerate(zip(agreement.first, agreement.second, strict=True), start=1)
    lines = tuple((str(place), f"`{ours}`", f"`{theirs}`") for place, (ours, theirs) in places)
    yield markdown(Grid("", ("place", "here", "in the papers"), lines, num_labels=3))
    pairs = {pair: p_over_seeds(sum_r[pair[0]], sum_r[pair[1]]) for pair in agreement.differences}
    significant = [pair for pair, p in pairs.items() if p is not None and p < SIGNIFICANT]
    uncertain = [pair for pair in pairs if pair not in significant]
    tau, p = f"{agreement.tau:.2f}", format_p(agreement.p)
    text = f"Kendall's tau between our order and the papers' order is {tau} (two-sided p-value {p})."
    if significant:
        level = f"p over seeds below {SIGNIFICANT:g}"
        text += f" Significant differences from the papers' order ({level}): {_in_words(significant)}."
    if uncertain:
        text += f" Differences that are not significant: {_in_words(uncertain)}."
    yield f"{text}{_unpublished(sum_r, published)}\n"


def _unpublished(names: Iterable[str], published: Mapping[str, float]) -> str:
    """Return a sentence with the candidates without a published result, or "" if there are none."""
    missing = [f"`{name}`" for name in names if name not in published]
    reason = "their settings differ from the published ones, or their preset has no published result"
    return f" Not part of the papers' order, because {reason}: {', '.join(missing)}." if missing else ""


def across_worlds(results: Sequence[StudyResults]) -> Iterator[str]:
    """Yield a table of SumR by method and world, and the settings that each world changes.

    Worlds are data sets with simulated features. Only worlds that simulate the same benchmark as the first world are
    compared. If there are fewer than two such worlds, yield nothing.
    """
    worlds = [entry for entry in results if entry.reports and entry.setup.facts.simulation is not None]
    worlds = [entry for entry in worlds if entry.setup.facts.benchmark == worlds[0].setup.facts.benchmark]
    if len(worlds) < 2:
        return
    published = {name: value for entry in worlds for name, value in published_sum_r(entry).items()}
    yield "## Order of the methods in each world\n"
    yield (
        "The table shows the SumR on test videos (mean and standard deviation over seeds) and, in parentheses, the "
        "rank of the method in this world (a simulated data set). Rows with *tau* show Kendall's tau between the "
        "order of the methods in this world and the order in the first world, or in the papers.\n"
    )
    sums = {entry.setup.data: sum_r_of(entry) for entry in worlds}
    yield markdown(worlds_grid(sums, published))
    if outside := _unpublished(dict.fromkeys(chain.from_iterable(sums.values())), published):
        yield f"{outside.strip()}\n"
    for entry in worlds:
        settings = {f"{name}={value}" for name, value in (entry.setup.facts.simulation or {}).items()}
        removed = [
            f"`{change}` removes this property of the standard world: {side}"
            for change, side in BUILT_IN_SIDES.items()
            if change in settings
        ]
        yield f"- {entry.setup.data}: {'; '.join(removed) or 'the standard world'}."


def worlds_grid(worlds: Mapping[str, SumR], published: Mapping[str, float]) -> Grid:
    """Return a table of SumR by method and world. Methods are sorted by their SumR in the first world.

    The last rows contain Kendall's tau between each world and the first world, and between each world and the papers.
    """
    averages = {world: _means(sum_r) for world, sum_r in worlds.items()}
    first, *variants = worlds
    methods = dict.fromkeys(name for sum_r in worlds.values() for name in sum_r)
    ordered = sorted(methods, key=lambda name: -averages[first].get(name, -np.inf))
    lines = [(f"`{name}`", *(_cell(worlds[world], averages[world], name) for world in worlds)) for name in ordered]
    with_first = [None, *(Agreement.of(averages[world], averages[first]) for world in variants)]
    with_papers = [Agreement.of(averages[world], published) for world in worlds]
    for label, agreements in ((f"tau with {first}", with_first), ("tau with the papers", with_papers)):
        if any(agreements):
            lines.append((label, *("" if entry is None else str(entry) for entry in agreements)))
    return Grid("", ("", *worlds), tuple(lines), num_labels=1)


def _means(sum_r: SumR) -> dict[str, float]:
    return {name: float(np.mean(values)) for name, values in sum_r.items()}


def _in_words(pairs: Sequence[tuple[str, str]]) -> str:
    """Return pairs of methods as text, grouped by the first method."""
    trailing: dict[str, list[str]] = {}
    for ahead, passed in pairs:
        trailing.setdefault(ahead, []).append(f"`{passed}`")
    return "; ".join(f"`{ahead}` is ahead of {', '.join(names)}" for ahead, names in trailing.items())


def _cell(sum_r: SumR, averages: Mapping[str, float], name: str) -> str:
    if name not in sum_r:
        return ""
    place = 1 + sum(value > averages[name] for value in averages.values())
    return f"{mean_and_deviation(sum_r[name])} ({place})"
