"""Threads that share the work on many rows or videos: loops that hold no lock of the interpreter while they run."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache

_here = threading.local()


def cores() -> int:
    """How many the process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="scan")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_threads.cache_clear)  # threads do not go along


def share(number: int, piece: int, work: Callable[[int, int], object]) -> None:
    """Do work on parts of a range, each by the next thread that is free; within such work, all by the same thread."""
    if getattr(_here, "shares", False) or number <= piece:
        work(0, number)
        return
    starts, lock = iter(range(0, number, piece)), threading.Lock()

    def take() -> Iterator[int]:
        while True:
            with lock:
                start = next(starts, None)
            if start is None:
                return
            yield start

    def run() -> None:
        _here.shares = True
        try:
            for start in take():
                work(start, min(start + piece, number))
        finally:
            _here.shares = False

    others = [_threads().submit(run) for _ in range(min(cores(), -(-number // piece)) - 1)]
    try:
        run()
    finally:
        for _ in take():  # where work was broken off, nothing of it begins
            pass
        for other in others:
            if not other.cancel():  # one that has not begun, behind other searches' work, has nothing left to do
                other.result()
