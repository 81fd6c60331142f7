"""Divide work on many rows or videos among threads. This saves time only if the work releases the interpreter lock."""

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache

_current = threading.local()


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="scan")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_threads.cache_clear)  # a child process has no threads


def share_work(number: int, piece: int, work: Callable[[int, int], object]) -> None:
    """Call `work(start, stop)` for pieces of the range from 0 to `number`, on several threads.

    Calls from within `work` use only the current thread.
    """
    if getattr(_current, "shares", False) or number <= piece:
        work(0, number)
        return
    starts = iter(range(0, number, piece))
    lock = threading.Lock()

    def take() -> Iterator[int]:
        while True:
            with lock:
                start = next(starts, None)
            if start is None:
                return
            yield start

    def run() -> None:
        _current.shares = True
        try:
            for start in take():
                work(start, min(start + piece, number))
        finally:
            _current.shares = False

    futures = [_threads().submit(run) for _ in range(min(cores(), -(-number // piece)) - 1)]
    try:
        run()
    finally:
        for _ in take():  # after an error, take the remaining pieces without starting them
            pass
        for future in futures:
            if not future.cancel():  # wait for calls that have started; there are no pieces left for the others
                future.result()
