"""The number format in which a network multiplies: one vocabulary for searching and for training.

`float32` and `bfloat16` name it, `auto` takes bfloat16 where the device is fast at it and float32 elsewhere.
The vectors that come out are float32 in any case; those of the two formats differ by rounding and may be compared.
Importing this module is quick and imports no torch.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast, get_args

from untrimmed.errors import ConfigError

Format = Literal["float32", "bfloat16"]
Precision = Literal["auto", "float32", "bfloat16"]
BUILTIN_PRODUCTS = "int8"  # of the encoder `builtin`, in its network for images, on any processor

_CPU_INFO = Path("/proc/cpuinfo")
_BFLOAT16 = ("amx_bf16",)  # avx512_bf16 alone took longer than float32: docs/decisions.md
_VNNI = ("avx512_vnni", "avx_vnni", "amx_int8")
_WITHOUT = (
    *("SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX2_VNNI_2"),
    *("AVX512_CORE", "AVX512_CORE_VNNI", "AVX512_CORE_BF16", "AVX512_CORE_FP16", "AVX10_1_512"),
)


@dataclass(frozen=True)
class NumberFormat:
    """The format in use, and why it is that one."""

    name: Format
    reason: str


def read_precision(name: str) -> Precision:
    """The choice of that name.

    Raises: ConfigError for any other name.
    """
    if name in get_args(Precision):
        return cast(Precision, name)
    raise ConfigError(f"precision is {name!r}, expected auto, float32 or bfloat16")


def choose_format(precision: str, device: str) -> NumberFormat:
    """The format for a device (as torch writes it: cpu, cuda:0, mps).

    Raises: ConfigError for an unknown precision.
    """
    chosen = read_precision(precision)
    if chosen != "auto":
        return NumberFormat(chosen, "as asked for")
    if not has_fast_bfloat16(device):
        return NumberFormat("float32", f"the {device} has no fast bf16 instructions in use")
    return NumberFormat("bfloat16", f"the {device} has fast bf16 instructions")


def has_fast_bfloat16(device: str) -> bool:
    """Whether a device multiplies bfloat16 faster than float32: a GPU with units for it, or a CPU with AMX.

    Elsewhere torch converts: on a CPU with AVX-512 but no bf16 a product took 2.4 times as long as in float32. The
    variable by which people limit oneDNN's instructions, `ONEDNN_MAX_CPU_ISA`, is heeded (limited to AVX2: 13 times).
    """
    if device.startswith("cuda"):
        import torch

        return torch.cuda.get_device_capability(device) >= (8, 0)
    if device != "cpu" or os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper() in _WITHOUT:
        return False
    return not cpu_words().isdisjoint(_BFLOAT16)


def has_exact_int8() -> bool:
    """Whether the processor is known to sum products of 8-bit numbers without saturating at 16 bits (x86 with VNNI)."""
    return not cpu_words().isdisjoint(_VNNI)


def cpu_words() -> frozenset[str]:
    """What Linux says of the processor, its instructions among it; elsewhere nothing."""
    if not _CPU_INFO.is_file():
        return frozenset()
    return frozenset(_CPU_INFO.read_text(encoding="utf-8", errors="replace").split())
