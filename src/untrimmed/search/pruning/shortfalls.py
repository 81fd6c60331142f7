"""What searches have shown of a rough score: by how much it falls short of the exact one of the best videos."""

from __future__ import annotations

import threading
from collections import deque

import numpy as np
from jaxtyping import Float

_LEAST_SEARCHES = 16  # after which it is known
_REMEMBERED = 64  # searches, the last ones
_CHECKED_EACH = 32  # searches, one that does without, so that what is known stays true


class Shortfalls:
    """Learned from searches that did without rough scores, and meant for those that follow."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: deque[Float[np.ndarray, " K"]] = deque(maxlen=_REMEMBERED)
        self._asked = 0

    def allowance(self, recall: float) -> float | None:
        """By no more this share of the best videos' rough scores fell short; None where a search is to show it."""
        with self._lock:
            self._asked += 1
            if len(self._seen) < _LEAST_SEARCHES or self._asked % _CHECKED_EACH == 0:
                return None
            return float(np.quantile(np.concatenate(self._seen), recall, method="higher"))

    def learn(self, shortfalls: Float[np.ndarray, " K"]) -> None:
        """Of the best videos of one search."""
        with self._lock:
            self._seen.append(shortfalls)
