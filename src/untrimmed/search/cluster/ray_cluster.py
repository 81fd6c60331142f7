"""A Ray cluster: its workers decode and encode videos, and its actors search the shards of a library.

This is the only module that imports `ray`.
"""

import itertools
import logging
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from untrimmed.encoders.registry import LoadedEncoder
from untrimmed.errors import ConfigError, UntrimmedError, one_line, shown
from untrimmed.search.cluster.sharded import Shard, ShardedEngine
from untrimmed.search.indexing.video_files import Failure, FileEncoder, FileResult, FileToIndex, Workers
from untrimmed.search.store.bucket import address_of
from untrimmed.search.store.records import Settings

_CONNECT_S = 5.0
_ANSWER_S = 10.0  # a search waits at most this long for the answer of a shard, including restarts
_LOAD_S = 3600.0  # a search waits at most this long until a shard has read its videos
_RETRIES = 3  # number of retries for a video if its worker dies
_TASKS_PER_CORE = 2  # queued tasks per core, so that no worker is idle


class RayCluster:
    """A Ray cluster at an address: `auto`, HOST:PORT or ray://HOST:PORT. `local` starts one on this machine."""

    def __init__(self, address: str):
        """Connect to the cluster. Raises: UntrimmedError if there is no cluster at the address."""
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        import ray

        self._address = address
        self._ray = ray
        if ray.is_initialized():
            return
        try:
            host, _, port = address.rpartition("://")[2].rpartition(":")
            if host and port.isdecimal():  # if no cluster answered, Ray would end this process after some minutes
                socket.create_connection((host, int(port)), timeout=_CONNECT_S).close()
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (OSError, ValueError, RuntimeError) as error:
            raise UntrimmedError(
                f"{address}: no Ray cluster answers ({one_line(error)}); start one with `ray start --head`, or name "
                "its address"
            ) from error

    def engine(self, folder: Path, shards: int, replicas: int) -> ShardedEngine:
        """Return an engine that searches a library in shards.

        Raises:
            ConfigError: `shards` or `replicas` is below 1, or the cluster has too few cores.
        """
        if shards < 1 or replicas < 1:
            raise ConfigError(f"shards is {shards} and replicas {replicas}; both must be at least 1")
        cores = int(self._ray.cluster_resources().get("CPU", 0))
        if cores < shards * replicas:
            raise ConfigError(
                f"{shards} shards of {replicas} replicas need {shards * replicas} cores, the cluster at "
                f"{self._address} has {cores}; use fewer shards, or add machines"
            )
        return ShardedEngine(folder, RayShards(self._ray, folder, shards, replicas))

    def workers(self, load: Callable[[str], LoadedEncoder], device: str, settings: Settings) -> Workers:
        """Return a function that encodes files on the cluster, for a library with these settings.

        The workers must see the files at the same paths. Each file is one Ray task, which returns only vectors. If a
        worker dies, its task is repeated. `load` loads an encoder by its name; it is sent to the workers.
        """
        return partial(self._encode, FileEncoder(load, settings), int(device.startswith("cuda")))

    def close(self) -> None:
        """Disconnect from the cluster, which ends the actors of this process."""
        self._ray.shutdown()

    def _encode(
        self, encoder: FileEncoder, gpus: int, files: Iterable[FileToIndex], digests: frozenset[str]
    ) -> Iterator[FileResult]:
        ray = self._ray
        task = ray.remote(_encode_file).options(num_cpus=1, num_gpus=gpus, max_retries=_RETRIES)
        arguments = ray.put(encoder), ray.put(digests)
        running: dict[Any, Path] = {}
        files = iter(files)
        try:
            while True:
                room = _TASKS_PER_CORE * max(1, int(ray.cluster_resources().get("CPU", 1))) - len(running)
                for file in itertools.islice(files, max(0, room)):
                    running[task.remote(file, *arguments)] = file.path
                if not running:
                    return
                for finished in ray.wait(list(running), num_returns=1)[0]:
                    yield self._result_of(finished, running.pop(finished))
        finally:
            for task_id in running:
                ray.cancel(task_id, force=True)

    def _result_of(self, finished: Any, path: Path) -> FileResult:
        try:
            result: FileResult = self._ray.get(finished)
            return result
        except self._ray.exceptions.RayTaskError as error:
            raise _cause(error) from error
        except self._ray.exceptions.RayError as error:
            reason = f"its worker died {_RETRIES + 1} times ({type(error).__name__})"
            return Failure(path, f"{shown(path)}: {reason}; see the logs of the cluster, and index it again")


def _encode_file(file: FileToIndex, encoder: FileEncoder, digests: frozenset[str]) -> FileResult:
    return encoder(file, digests)


class RayShards:
    """The shards of a library, each in one or more Ray actors (replicas).

    An actor that dies restarts and reads its videos again.
    """

    def __init__(self, ray: Any, folder: Path, shards: int, replicas: int):
        self._ray = ray
        self.number = shards
        self._answer_s = _ANSWER_S
        start = ray.remote(Shard).options(
            max_restarts=-1,
            max_concurrency=4,  # searches continue while a new version is read
            num_cpus=1,
            scheduling_strategy="SPREAD",
        )
        library = address_of(folder) or folder
        self.actors = [[start.remote(library, number, shards) for _ in range(replicas)] for number in range(shards)]
        self._turn = itertools.count()

    def call(self, method: str, calls: Mapping[int, tuple[Any, ...]], *, wait_for_load: bool = False) -> dict[int, Any]:
        """Call a method of several shards, and return the results that arrive in time, by shard number.

        `calls` contains the arguments for each shard. If an actor dies, the next replica is called, until the time
        limit. With `wait_for_load`, all replicas of a shard are called, so that each replica reads its videos, and
        replicas that die are called again.
        """
        first = next(self._turn)
        deadline = time.monotonic() + (_LOAD_S if wait_for_load else self._answer_s)
        replicas = len(self.actors[0])
        turns = range(first, first + (replicas if wait_for_load else 1))
        waiting = {self._call(n, turn, method, args): (n, turn) for n, args in calls.items() for turn in turns}
        answers: dict[int, Any] = {}
        while waiting and (left := deadline - time.monotonic()) > 0:
            for finished in self._ray.wait(list(waiting), num_returns=1, timeout=left)[0]:
                number, turn = waiting.pop(finished)
                try:
                    answers[number] = self._ray.get(finished)
                except self._ray.exceptions.RayTaskError as error:
                    raise _cause(error) from error
                except self._ray.exceptions.RayActorError:
                    if wait_for_load and number in answers:
                        continue  # another replica has answered; this one reads its videos at its next call
                    if wait_for_load or replicas == 1 or (turn - first) % replicas:
                        time.sleep(0.05)  # give the actor time to restart
                    turn = turn if wait_for_load else turn + 1
                    waiting[self._call(number, turn, method, calls[number])] = (number, turn)
        return answers

    def _call(self, number: int, turn: int, method: str, args: tuple[Any, ...]) -> Any:
        replicas = self.actors[number]
        return getattr(replicas[turn % len(replicas)], method).remote(*args)


def _cause(error: Any) -> BaseException:
    """Return the UntrimmedError that caused an error of Ray, or Ray's error if there is none."""
    return error.cause if isinstance(error.cause, UntrimmedError) else error
