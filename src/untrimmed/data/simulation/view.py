"""How hidden meaning appears in features: a fixed random network, nonlinear, with weights of its own for each view."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

HIDDEN_DIM = 128
STEEPNESS = 3.0
THRESHOLDS = 0.3
"""Spread of where hidden units turn, against rows of length 1. Steep units, so that a linear map read from means tells
little of single frames (docs/data.md); a larger spread would give all rows more in common than what tells them apart.
"""


class View:
    """A map of rows of length about 1 to features: two layers with a tanh between them, never trained.

    `shift` is the mean of the features before `ReLU`, which a view that cannot be negative applies by itself.
    """

    def __init__(self, rng: np.random.Generator, inputs: int, outputs: int, *, shift: float = 0.0):
        self._inner = STEEPNESS * rng.standard_normal((inputs, HIDDEN_DIM), dtype=np.float32)
        self._inner_bias = STEEPNESS * THRESHOLDS * rng.standard_normal(HIDDEN_DIM, dtype=np.float32)
        self._outer = rng.standard_normal((HIDDEN_DIM, outputs), dtype=np.float32) / np.float32(HIDDEN_DIM**0.5)
        self._outer_bias = np.float32(shift) + 0.2 * rng.standard_normal(outputs, dtype=np.float32)

    def __call__(self, rows: Float[np.ndarray, "N I"]) -> Float[np.ndarray, "N O"]:
        """What the rows look like, float32."""
        hidden = rows.astype(np.float32) @ self._inner + self._inner_bias
        np.tanh(hidden, out=hidden)
        seen: np.ndarray = hidden @ self._outer
        seen += self._outer_bias
        return seen
