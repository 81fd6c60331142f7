"""The weighted sum of a method's loss terms."""

from collections.abc import Mapping

from jaxtyping import Float
from torch import Tensor

from untrimmed.errors import ConfigError, nearest


def total_loss(terms: Mapping[str, Tensor], weights: Mapping[str, float]) -> Float[Tensor, ""]:
    """The sum of weight times term; a weight of 0 turns a term off.

    Raises: ConfigError when a term has no weight or a weight no term.
    """
    if terms.keys() != weights.keys():
        unweighted = sorted(terms.keys() - weights.keys())
        unused = sorted(weights.keys() - terms.keys())
        if unused:
            there = ", ".join(sorted(terms))
            raise ConfigError(
                f"weights.{unused[0]}: no loss term of that name{nearest(unused[0], terms)}; there are: {there}"
            )
        raise ConfigError(f"loss term {unweighted[0]!r} has no weight; add weights.{unweighted[0]} (0 turns it off)")
    active = [weights[name] * term for name, term in terms.items() if weights[name] != 0]
    if not active:
        raise ConfigError("every loss weight is 0; give at least one term a weight")
    return sum(active[1:], start=active[0])
