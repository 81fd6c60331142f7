"""A Ray cluster: workers that decode and encode videos, and actors that hold the shards of a library.

The one place that imports `ray`, when a cluster is first asked for.
"""

from __future__ import annotations

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
from untrimmed.search.indexing.video_files import EncodedFile, Failure, FileEncoder, FoundFile, KnownFile
from untrimmed.search.store.bucket import address_of
from untrimmed.search.store.records import Settings
from untrimmed.video.reader import Sampling

_CONNECT_S = 5.0
_ANSWER_S = 10.0  # how long a search waits for a shard, restarts included
_LOAD_S = 3600.0  # how long for its videos to be read
_RETRIES = 3  # of a video whose worker died
_AHEAD = 2  # videos under way for each worker, so that none waits


class RayCluster:
    """A Ray cluster at an address: `auto`, HOST:PORT, ray://HOST:PORT; `local` starts one here."""

    def __init__(self, address: str):
        """Connect.

        Raises:
            UntrimmedError: No cluster answers.
        """
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent to anybody
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        import ray

        self._address, self._ray = address, ray
        if ray.is_initialized():
            return
        try:
            host, _, port = address.rpartition("://")[2].rpartition(":")
            if host and port.isdecimal():  # where nobody listens Ray would end this process, after minutes
                socket.create_connection((host, int(port)), timeout=_CONNECT_S).close()
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (OSError, ValueError, RuntimeError) as error:
            raise UntrimmedError(
                f"{address}: no Ray cluster answers ({one_line(error)}); start one with `ray start --head`, or name "
                "its address"
            ) from error

    def engine(self, folder: Path, shards: int, replicas: int) -> ShardedEngine:
        """Return an engine that searches a library by shards on the cluster.

        Raises:
            ConfigError: There would be no shard, or more than the cluster has cores.
        """
        if shards < 1 or replicas < 1:
            raise ConfigError(f"shards is {shards} and replicas {replicas}; both must be at least 1")
        cores = int(self._ray.cluster_resources().get("CPU", 0))
        if cores < shards * replicas:
            raise ConfigError(
                f"{shards} shards of {replicas} replicas need as many cores, the cluster at {self._address} has "
                f"{cores}; take fewer shards, or add machines"
            )
        return ShardedEngine(folder, RayShards(self._ray, folder, shards, replicas))

    def workers(
        self, load: Callable[[str], LoadedEncoder], device: str, settings: Settings, sampling: Sampling
    ) -> RayWorkers:
        """Return what encodes files on the cluster for a library of these settings; `load` loads an encoder by name."""
        encoder = FileEncoder(partial(load, settings.encoder), settings.encoder_identity, settings.sampling, sampling)
        return RayWorkers(self._ray, encoder, gpu=device.startswith("cuda"))

    def close(self) -> None:
        """Leave the cluster; actors of this process end with it."""
        self._ray.shutdown()


class RayWorkers:
    """Encodes files on a cluster, each in one task: only vectors come back. A task whose worker dies is tried again."""

    def __init__(self, ray: Any, encoder: FileEncoder, *, gpu: bool):
        """`encoder` is sent to the workers, which must see the files at the same paths."""
        self._ray, self._encoder, self._gpu = ray, encoder, gpu

    def encode(
        self, files: Iterable[KnownFile], digests: frozenset[str]
    ) -> Iterator[FoundFile | EncodedFile | Failure]:
        """What became of each file, in the order in which they are done; `digests` are contents that need no work."""
        ray = self._ray
        task = ray.remote(_encode).options(num_cpus=1, num_gpus=int(self._gpu), max_retries=_RETRIES)
        encoder, known = ray.put(self._encoder), ray.put(digests)
        waiting: dict[Any, Path] = {}
        files = iter(files)
        try:
            while True:
                room = _AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1))) - len(waiting)
                for file in itertools.islice(files, max(0, room)):
                    waiting[task.remote(encoder, file, known)] = file.path
                if not waiting:
                    return
                for done in ray.wait(list(waiting), num_returns=1)[0]:
                    yield self._result(done, waiting.pop(done))
        finally:
            for left in waiting:
                ray.cancel(left, force=True)

    def _result(self, done: Any, path: Path) -> FoundFile | EncodedFile | Failure:
        try:
            result: FoundFile | EncodedFile | Failure = self._ray.get(done)
            return result
        except self._ray.exceptions.RayTaskError as error:
            raise _cause(error) from error
        except self._ray.exceptions.RayError as error:
            why = f"its worker died {_RETRIES + 1} times ({type(error).__name__})"
            return Failure(path, f"{shown(path)}: {why}; see the logs of the cluster, and index it again")


def _encode(encoder: FileEncoder, file: KnownFile, digests: frozenset[str]) -> FoundFile | EncodedFile | Failure:
    """What a task does; what it loads stays in the worker for the next."""
    return encoder(file, digests)


class RayShards:
    """The shards of a library as actors, replicas of each; one that dies is started again and reads its videos anew."""

    def __init__(self, ray: Any, folder: Path, shards: int, replicas: int):
        self._ray, self.number, self._answer_s = ray, shards, _ANSWER_S
        start = self._ray.remote(Shard).options(
            max_restarts=-1,
            max_concurrency=4,  # searches of one version go on while another one is read
            num_cpus=1,
            scheduling_strategy="SPREAD",
        )
        place = address_of(folder) or folder
        self.actors = [[start.remote(place, number, shards) for _ in range(replicas)] for number in range(shards)]
        self._turn = itertools.count()

    def ask(self, method: str, calls: Mapping[int, tuple[Any, ...]], *, patient: bool = False) -> dict[int, Any]:
        """Call a method of some shards, see `untrimmed.search.cluster.sharded.Shards`.

        A shard whose actor dies meanwhile is asked again, another replica first, until the time is over. With
        `patient` all living replicas of a shard are asked and waited for: whichever has the next turn has its videos.
        """
        first = next(self._turn)
        deadline = time.monotonic() + (_LOAD_S if patient else self._answer_s)
        replicas = len(self.actors[0])
        turns = range(first, first + (replicas if patient else 1))
        waiting = {self._call(n, turn, method, args): (n, turn) for n, args in calls.items() for turn in turns}
        answers: dict[int, Any] = {}
        while waiting and (left := deadline - time.monotonic()) > 0:
            for done in self._ray.wait(list(waiting), num_returns=1, timeout=left)[0]:
                number, turn = waiting.pop(done)
                try:
                    answers[number] = self._ray.get(done)
                except self._ray.exceptions.RayTaskError as error:
                    raise _cause(error) from error
                except self._ray.exceptions.RayActorError:
                    if patient and number in answers:
                        continue  # it will read its videos when it is asked
                    if patient or replicas == 1 or (turn - first) % replicas:
                        time.sleep(0.05)  # it is being started
                    again = turn if patient else turn + 1
                    waiting[self._call(number, again, method, calls[number])] = (number, again)
        return answers

    def _call(self, number: int, turn: int, method: str, args: tuple[Any, ...]) -> Any:
        replicas = self.actors[number]
        return getattr(replicas[turn % len(replicas)], method).remote(*args)


def _cause(error: Any) -> BaseException:
    """What the code on the cluster raised."""
    return error.cause if isinstance(error.cause, UntrimmedError) else error
