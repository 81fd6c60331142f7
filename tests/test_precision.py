"""Number formats, and the meaning of `auto` on processors that this machine may not have."""

import pytest
import torch

from untrimmed import precision
from untrimmed.errors import ConfigError
from untrimmed.precision import choose_format, has_exact_int8, has_fast_bfloat16, read_precision

PROCESSORS = {  # flags as Linux lists them -> whether bfloat16 is fast
    "flags\t\t: fpu sse4_2 avx2 fma": False,
    "flags\t\t: fpu avx512f avx512_vnni": False,
    "flags\t\t: fpu avx512f avx512_bf16": False,  # torch was slower than in float32
    "flags\t\t: fpu avx512f avx512_bf16 amx_bf16 amx_tile": True,
    "Features\t: fp asimd bf16 i8mm": False,  # Arm: the speed of torch is not measured there
    None: False,  # no such file on this system
}


@pytest.fixture(params=PROCESSORS)
def processor(request, monkeypatch, tmp_path):
    """The flags of a processor, without this machine's environment variables."""
    info = tmp_path / "cpuinfo"
    if request.param is not None:
        info.write_text(f"model name\t: any\n{request.param}\n")
    monkeypatch.setattr(precision, "_CPU_INFO", info)
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    return request.param


def test_auto_is_bfloat16_only_on_processors_with_fast_bfloat16(processor):
    quick = PROCESSORS[processor]
    assert has_fast_bfloat16("cpu") == quick
    chosen = choose_format("auto", "cpu")
    assert chosen.name == ("bfloat16" if quick else "float32")


def test_int8_sums_are_exact_on_processors_with_vnni(processor):
    assert has_exact_int8() == (processor is not None and "vnni" in processor)


def test_a_requested_format_is_used_on_any_processor(processor):
    for name in ("float32", "bfloat16"):
        assert choose_format(name, "cpu").name == name


@pytest.mark.parametrize(
    ("limit", "quick"),
    [("AVX2", False), ("avx512_core", False), ("AVX512_CORE_BF16", False), ("AVX512_CORE_AMX", True)],
)
def test_disabled_instructions_do_not_count(limit, quick, monkeypatch, tmp_path):
    (tmp_path / "cpuinfo").write_text("flags : amx_bf16")
    monkeypatch.setattr(precision, "_CPU_INFO", tmp_path / "cpuinfo")
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)
    assert has_fast_bfloat16("cpu") == quick


@pytest.mark.parametrize(("capability", "quick"), [((7, 5), False), ((8, 0), True), ((9, 0), True)])
def test_bfloat16_on_a_gpu_depends_on_its_generation(capability, quick, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert has_fast_bfloat16("cuda:1") == quick
    assert not has_fast_bfloat16("mps")


@pytest.mark.parametrize("name", ["fp17", "bf16"])
def test_an_unknown_precision_is_refused(name):
    with pytest.raises(ConfigError, match=name):
        read_precision(name)
