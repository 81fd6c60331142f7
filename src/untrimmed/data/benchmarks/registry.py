"""The registry of benchmarks."""

from untrimmed.data.benchmarks import activitynet, charades, didemo, msrvtt, qvhighlights, tvr
from untrimmed.data.benchmarks.benchmark import Benchmark
from untrimmed.errors import ConfigError, UnknownNameError
from untrimmed.plugins import load_installed

_BENCHMARKS: dict[str, Benchmark] = {
    module.BENCHMARK.name: module.BENCHMARK for module in (tvr, activitynet, charades, didemo, msrvtt, qvhighlights)
}


def register_benchmark(benchmark: Benchmark) -> Benchmark:
    """Register a benchmark of another package by its name; raises ConfigError if the name is taken."""
    if benchmark.name in _BENCHMARKS:
        raise ConfigError(f"two benchmarks are named {benchmark.name!r}; give yours another name")
    _BENCHMARKS[benchmark.name] = benchmark
    return benchmark


def list_benchmarks() -> list[str]:
    """Return the names of all benchmarks, sorted."""
    load_installed()
    return sorted(_BENCHMARKS)


def get_benchmark(name: str) -> Benchmark:
    """Return the benchmark with this name; raises UnknownNameError, which suggests the most similar name."""
    if (benchmark := find_benchmark(name)) is not None:
        return benchmark
    raise UnknownNameError.among("benchmark", name, list_benchmarks())


def find_benchmark(name: str) -> Benchmark | None:
    """Return the benchmark with this name, or None if no benchmark has this name."""
    if name not in _BENCHMARKS:
        load_installed()
    return _BENCHMARKS.get(name)
