"""The number format of matrix products in search and training: float32, bfloat16 or auto.

`auto` is bfloat16 on devices where it is faster, and float32 elsewhere. The resulting vectors are always float32.
Vectors computed in different formats can be compared, because they differ only by rounding. Importing this module does
not import torch.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast, get_args

from untrimmed.errors import ConfigError

Format = Literal["float32", "bfloat16"]
Precision = Literal["auto", "float32", "bfloat16"]
BUILTIN_PRODUCTS = "int8"  # the fixed format of the image network of the encoder `builtin`

_CPU_INFO = Path("/proc/cpuinfo")
_BFLOAT16 = ("amx_bf16",)  # with avx512_bf16 but without AMX, bfloat16 was slower than float32 (docs/decisions.md)
_VNNI = ("avx512_vnni", "avx_vnni", "amx_int8")
_WITHOUT = (
    *("SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX2_VNNI_2"),
    *("AVX512_CORE", "AVX512_CORE_VNNI", "AVX512_CORE_BF16", "AVX512_CORE_FP16", "AVX10_1_512"),
)


@dataclass(frozen=True)
class NumberFormat:
    """A number format and the reason for choosing it."""

    name: Format
    reason: str


def read_precision(name: str) -> Precision:
    """Check the name of a precision, and return it unchanged.

    Raises: ConfigError for an unknown name.
    """
    if name in get_args(Precision):
        return cast(Precision, name)
    raise ConfigError(f"precision is {name!r}, expected auto, float32 or bfloat16")


def choose_format(precision: str, device: str) -> NumberFormat:
    """Return the number format for a device. `device` is a torch name: cpu, cuda:0, mps.

    Raises: ConfigError for an unknown precision.
    """
    choice = read_precision(precision)
    if choice != "auto":
        return NumberFormat(choice, "as requested")
    if not has_fast_bfloat16(device):
        return NumberFormat("float32", f"the {device} has no fast bf16 instructions in use")
    return NumberFormat("bfloat16", f"the {device} has fast bf16 instructions")


def has_fast_bfloat16(device: str) -> bool:
    """Whether a device multiplies bfloat16 faster than float32: a GPU with bfloat16 units, or a CPU with AMX.

    On other devices torch converts the numbers, which is slow. On a CPU with AVX-512 but without bfloat16 instructions,
    a bfloat16 product took 2.4 times as long as a float32 product. If `ONEDNN_MAX_CPU_ISA` limited oneDNN to AVX2, a
    bfloat16 product took 13 times as long. Therefore the result is False if there is such a limit.
    """
    if device.startswith("cuda"):
        import torch

        return torch.cuda.get_device_capability(device) >= (8, 0)
    if device != "cpu" or os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper() in _WITHOUT:
        return False
    return not cpu_words().isdisjoint(_BFLOAT16)


def has_exact_int8() -> bool:
    """Whether the processor sums products of 8-bit numbers exactly (x86 with VNNI).

    x86 processors without VNNI limit the sums to 16 bits.
    """
    return not cpu_words().isdisjoint(_VNNI)


def cpu_words() -> frozenset[str]:
    """Return the words of /proc/cpuinfo, which include the instruction sets. Empty on systems other than Linux."""
    if not _CPU_INFO.is_file():
        return frozenset()
    return frozenset(_CPU_INFO.read_text(encoding="utf-8", errors="replace").split())
