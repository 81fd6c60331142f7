"""Threads in which torch works alone: what is small takes longer to be shared out than to be computed."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

import torch

from untrimmed.search.pruning.threads import cores

A = TypeVar("A")
R = TypeVar("R")

_here, _beginning = threading.local(), threading.Lock()


def each_alone(work: Callable[[A], R], items: Iterable[A]) -> list[R]:
    """Work on each item, as many at a time as there are cores; within such work, one after the other."""
    if getattr(_here, "is_alone", False):
        return [work(item) for item in items]
    return list(_threads().map(work, items))


def _threads() -> ThreadPoolExecutor:
    with _beginning:
        return _begun()


@cache
def _begun() -> ThreadPoolExecutor:
    number, before = cores(), torch.get_num_threads()
    all_there = threading.Barrier(number)

    def begin() -> None:
        torch.set_num_threads(1)
        _here.is_alone = True

    pool = ThreadPoolExecutor(number, "scores", begin)
    for started in [pool.submit(all_there.wait) for _ in range(number)]:
        started.result()
    torch.set_num_threads(before)  # of this thread, and of those to come
    return pool


def _after_fork() -> None:
    """Threads do not go along, nor is a child one of them."""
    global _beginning
    _beginning = threading.Lock()
    _begun.cache_clear()
    _here.is_alone = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
