"""Grow a method by one attachment at a time, as long as that gains."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from untrimmed.study.setup import Candidate


@dataclass(frozen=True)
class CandidateResult:
    """A combination and the SumR that it reached on validation videos; `over` is what it adds one attachment to.

    It learnt at the rate of `base`, the method that it grew from: several may grow into the same combination.
    """

    candidate: Candidate
    sum_r: float
    base: Candidate
    over: Candidate | None = None


@dataclass(frozen=True)
class Growth:
    """What was tried from one method on, in order; `kept` begins with the method, each adds one to the one before."""

    tried: tuple[CandidateResult, ...]
    kept: tuple[Candidate, ...]
    refused: Mapping[Candidate, str]  # and why
    waiting: tuple[Candidate, ...] = ()  # not trained yet; the search may still go on from one of them


def grow(
    base: Candidate,
    attachments: Sequence[str],
    refusal: Callable[[Candidate], str],
    reach: Callable[[Sequence[Candidate]], Sequence[float | None]],
    most: int | None = None,
) -> Growth:
    """Add the attachment that gains most, then the next, until none gains or `most` are there.

    `reach` gives the SumR of each of some candidates, None for one that is to be trained later; `refusal` why one
    cannot be (empty: it can). An attachment that does not fit what has grown fits nothing that grows from it, so it is
    not asked for again.
    """
    (alone,) = reach([base])
    if alone is None:
        return Growth((), (base,), {}, (base,))
    best = CandidateResult(base, alone, base)
    tried = [best]
    kept = [base]
    refused = dict[Candidate, str]()
    left = list(attachments)
    waiting: list[Candidate] = []
    while most is None or len(kept) <= most:
        reasons = {name: refusal(best.candidate.carrying(name)) for name in left}
        refused |= {best.candidate.carrying(name): reason for name, reason in reasons.items() if reason}
        left = [name for name in left if not reasons[name]]
        added = [best.candidate.carrying(name) for name in left]
        sum_r = dict(zip(added, reach(added), strict=True))
        found = [
            CandidateResult(each, value, base, best.candidate) for each, value in sum_r.items() if value is not None
        ]
        waiting += [each for each, value in sum_r.items() if value is None]
        tried += found
        top = max(found, key=lambda each: each.sum_r, default=best)
        if top.sum_r <= best.sum_r:
            break
        best = top
        kept.append(best.candidate)
        left.remove(best.candidate.name.attachments[-1])
    return Growth(tuple(tried), tuple(kept), refused, tuple(waiting))
