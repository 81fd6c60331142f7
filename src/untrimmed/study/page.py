"""The Markdown page of a study: a table per data set, a picture of the search, and impossible combinations."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import chain
from typing import Any

import numpy as np

from untrimmed.evaluation.significance import SIGNIFICANT, format_p, p_of_sum_r, values_of_seeds
from untrimmed.presets.published import RECALL
from untrimmed.reproduction.render import Grid, in_bold, markdown
from untrimmed.study.costs import CandidateCosts
from untrimmed.study.joint_table import figures_over_seeds, recall_cells
from untrimmed.study.orders import across_worlds, notes
from untrimmed.study.setup import Candidate
from untrimmed.study.study import StudyPlan, StudyResults

ORACLE = "oracle"  # name of the row with the results of a perfect method
TESTS = ("p to best, seeds", "p to best, queries", "p to base, seeds", "p to base, queries")
HEADER = ("", *RECALL, *TESTS, "weights (M)", "step (ms)", "kB a video")


def page(results: Sequence[StudyResults], command: str, picture: str) -> str:
    """Return the page in Markdown. `picture` is the URL or path of the picture that shows the search."""
    text = f"# Comparison of methods\n\nMade by:\n\n    {command}\n\n"
    text += "".join(f"{line}\n" for line in winners(results))
    text += "".join("\n" + "\n".join(section(entry)) for entry in results)
    text += "".join(f"\n{line}\n" for line in across_worlds(results))
    return text + f"\n![All combinations that were tried]({picture})\n"


def winners(results: Sequence[StudyResults]) -> Iterator[str]:
    """Yield one sentence per data set: the best candidate, its lead in SumR, and its rank on other data sets."""
    ranked = [(entry, ordered(entry)) for entry in results if entry.reports]
    for result, (best, *followers) in ranked:
        line = f"- On {result.setup.data}, `{best}` has the highest SumR of the trained methods on test videos: "
        line += f"{mean_sum_r(result, best):.1f}" + "".join(
            f", {_lead(result, best, rival)}"
            for rival in dict.fromkeys([result.compared_with(best), *followers[:1]])
            if rival != best
        )
        for elsewhere, order in ranked:
            if elsewhere is not result:
                place = f"is number {order.index(best) + 1} of {len(order)}" if best in order else "was not trained"
                line += f"; on {elsewhere.setup.data}, it {place}"
        yield f"{line}.{_short_of_untrained(result, best)}"


def _lead(results: StudyResults, best: Candidate, rival: Candidate) -> str:
    """Return the lead of the best candidate over another candidate, with p-values over seeds and over queries."""
    lead = mean_sum_r(results, best) - mean_sum_r(results, rival)
    over_seeds, over_queries = p_of_sum_r(results.reports[best], results.reports[rival])
    if over_seeds is None:
        alone = min(len(results.reports[entry]) for entry in (best, rival)) < 2
        test = f"{'one seed' if alone else 'no differences between seeds'}, so no p over seeds"
    else:
        test = f"p over seeds {format_p(over_seeds)}{'' if over_seeds < SIGNIFICANT else ': not significant'}"
    return f"{lead:.1f} more than `{rival}` ({test}; p over queries {format_p(over_queries)})"


def _short_of_untrained(results: StudyResults, best: Candidate) -> str:
    """Return a sentence if an untrained baseline (not the oracle) has a higher SumR than `best`, else an empty text."""
    rows = {name: of["SumR"] for name, of in results.untrained.items() if name != ORACLE}
    name = max(rows, key=lambda entry: rows[entry], default="")
    if not name or rows[name] <= mean_sum_r(results, best):
        return ""
    return f" `{name}`, without a trained method, has a higher SumR than all of them: {rows[name]:.1f}."


def section(results: StudyResults) -> Iterator[str]:
    """Yield the lines of one data set's section."""
    setup = results.setup
    plan = results.plan
    videos = setup.facts.videos
    seeds = min((len(reports) for reports in results.reports.values()), default=0)
    kind = "simulated features" if setup.facts.simulation is not None else "features as stored"
    yield f"## {setup.data}, {kind}\n"
    yield (
        f"{videos['train']:,} training videos, {videos['val']:,} validation videos, and {videos['test']:,} test videos "
        f"with {setup.facts.captions['test']:,} captions. All models have width {setup.dim}, read {setup.frames} "
        f"frames per video and train on {setup.batch} videos per step. Search: {plan.search_steps:,} steps, one seed, "
        f"{_rates(plan)}. The table has the mean and standard deviation on test videos after {plan.steps:,} steps, "
        f"over {seeds} of {plan.seeds} seeds, and begins with the best row. The columns with p compare a row with the "
        "best row, and with its base: the method without attachments. *Seeds* is Welch's t-test over the SumR of the "
        "seeds. *Queries* is the paired randomization test over queries on the mean SumR of the seeds, which ignores "
        "differences between seeds. More steps may change the order. *Step* is the time of a training step on one core."
        " *kB a video* is the size in float32.\n"
    )
    yield markdown(table(results))
    yield from notes(results)
    yield from _findings(results)
    yield from _refusals(results)


def _rates(plan: StudyPlan) -> str:
    among = "at a learning rate of" if len(plan.points) == 1 else "and for each method the best learning rate of"
    settings = (entry.partition("=") for entry in plan.grid)
    grid = "".join(f" and of {key} {values.replace(',', ', ')}" for key, _, values in settings)
    return f"{among} {', '.join(f'{rate:g}' for rate in plan.rates)}{grid}"


def table(results: StudyResults) -> Grid:
    """Return the table: finalists from best (bold) to worst, then baselines that need no training."""
    lines = []
    best = next(iter(ordered(results)), None)
    for candidate in ordered(results):
        base = results.compared_with(candidate)
        costs = results.costs.get(candidate)
        tests = [format_p(p) for rival in (best, base) for p in _p_values(results, candidate, rival)]
        cells = ("", "", "") if costs is None else _cost_cells(costs)
        first = [f"`{candidate}`", *recall_cells(results.reports[candidate])]
        lines.append((*(map(in_bold, first) if candidate == best else first), *tests, *cells))
    empty = ("",) * (len(HEADER) - len(RECALL) - 1)
    untrained = reversed(list(results.untrained.items()))
    lines += [(name, *(f"{of[column]:.1f}" for column in RECALL), *empty) for name, of in untrained]
    return Grid("", HEADER, tuple(lines), num_labels=1)


def document(results: StudyResults) -> dict[str, Any]:
    """Return the results on one data set as fields for JSON, in full precision; docs/json.md describes them."""
    rows = []
    best = next(iter(ordered(results)), None)
    for candidate in ordered(results):
        rivals = (best, results.compared_with(candidate))
        tests = chain.from_iterable(_p_values(results, candidate, rival) for rival in rivals)
        row = {"model": str(candidate), **figures_over_seeds(results.reports[candidate])}
        row |= dict(zip(TESTS, tests, strict=True))
        costs = results.costs.get(candidate)
        rows.append(row | {"costs": None if costs is None else asdict(costs)})
    return {
        "data": results.setup.data,
        "rows": rows,
        "searched": [
            {"model": str(method), "rate": point.rate, "settings": list(point.settings), "SumR": value}
            for method, sum_r in results.searched.items()
            for point, value in sum_r.items()
        ],
        "untrained": results.untrained,
    }


def _p_values(
    results: StudyResults, candidate: Candidate, rival: Candidate | None
) -> tuple[float | None, float | None]:
    """Return the p-values over seeds and over queries of the difference between two candidates.

    Both are None if there is no second candidate.
    """
    if rival is None or rival == candidate:
        return None, None
    return p_of_sum_r(results.reports[candidate], results.reports[rival])


def _cost_cells(costs: CandidateCosts) -> tuple[str, str, str]:
    return f"{costs.parameters / 1e6:.2f}", f"{1e3 * costs.step_s:.0f}", f"{costs.bytes_per_video / 1e3:.1f}"


def ordered(results: StudyResults) -> list[Candidate]:
    """Return the finalists with results, from the best mean SumR to the worst."""
    return sorted(results.reports, key=lambda entry: -mean_sum_r(results, entry))


def mean_sum_r(results: StudyResults, candidate: Candidate) -> float:
    """Return the mean SumR over seeds, on test videos."""
    return float(np.mean(values_of_seeds(results.reports[candidate])))


def _findings(results: StudyResults) -> Iterator[str]:
    """Yield one line per method: its SumR, and the SumR after each attachment that the search added."""
    for growth in results.growths:
        base, *steps = growth.accepted
        sum_r = {entry.candidate: entry.sum_r for entry in growth.results}
        if len(growth.results) > 1:
            gains = "".join(f", with {entry.name.attachments[-1]} {sum_r[entry]:.1f}" for entry in steps)
            end = "no further attachment raised it" if steps else "no attachment raised it"
            last = [entry for entry in growth.results if entry.over == growth.accepted[-1]]
            reached = ", ".join(f"{entry.candidate.name.attachments[-1]} {entry.sum_r:.1f}" for entry in last)
            end += f" ({reached})" if last else ""
            end = f"more than {len(steps)} were not tried" if len(steps) == results.plan.max_attachments else end
            end = "the next combinations are not all trained yet" if growth.waiting else end
            yield f"- `{base}` ({_point(results, base)}): SumR on validation videos {sum_r[base]:.1f}{gains}; {end}."
        elif results.plan.attachments:
            reached = f"SumR on validation videos {sum_r[base]:.1f}" if base in sum_r else "not trained yet"
            yield f"- `{base}`: {reached}; no attachments were tried."


def _point(results: StudyResults, base: Candidate) -> str:
    """Return the method's best learning rate and settings as text, and the choices that were not tried yet."""
    untried = " or ".join(map(str, results.untried[base]))
    return f"{results.points[base]}" + (f", not tried with {untried}" if untried else "")


def _refusals(results: StudyResults) -> Iterator[str]:
    if waiting := [f"`{entry}`" for growth in results.growths for entry in growth.waiting]:
        yield f"\nNot trained yet, so the results of the search may change: {', '.join(waiting)}."
    reasons = dict.fromkeys(reason for growth in results.growths for reason in growth.refused.values())
    if reasons:
        yield "\nNot tried, because they cannot be combined:\n"
        yield from (f"- {reason}" for reason in reasons)
    yield ""
