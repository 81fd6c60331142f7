"""Search greedily for attachments of a method: add one attachment at a time while SumR rises."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from untrimmed.study.setup import Candidate


@dataclass(frozen=True)
class CandidateResult:
    """A candidate that the search tried, and its SumR on validation videos.

    The candidate has one attachment more than the candidate `over`. It was trained with the best learning rate of
    `base`, the method from which the search started. Searches that start from different methods can find the same
    candidate.
    """

    candidate: Candidate
    sum_r: float
    base: Candidate
    over: Candidate | None = None


@dataclass(frozen=True)
class Growth:
    """The result of a search for attachments of one method.

    `accepted` begins with the method alone. Each further candidate has one more attachment than the previous candidate.
    """

    results: tuple[CandidateResult, ...]
    accepted: tuple[Candidate, ...]
    refused: Mapping[Candidate, str]  # {impossible combination: reason}
    waiting: tuple[Candidate, ...] = ()  # combinations that are not trained yet and could still win


def grow(
    base: Candidate,
    attachments: Sequence[str],
    refusal: Callable[[Candidate], str],
    reach: Callable[[Sequence[Candidate]], Sequence[float | None]],
    max_attachments: int | None = None,
) -> Growth:
    """Return the result of a search that repeatedly adds the attachment that raises SumR most.

    The search ends when no attachment raises SumR, or when `max_attachments` have been added.

    - `refusal` returns the reason why a candidate is impossible, or an empty text. An attachment that was refused is
      not tried again in this search.
    - `reach` returns the SumR of each candidate, or None for a candidate that is not trained yet.
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
