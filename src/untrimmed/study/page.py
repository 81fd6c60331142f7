"""A study as a page: per world one table, what was tried on the way in a picture, and what was refused."""

from collections.abc import Iterator, Sequence

import numpy as np

from untrimmed.evaluation.report import Report
from untrimmed.evaluation.significance import compare, format_p
from untrimmed.reproduction.render import Grid, markdown
from untrimmed.study.setup import Candidate
from untrimmed.study.study import StudyPlan, StudyResults

COLUMNS = ("R@1", "R@5", "R@10", "R@100", "SumR")
KNOWN = 0.05  # a difference, where p is below
ORACLE = "oracle"  # the row that a perfect method could come to
HEADER = ("", *COLUMNS, "p, row above", "p, its method", "of seeds", "weights (M)", "step (ms)", "kB a video")


def page(found: Sequence[StudyResults], command: str, picture: str) -> str:
    """The whole page in Markdown; `picture` is the address of `plots.combinations`' picture."""
    text = f"# What adds up\n\nMade by:\n\n    {command}\n\n"
    text += "".join(f"{line}\n" for line in winners(found))
    return text + "".join("\n" + "\n".join(section(each)) for each in found) + f"\n![What was tried]({picture})\n"


def winners(found: Sequence[StudyResults]) -> Iterator[str]:
    """For each world what finds most of its test videos, how sure that is, and how that does on the others."""
    ranked = [(each, ordered(each)[::-1]) for each in found if each.reports]
    for own, (best, *others) in ranked:
        line = f"- On {own.world.data} `{best}` has the highest SumR of what was trained, {mean_sum_r(own, best):.1f} "
        line += "on test videos" + "".join(
            f", {_lead(own, best, other)}"
            for other in dict.fromkeys([own.compared_with(best), *others[:1]])
            if other != best
        )
        for elsewhere, order in ranked:
            if elsewhere is not own:
                place = f"takes place {order.index(best) + 1} of {len(order)}" if best in order else "has no row"
                line += f"; on {elsewhere.world.data} it {place}"
        yield f"{line}.{_short_of_untrained(own, best)}"


def _lead(found: StudyResults, best: Candidate, other: Candidate) -> str:
    """By how much the best leads another, and whether chance explains it."""
    p = _p_value(found.reports[best], found.reports[other])
    said = format_p(p) if p < KNOWN else f"{format_p(p)}: no difference is known"
    lead = mean_sum_r(found, best) - mean_sum_r(found, other)
    return f"{lead:.1f} more than `{other}` (p {said})"


def _short_of_untrained(found: StudyResults, best: Candidate) -> str:
    """A sentence where what needs no training finds more; the oracle knows what is hidden and does not count."""
    rows = {name: of["SumR"] for name, of in found.untrained.items() if name != ORACLE}
    name = max(rows, key=lambda each: rows[each], default="")
    if not name or rows[name] <= mean_sum_r(found, best):
        return ""
    return f" Without training `{name}` finds more than all of them: {rows[name]:.1f}."


def section(found: StudyResults) -> Iterator[str]:
    """One world."""
    world = found.world
    plan = found.plan
    train_set, val_set, test_set = world.sets
    seeds = min((len(own) for own in found.reports.values()), default=0)
    kind = "simulated features" if world.simulated else "features as stored"
    yield f"## {world.data}, {kind}\n"
    yield (
        f"{len(train_set.video_ids):,} videos to learn from, {len(val_set.video_ids):,} to choose by, "
        f"{len(test_set.video_ids):,} with {len(test_set.caption_ids):,} captions to be found. "
        f"All are {world.dim} wide, see {world.frames} frames, train on {world.batch} videos a step. "
        f"Search: {plan.search_steps:,} steps, one seed, {_rates(plan)}. "
        f"Rows of the table: {plan.steps:,} steps, {seeds} of {plan.seeds} seeds, mean and standard deviation on test "
        "videos. p is that of the paired randomization test over queries, of the seeds' mean SumR, which does not know "
        "how seeds differ; *of seeds*, against its method, too, is Welch's over the seeds' SumR. More steps may change "
        "the order. A step is told in milliseconds of one core, what a video keeps in float32.\n"
    )
    yield markdown(table(found))
    yield from _findings(found)
    yield from _refusals(found)


def _rates(plan: StudyPlan) -> str:
    among = "at a rate of" if len(plan.rates) == 1 else "the rate of each method among"
    return f"{among} {', '.join(f'{rate:g}' for rate in plan.rates)}"


def table(found: StudyResults) -> Grid:
    """The untrained rows, then the finalists from the worst to the best."""
    empty = ("",) * (len(HEADER) - len(COLUMNS) - 1)
    lines = [(name, *(f"{of[column]:.1f}" for column in COLUMNS), *empty) for name, of in found.untrained.items()]
    above: tuple[Report, ...] = ()
    for candidate in ordered(found):
        own = found.reports[candidate]
        base = found.compared_with(candidate)
        costs = found.costs[candidate]
        against = (
            ("", "") if candidate == base else (_p(own, found.reports[base]), _p_of_seeds(own, found.reports[base]))
        )
        cells = (f"{costs.parameters / 1e6:.2f}", f"{1e3 * costs.step_s:.0f}", f"{costs.bytes_per_video / 1e3:.1f}")
        figures = (_figure([report.figures[column] for report in own]) for column in COLUMNS)
        lines.append((f"`{candidate}`", *figures, _p(own, above) if above else "", *against, *cells))
        above = own
    return Grid("", HEADER, tuple(lines), num_labels=1)


def ordered(found: StudyResults) -> list[Candidate]:
    """The finalists with results, from the worst mean SumR to the best."""
    return sorted(found.reports, key=lambda each: mean_sum_r(found, each))


def mean_sum_r(found: StudyResults, candidate: Candidate) -> float:
    """Over seeds, on test videos."""
    return float(np.mean([report.figures["SumR"] for report in found.reports[candidate]]))


def _figure(values: list[float]) -> str:
    deviation = f" ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else ""
    return f"{np.mean(values):.1f}{deviation}"


def _p_value(first: Sequence[Report], second: Sequence[Report]) -> float:
    return compare(first, second, ("SumR",))[0].fisher_p


def _p(first: Sequence[Report], second: Sequence[Report]) -> str:
    return format_p(_p_value(first, second))


def _p_of_seeds(first: Sequence[Report], second: Sequence[Report]) -> str:
    """Of Welch's t-test over the SumR of seeds; empty for one seed."""
    from scipy.stats import ttest_ind

    sides = [[report.figures["SumR"] for report in side] for side in (first, second)]
    return format_p(float(ttest_ind(*sides, equal_var=False).pvalue)) if min(map(len, sides)) > 1 else ""


def _findings(found: StudyResults) -> Iterator[str]:
    """What grew out of each method, by the SumR of the search."""
    for growth in found.growths:
        base, *steps = growth.kept
        sum_r = {each.candidate: each.sum_r for each in growth.tried}
        if len(growth.tried) > 1:
            gains = "".join(f", with {each.name.attachments[-1]} {sum_r[each]:.1f}" for each in steps)
            end = "no further attachment gained" if steps else "no attachment gained"
            last = [each for each in growth.tried if each.over == growth.kept[-1]]
            reached = ", ".join(f"{each.candidate.name.attachments[-1]} {each.sum_r:.1f}" for each in last)
            end += f" ({reached})" if last else ""
            end = f"more than {len(steps)} were not tried" if len(steps) == found.plan.most else end
            untried = " or ".join(f"{rate:g}" for rate in found.untried_rates[base])
            rate = f"rate {found.rates[base]:g}" + (f", not tried with {untried}" if untried else "")
            end = "what could come next is not all trained yet" if growth.waiting else end
            yield f"- `{base}` ({rate}) reached {sum_r[base]:.1f} on validation videos{gains}; {end}."
        elif found.plan.attachments:
            reached = f"reached {sum_r[base]:.1f} on validation videos" if base in sum_r else "is not trained yet"
            yield f"- `{base}` {reached}, and did not grow."


def _refusals(found: StudyResults) -> Iterator[str]:
    if waiting := [f"`{each}`" for growth in found.growths for each in growth.waiting]:
        yield f"\nNot trained yet, so that the search may still go on elsewhere: {', '.join(waiting)}."
    reasons = dict.fromkeys(reason for growth in found.growths for reason in growth.refused.values())
    if reasons:
        yield "\nNot tried, because they do not fit:\n"
        yield from (f"- {reason}" for reason in reasons)
    yield ""
