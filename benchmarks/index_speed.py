"""How fast a folder is indexed, where the time goes, and how much memory it takes.

    python benchmarks/index_speed.py VIDEO... [--encoder builtin] [--files 200] [--thumbnails 5]

First VIDEO at 2 frames per second and from key frames only: seconds of video per second in total, with a new library
each time, after one file has loaded and warmed up the encoder. Then a folder with many copies, each with a few distinct
bytes appended so that all are decoded and encoded: memory of this process and its decoding child, after a tenth of the
files and at the end.
With `--thumbnails`, only the cost of thumbnails is measured.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import threading
import time
from pathlib import Path

import psutil

import untrimmed


def memory_mb() -> float:
    """Resident memory of this process and its children."""
    process = psutil.Process()
    total = process.memory_info().rss
    for child in process.children(recursive=True):
        try:
            total += child.memory_info().rss
        except psutil.NoSuchProcess:  # it ended between the two lines
            continue
    return total / 1e6


class PeakMemory:
    """The largest of many readings while the block runs."""

    def __enter__(self) -> PeakMemory:
        self.peak_mb = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._stop.wait(0.05):
            self.peak_mb = max(self.peak_mb, memory_mb())

    def __exit__(self, *exc_info: object) -> None:
        self._stop.set()
        self._thread.join()


def measure(videos: list[Path], encoder: str, *, keyframes: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        library = untrimmed.open(Path(folder) / "library")
        with tempfile.TemporaryDirectory() as warm:
            shutil.copyfile(videos[0], Path(warm, "warm.mp4"))
            with open(Path(warm, "warm.mp4"), "ab") as file:
                file.write(b"warm")
            library.index(warm, encoder=encoder, keyframes_only=keyframes)
        with PeakMemory() as memory:
            report = library.index(videos, keyframes_only=keyframes)
    times = report.timings
    mode = "key frames" if keyframes else "2 frames a second"
    print(
        f"{mode:18} {times.speed:7.1f}x real time   {times.video_s:.0f} s of video in {times.wall_s:.2f} s: "
        f"decode {times.decode_s:.2f} s, encode {times.encode_s:.2f} s, write {times.write_s:.2f} s   "
        f"peak memory {memory.peak_mb:.0f} MB"
    )


def measure_many(videos: list[Path], encoder: str, number: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "videos")
        source.mkdir()
        for i in range(number):
            video = videos[i % len(videos)]
            copy = source / f"{i:04d}{video.suffix}"
            shutil.copyfile(video, copy)
            with open(copy, "ab") as file:
                file.write(os.urandom(16))
        readings: list[float] = []
        started = time.perf_counter()
        with PeakMemory() as memory:
            report = untrimmed.open(Path(folder) / "library").index(
                source,
                encoder=encoder,
                progress=lambda step: readings.append(memory_mb()) if step.state == "done" else None,
            )
        early, late = readings[number // 10 - 1], readings[-1]
        print(
            f"{number} files  {report.timings.speed:7.1f}x real time in {time.perf_counter() - started:.0f} s   "
            f"memory after a tenth {early:.0f} MB, at the end {late:.0f} MB, peak {memory.peak_mb:.0f} MB"
        )


def used_s() -> float:
    """Processor time of this process and its ended children."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def compare_thumbnails(videos: list[Path], encoder: str, rounds: int) -> None:
    """Print what thumbnails cost: medians over rounds that index without and with them, in alternating order."""
    spent: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    for number in range(rounds + 1):  # the first round warms up
        for has_thumbnails in (False, True) if number % 2 else (True, False):
            with tempfile.TemporaryDirectory() as folder:
                started, used = time.perf_counter(), used_s()
                report = untrimmed.open(folder).index(videos, encoder=encoder, thumbnails=has_thumbnails)
                if number:
                    spent[has_thumbnails].append((time.perf_counter() - started, used_s() - used))
                if has_thumbnails:
                    size = sum(file.stat().st_size for file in Path(folder, "thumbnails").iterdir())
    ratios = [[yes[kind] / no[kind] - 1 for no, yes in zip(spent[False], spent[True], strict=True)] for kind in (0, 1)]
    wall, processor = (f"{100 * statistics.median(ratio):+.1f} %" for ratio in ratios)
    per_hour = size / report.timings.video_s * 3600
    print(f"thumbnails         time {wall}, processor time {processor}, {per_hour / 1e6:.1f} MB per hour of video")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("videos", nargs="+", type=Path)
    parser.add_argument("--encoder", default="builtin")
    parser.add_argument("--files", type=int, default=200)
    parser.add_argument("--thumbnails", type=int, default=0, metavar="ROUNDS")
    options = parser.parse_args()
    if options.thumbnails:
        compare_thumbnails(options.videos, options.encoder, options.thumbnails)
        return
    for keyframes in (False, True):
        measure(options.videos, options.encoder, keyframes=keyframes)
    if options.files:
        measure_many(options.videos, options.encoder, options.files)


if __name__ == "__main__":
    main()
