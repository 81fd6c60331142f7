"""Greedy search: add one attachment at a time to a method while SumR rises."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from untrimmed.study.setup import Candidate


@dataclass(frozen=True)
class CandidateResult:
    """A candidate that the search tried, and its SumR on validation videos.

    The candidate is `over` with one attachment more. It was trained with the best learning rate of `base`, the method
    with which the search began. Searches from several methods can give the same candidate.
    """

    candidate: Candidate
    sum_r: float
    base: Candidate
    over: Candidate | None = None


@dataclass(frozen=True)
class Growth:
    """The search for attachments of one method. `accepted` lists the method alone, then its best candidates by size."""

    results: tuple[CandidateResult, ...]
    accepted: tuple[Candidate, ...]
    refused: Mapping[Candidate, str]  # {combination that cannot exist: the reason}
    waiting: tuple[Candidate, ...] = ()  # combinations that are not trained yet and may still win


def grow(
    base: Candidate,
    attachments: Sequence[str],
    refusal: Callable[[Candidate], str],
    reach: Callable[[Sequence[Candidate]], Sequence[float | None]],
    max_attachments: int | None = None,
) -> Growth:
    """Add the attachment that raises SumR most, and repeat until none raises it or `max_attachments` are added.

    `reach` returns the SumR of candidates, or None for a candidate that is not trained yet. `refusal` returns the
    reason why a candidate cannot exist, or an empty text. An attachment that is refused once is not tried again in this
    search.
    """
    (base_sum_r,) = reach([base])
    if base_sum_r is None:
        return Growth((), (base,), {}, (base,))
    best = CandidateResult(base, base_sum_r, base)
    searched = [best]
    accepted = [base]
    refused = dict[Candidate, str]()
    remaining = list(attachments)
    waiting: list[Candidate] = []
    while max_attachments is None or len(accepted) <= max_attachments:
        reasons = {name: refusal(best.candidate.carrying(name)) for name in remaining}
        refused |= {best.candidate.carrying(name): reason for name, reason in reasons.items() if reason}
        remaining = [name for name in remaining if not reasons[name]]
        extended = [best.candidate.carrying(name) for name in remaining]
        sum_r = dict(zip(extended, reach(extended), strict=True))
        results = [
            CandidateResult(candidate, value, base, best.candidate)
            for candidate, value in sum_r.items()
            if value is not None
        ]
        waiting += [candidate for candidate, value in sum_r.items() if value is None]
        searched += results
        top = max(results, key=lambda result: result.sum_r, default=best)
        if top.sum_r <= best.sum_r:
            break
        best = top
        accepted.append(best.candidate)
        remaining.remove(best.candidate.name.attachments[-1])
    return Growth(tuple(searched), tuple(accepted), refused, tuple(waiting))
