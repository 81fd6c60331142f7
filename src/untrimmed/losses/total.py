"""The weighted sum of a method's loss terms."""

from collections.abc import Mapping

from jaxtyping import Float
from torch import Tensor

from untrimmed.errors import ConfigError, nearest


def total_loss(terms: Mapping[str, Tensor], weights: Mapping[str, float]) -> Float[Tensor, ""]:
    """Return the sum of all terms times their weights. A weight of 0 disables a term.

    Raises: ConfigError if a term has no weight, if a weight has no term, or if all weights are 0.
    """
    if terms.keys() != weights.keys():
        unweighted = sorted(terms.keys() - weights.keys())
        unused = sorted(weights.keys() - terms.keys())
        if unused:
            unknown = ", ".join(f"weights.{name}" for name in unused)
            hints = "".join(nearest(name, terms) for name in unused)
            raise ConfigError(f"{unknown}: no such loss term; available terms: {', '.join(sorted(terms))}{hints}")
        added = " ".join(f"weights.{name}=1.0" for name in unweighted)
        raise ConfigError(f"loss terms without a weight: {', '.join(unweighted)}; add {added} (0 disables a term)")
    active = [weights[name] * term for name, term in terms.items() if weights[name] != 0]
    if not active:
        raise ConfigError("every loss weight is 0; set at least one weight")
    return sum(active[1:], start=active[0])
