"""Keep freed memory in the process during training and encoding, and explain out-of-memory errors."""

import ctypes
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from untrimmed.devices import is_out_of_memory
from untrimmed.errors import ConfigError

# Numbers of parameters of glibc's function mallopt(3).
_TRIM_THRESHOLD = -1
_MMAP_MAX = -4


def keep_freed_memory() -> None:
    """Make glibc keep the memory that PyTorch frees, until the process ends. Without glibc, this has no effect.

    This saves a fifth of the time of a training step. Otherwise, the kernel would clear new pages for temporary arrays.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_MAX, 0)  # never use a separate memory mapping for a large array
        mallopt(_TRIM_THRESHOLD, -1)  # never shrink the heap


@contextmanager
def explaining_memory(device: torch.device, advice: str) -> Iterator[None]:
    """Return a context that replaces an out-of-memory error by a ConfigError.

    The message contains the used, the requested and the total memory, followed by `advice`.
    """
    try:
        yield
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        peak_bytes, total = _used_and_total(device)
        requested = _requested_bytes(str(error))
        more = f" and asked for {_gib(requested)} more" if requested else ""
        raise ConfigError(
            f"out of memory: {device} has {_gib(total)}, this process used {_gib(peak_bytes)}{more}; {advice}"
        ) from error


def _used_and_total(device: torch.device) -> tuple[int, int]:
    """Return the peak memory use of this process on a device, and the total memory of the device, in bytes."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device), torch.cuda.mem_get_info(device)[1]
    import resource

    in_bytes = 1 if sys.platform == "darwin" else 1024
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * in_bytes, total


def _requested_bytes(message: str) -> int:
    """Return the requested bytes in an out-of-memory message of PyTorch or NumPy, or 0 if it contains no number.

    >>> _requested_bytes("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has ..."), _requested_bytes("no")
    (20971520, 0)
    """
    match = re.search(r"(?:tried|Tried|Unable) to allocate ([\d.]+) (bytes|[KMGT]iB)", message)
    return int(float(match[1]) * 1024 ** "bKMGT".index(match[2][0])) if match else 0


def _gib(size: float) -> str:
    return f"{size / 2**30:.1f} GiB"
