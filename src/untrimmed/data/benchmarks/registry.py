"""The benchmarks by name."""

from untrimmed.data.benchmarks import activitynet, charades, didemo, msrvtt, qvhighlights, tvr
from untrimmed.data.benchmarks.benchmark import Benchmark
from untrimmed.errors import ConfigError, UnknownNameError
from untrimmed.plugins import load_installed

_BENCHMARKS: dict[str, Benchmark] = {
    module.BENCHMARK.name: module.BENCHMARK for module in (tvr, activitynet, charades, didemo, msrvtt, qvhighlights)
}


def register_benchmark(benchmark: Benchmark) -> Benchmark:
    """Register a benchmark from outside this package by its name; raises ConfigError if the name is taken."""
    if benchmark.name in _BENCHMARKS:
        raise ConfigError(f"two benchmarks are named {benchmark.name!r}; give yours another name")
    _BENCHMARKS[benchmark.name] = benchmark
    return benchmark


def list_benchmarks() -> list[str]:
    """The names that `get_benchmark` knows, sorted."""
    load_installed()
    return sorted(_BENCHMARKS)


def get_benchmark(name: str) -> Benchmark:
    """Return the benchmark of that name; an UnknownNameError suggests the nearest known name."""
    if (found := find_benchmark(name)) is not None:
        return found
    raise UnknownNameError.among("benchmark", name, list_benchmarks())


def find_benchmark(name: str) -> Benchmark | None:
    """The benchmark of that name, or None: people's own data sets have names of their own."""
    if name not in _BENCHMARKS:
        load_installed()
    return _BENCHMARKS.get(name)
