"""The initial weight distribution of the released programs."""

from torch import nn

from untrimmed.nn.attention import StackedSelfAttention
from untrimmed.nn.linear import StackedLinear
from untrimmed.nn.lorentz import LorentzLinear


def initialise(model: nn.Module, std: float = 0.02) -> None:
    """Draw all linear and embedding weights from normal(0, std) and set linear biases to 0, in place.

    If a module has an attribute `init_std`, this value replaces `std`. Layer norms keep gain 1 and bias 0. Other
    parameters (tokens, prototypes) keep their values.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding | StackedLinear | StackedSelfAttention | LorentzLinear):
            nn.init.normal_(module.weight, std=getattr(module, "init_std", std))
            bias = getattr(module, "bias", None)
            if bias is not None:
                nn.init.zeros_(bias)
