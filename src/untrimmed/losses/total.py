"""The weighted sum of a method's loss terms."""

from collections.abc import Mapping

from jaxtyping import Float
from torch import Tensor

from untrimmed.errors import ConfigError


def total_loss(terms: Mapping[str, Tensor], weights: Mapping[str, float]) -> Float[Tensor, ""]:
    """The sum of weight times term; a weight of 0 turns a term off.

    Raises: ConfigError when a term has no weight or a weight no term.
    """
    if terms.keys() != weights.keys():
        unweighted, unused = sorted(terms.keys() - weights.keys()), sorted(weights.keys() - terms.keys())
        raise ConfigError(
            f"loss terms and weights differ: terms without weight {unweighted}, weights without term {unused}; "
            "give every term of the method a weight (0 turns it off)"
        )
    active = [weights[name] * term for name, term in terms.items() if weights[name] != 0]
    if not active:
        raise ConfigError("every loss weight is 0; give at least one term a weight")
    return sum(active[1:], start=active[0])
