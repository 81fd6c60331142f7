"""One number per query-video pair and where it came from; several of them weighed into one."""

from collections.abc import Mapping
from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Score:
    """Higher is better; `best` is the clip or frame that gave the value, where localisation starts."""

    value: Float[Tensor, "Q V"]
    best: Int[Tensor, "Q V"] | None = None


@dataclass(frozen=True)
class Scores:
    """The branch scores of a method by name, and the weight of each in the fused score."""

    branches: Mapping[str, Score]
    weights: Mapping[str, float]

    @property
    def fused(self) -> Float[Tensor, "Q V"]:
        """The weighted sum by which videos are ranked; branches without a weight do not take part."""
        terms = [weight * self.branches[name].value for name, weight in self.weights.items()]
        return sum(terms[1:], start=terms[0])

    def joined(self, other: "Scores") -> "Scores":
        """The branches of both; no name may stand in both."""
        assert not self.branches.keys() & other.branches.keys()
        return Scores({**self.branches, **other.branches}, {**self.weights, **other.weights})

    def __getitem__(self, branch: str) -> Score:
        return self.branches[branch]


def required_best(score: Score) -> Int[Tensor, "Q V"]:
    """The winning clips of a score that has them, which every maximum over clips or frames does."""
    assert score.best is not None
    return score.best
