"""The benchmarks by name."""

from __future__ import annotations

from untrimmed.data.benchmarks import activitynet, charades, didemo, msrvtt, qvhighlights, tvr
from untrimmed.data.benchmarks.benchmark import Benchmark
from untrimmed.errors import UnknownNameError

_BENCHMARKS: dict[str, Benchmark] = {
    module.BENCHMARK.name: module.BENCHMARK for module in (tvr, activitynet, charades, didemo, msrvtt, qvhighlights)
}


def list_benchmarks() -> list[str]:
    """The names that `get_benchmark` knows, sorted."""
    return sorted(_BENCHMARKS)


def get_benchmark(name: str) -> Benchmark:
    """The benchmark of that name.

    Raises:
        UnknownNameError: with the nearest known name.
    """
    if name in _BENCHMARKS:
        return _BENCHMARKS[name]
    raise UnknownNameError.among("benchmark", name, list_benchmarks())


def find_benchmark(name: str) -> Benchmark | None:
    """The benchmark of that name, or None: people's own data sets have names of their own."""
    return _BENCHMARKS.get(name)
