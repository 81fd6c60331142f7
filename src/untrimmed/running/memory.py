"""Keep freed memory in the process while it trains or encodes a corpus."""

import ctypes
import sys

# Parameters of glibc's mallopt(3).
_TRIM_THRESHOLD = -1
_MMAP_MAX = -4


def keep_freed_memory() -> None:
    """Make glibc keep memory that PyTorch frees, for the rest of the process. Has no effect without glibc.

    Otherwise every temporary array gets fresh pages, which the kernel clears: a fifth of a training step
    (docs/benchmarks.md). The process then keeps its largest size.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_MAX, 0)  # no separate mapping for large arrays
        mallopt(_TRIM_THRESHOLD, -1)  # never shrink the heap
