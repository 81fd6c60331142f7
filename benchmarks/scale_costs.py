"""Machines, memory, time and money for 10^6, 10^8 and 10^9 videos, from measured constants: docs/scale.md.

    python benchmarks/scale_costs.py                       # the tables of the page
    python benchmarks/scale_costs.py --set scan_ms=30      # with another constant; every field of Constants

Nothing is measured here. The constants of the first group were measured; their comments name the source. Those of the
second group are assumptions about videos and rented machines: replace them with yours.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass, fields, replace

import numpy as np

HOUR_S, MONTH_H = 3600.0, 730.0
SIZES = (10**6, 10**8, 10**9)


@dataclass(frozen=True)
class Constants:
    # Measured on 2 cores.
    index_speed: float = 16.0  # times real time with `builtin`, 2 cores: benchmarks/index_speed.py
    scan_ms: float = 34.0  # one query on 100,000 videos of 48 rows: docs/performance.md
    rows: int = 48  # a video's: 32 clips and 16 frames
    width: int = 384
    resident_bytes: float = 3.4  # of a row's number: float16, 8 bits, and its codes: benchmarks/sizes.py
    frame_width: int = 397  # of `builtin`, float16 in the store
    record_us: float = 84.0  # to read one record of the table into memory: benchmarks/scale_constants.py
    record_bytes: float = 934.0  # of it in memory
    commit_ms: float = 13.1  # one video into the table
    merge_ms: float = 9.1  # one video of four minutes
    # Assumed.
    call_ms: float = 2.0  # a shard's response without its scan
    video_s: float = 240.0  # the mean length
    fps: float = 2.0
    machine_cores: int = 16
    machine_gb: float = 128.0
    machine_usd_h: float = 1.0
    bandwidth_gain: float = 4.0  # of such a machine's memory over that of the 2 cores that were measured
    spot_usd_h: float = 0.4  # the same machine for indexing, which may be interrupted
    storage_usd_gb_month: float = 0.023  # object storage
    load_share: float = 0.6  # of the memory that vectors and codes may take
    replicas: int = 2
    # For the simulation: a shard's time is lognormal, with occasional stalls (a page fault, other load, a restart).
    spread: float = 0.25  # standard deviation of the logarithm
    stall_share: float = 0.001
    stall_ms: float = 500.0


@dataclass(frozen=True)
class Plan:
    """The requirements of a number of videos."""

    videos: int
    index_core_h: float
    index_usd: float
    store_gb: float
    resident_gb: float
    shards: int
    per_shard: float
    scan_ms: float
    machines: int
    usd_month: float
    records_gb: float
    records_s: float
    commit_h: float
    merge_h: float

    @classmethod
    def of(cls, videos: int, c: Constants, *, most_ms: float) -> Plan:
        """Use as few shards as memory allows, but enough for one query's scan to take at most `most_ms`."""
        resident_gb = videos * c.rows * c.width * c.resident_bytes / 1e9
        each_us = c.scan_ms / 100_000 * (c.rows * c.width) / (48 * 384) / c.bandwidth_gain * 1e3
        by_memory = resident_gb / (c.machine_gb * c.load_share)
        by_time = videos * each_us / 1e3 / max(most_ms - c.call_ms, 1e-9)
        shards = max(1, math.ceil(max(by_memory, by_time)))
        core_h = videos * c.video_s / c.index_speed * 2 / HOUR_S
        stored = c.video_s * c.fps * c.frame_width * 2 + c.rows * c.width * 2
        return cls(
            videos=videos,
            index_core_h=core_h,
            index_usd=core_h / c.machine_cores * c.spot_usd_h,
            store_gb=videos * stored / 1e9,
            resident_gb=resident_gb,
            shards=shards,
            per_shard=videos / shards,
            scan_ms=videos / shards * each_us / 1e3,
            machines=shards * c.replicas,
            usd_month=shards * c.replicas * c.machine_usd_h * MONTH_H + videos * stored / 1e9 * c.storage_usd_gb_month,
            records_gb=videos * c.record_bytes / 1e9,
            records_s=videos * c.record_us / 1e6,
            commit_h=videos * c.commit_ms / 1e3 / HOUR_S,
            merge_h=videos * c.merge_ms / 1e3 / HOUR_S,
        )


def simulate(plan: Plan, c: Constants, *, how: str, queries: int = 4000, seed: int = 0) -> tuple[float, float, float]:
    """Milliseconds that half of all queries, 99 and 99.9 of 100 take, where the slowest shard decides.

    `how`: `one` replica is asked; `retry` asks the other one too once a shard is later than three times its usual time;
    `partial` answers at that time without the shards that are late.
    """
    rng = np.random.default_rng(seed)
    usual = plan.scan_ms
    slowest = np.zeros(queries)
    late_at = 3 * usual
    for _ in range(plan.shards):
        times = _times(rng, usual, c, queries)
        if how == "retry":
            times = np.minimum(times, late_at + _times(rng, usual, c, queries))
        elif how == "partial":
            times = np.minimum(times, late_at)
        slowest = np.maximum(slowest, times)
    p50, p99, p999 = np.quantile(slowest + c.call_ms, [0.5, 0.99, 0.999])
    return float(p50), float(p99), float(p999)


def _times(rng: np.random.Generator, usual: float, c: Constants, queries: int) -> np.ndarray:
    times = usual * np.exp(c.spread * rng.standard_normal(queries))
    return times + np.where(rng.random(queries) < c.stall_share, rng.exponential(c.stall_ms, queries), 0.0)


def print_tables(c: Constants, most_ms: float) -> None:
    plans = [Plan.of(videos, c, most_ms=most_ms) for videos in SIZES]
    rows = {
        "videos": [f"{p.videos:.0e}".replace("+0", "") for p in plans],
        "indexing, core hours": [f"{p.index_core_h:,.0f}" for p in plans],
        "indexing, 100 machines, days": [f"{p.index_core_h / c.machine_cores / 100 / 24:,.1f}" for p in plans],
        "indexing, USD": [f"{p.index_usd:,.0f}" for p in plans],
        "size of the library, TB": [f"{p.store_gb / 1e3:,.1f}" for p in plans],
        "vectors and codes in memory, GB": [f"{p.resident_gb:,.0f}" for p in plans],
        "shards": [f"{p.shards:,}" for p in plans],
        "videos a shard, millions": [f"{p.per_shard / 1e6:,.2f}" for p in plans],
        "time of a query on one shard, ms": [f"{p.scan_ms:,.0f}" for p in plans],
        f"machines for search, {c.replicas} replicas of each shard": [f"{p.machines:,}" for p in plans],
        "machines and storage, USD a month": [f"{p.usd_month:,.0f}" for p in plans],
        "records in one process, GB": [f"{p.records_gb:,.1f}" for p in plans],
        "reading them once, s": [f"{p.records_s:,.0f}" for p in plans],
        "one writer, a commit a video, hours": [f"{p.commit_h:,.1f}" for p in plans],
        "one merge of parts, hours": [f"{p.merge_h:,.1f}" for p in plans],
    }
    for name, cells in rows.items():
        print(f"| {name} | {' | '.join(cells)} |")
    print()
    print(
        "| a query, ms: half / 99 % / 99.9 % | "
        + " | ".join(f"{p.shards:,} shard{'s' * (p.shards > 1)}" for p in plans)
        + " |"
    )
    for how in ("one", "retry", "partial"):
        cells = ["{:,.0f} / {:,.0f} / {:,.0f}".format(*simulate(plan, c, how=how)) for plan in plans]
        print(f"| {how} | {' | '.join(cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="another constant")
    parser.add_argument("--most-ms", type=float, default=100.0, help="what half of all queries may take on a shard")
    options = parser.parse_args()
    known = {field.name: field.default for field in fields(Constants)}
    changed = {}
    for text in options.set:
        name, _, value = text.partition("=")
        if name not in known:
            parser.error(f"no constant {name!r}; known: {', '.join(known)}")
        changed[name] = type(known[name])(float(value))
    print_tables(replace(Constants(), **changed), options.most_ms)


if __name__ == "__main__":
    main()
