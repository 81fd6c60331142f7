"""How the process holds on to memory while it trains or encodes a corpus."""

import ctypes
import sys

# Parameters of glibc's mallopt(3).
_TRIM_THRESHOLD = -1
_MMAP_MAX = -4


def keep_freed_memory() -> None:
    """Have the C library keep what PyTorch frees, for the rest of the process; glibc only, elsewhere nothing happens.

    Temporary arrays are tens of megabytes. By default each goes back to the system when it is freed and its successor
    comes as fresh pages, which the kernel has to clear: a fifth of a training step (docs/benchmarks.md). The process
    then stays as large as it once was.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_MAX, 0)  # no mapping of its own for a large array
        mallopt(_TRIM_THRESHOLD, -1)  # and the heap never shrinks
