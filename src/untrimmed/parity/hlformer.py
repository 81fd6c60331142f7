"""The golden cases of HLFormer."""

import numpy as np

from untrimmed.parity.case import Arrays, Case
from untrimmed.parity.compare import RULES, Rules, Tolerance
from untrimmed.parity.data_cases import gaussian_window
from untrimmed.parity.lorentz import hyperbolic_maps, lorentz_attention
from untrimmed.parity.registry import MethodParity, parity_of

COLLINEAR = 0.01  # a smaller sine of an angle


@parity_of("hlformer")
class HLFormerParity(MethodParity):
    """The formulas alone."""

    def produce(self, case: Case) -> Arrays:
        """Maps, a Lorentz block, windows."""
        if case.kind == "gaussian-window":
            return {f"expected/{name}": window for name, window in gaussian_window(case).items()}
        return hyperbolic_maps(case) if case.kind == "hyperbolic-maps" else lorentz_attention(case)

    def rules(self, case: Case) -> Rules:
        """Single formulas have limits of their own, those of the golden data's README.

        In the curvature's gradient at 0.1 terms of 1e5 cancel to 15: single precision is 3e-4 of it off.
        """
        if case.kind == "hyperbolic-maps":
            return (
                (r"expected/c0\.1\.grad_curvature", Tolerance(1e-3)),
                (r"expected/.*grad_curvature", Tolerance(1e-4)),
                (r"expected/.*grad.*", Tolerance(5e-5)),
                (r"expected/.*angle", Tolerance(1e-5)),
                (r"expected/", Tolerance(2e-6)),
            )
        if case.kind == "lorentz-attention":
            return ((r"expected/", Tolerance(1e-5, 1e-5)),)
        return RULES

    def align(
        self, case: Case, name: str, ours: np.ndarray, theirs: np.ndarray, exact: Arrays
    ) -> tuple[np.ndarray, np.ndarray]:
        """Single formulas are compared relative to what is above 1; angles near 0 and pi, which hold the root of the
        rounding of their cosine, by that."""
        if case.kind != "hyperbolic-maps" or ours.shape != theirs.shape:
            return super().align(case, name, ours, theirs, exact)
        if name.endswith(".angle"):
            is_collinear = np.sin(theirs) < COLLINEAR
            return np.where(is_collinear, np.cos(ours), ours), np.where(is_collinear, np.cos(theirs), theirs)
        scale = np.maximum(1, np.abs(theirs))
        return np.asarray(ours / scale), np.asarray(theirs / scale)
