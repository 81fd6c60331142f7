"""Scores of query-video pairs, and the weighted sum of the scores of several branches."""

from collections.abc import Mapping
from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Score:
    """The score of each query-video pair; higher is better.

    `best` is the index of the clip or frame that determines the score, or None if the score is not a maximum.
    """

    value: Float[Tensor, "Q V"]
    best: Int[Tensor, "Q V"] | None = None


@dataclass(frozen=True)
class Scores:
    """The scores of a method's branches by name, and the weight of each branch in the fused score."""

    branches: Mapping[str, Score]
    weights: Mapping[str, float]

    @property
    def fused(self) -> Float[Tensor, "Q V"]:
        """The weighted sum of the branches, by which videos are ranked. Branches without a weight are ignored."""
        terms = [weight * self.branches[name].value for name, weight in self.weights.items()]
        return sum(terms[1:], start=terms[0])

    def joined(self, scores: "Scores") -> "Scores":
        """Return the branches of `self` and `scores` together. No branch may be in both."""
        assert not self.branches.keys() & scores.branches.keys()
        return Scores({**self.branches, **scores.branches}, {**self.weights, **scores.weights})

    def __getitem__(self, branch: str) -> Score:
        """Return the score of a branch; raises KeyError that lists the known branches."""
        if branch not in self.branches:
            raise KeyError(f"no branch named {branch!r}. Known: {', '.join(self.branches) or 'none'}")
        return self.branches[branch]


def required_best(score: Score) -> Int[Tensor, "Q V"]:
    """Return the indices of the best clips or frames of a score. The score must be a maximum over clips or frames."""
    assert score.best is not None
    return score.best
