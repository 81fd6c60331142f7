"""The parent's side of the decoding child: starts it, asks, waits with patience but not for ever, and ends it."""

from __future__ import annotations

import fcntl
import json
import math
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from untrimmed.errors import ConfigError, FeatureError, VideoError, shown
from untrimmed.video.messages import HEADER, MAX_PIXEL_BYTES, MAX_TEXT_BYTES

IS_AT_END_S = 5.0
_SLICE_S = 60.0
_LOOK_S = 0.1  # between two looks whether to stop


@dataclass(frozen=True)
class Limits:
    """What one file may cost before it is given up.

    `memory_bytes` bounds the address space of the child (Linux only). Processor time is `cpu_s` and, for every second
    of video decoded so far, `cpu_s_per_video_s` more. `stall_s` is the longest wait for a sign of life, `total_s` that
    for all answers to one request, the asking program's own work between them included. `max_pixels` bounds the size of
    a picture (the default holds 8K); what lies behind `max_duration_s` is left out with a warning.
    """

    memory_bytes: int = 3 << 30
    cpu_s: float = 60.0
    cpu_s_per_video_s: float = 20.0
    stall_s: float = 60.0
    total_s: float = math.inf
    max_pixels: int = 8192 * 8192
    max_duration_s: float = 48 * 3600.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not value > 0:
                raise ConfigError(f"Limits.{name} is {value}, must be above 0")


class DecodeProcess:
    """One running child. It serves one request at a time; after a failure it is thrown away."""

    def __init__(self, limits: Limits, stop: threading.Event | None = None) -> None:
        """`stop`: once it is set, whoever waits for an answer gives up."""
        self.limits, self._stop = limits, stop
        self._deadline = math.inf
        # A file and no pipe: nobody has to drain it, and both sides can read it back.
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the child
        fcntl.fcntl(self._log, fcntl.F_SETFL, os.O_APPEND)  # the child empties it for every file
        package_root = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join(filter(None, [package_root, os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "untrimmed.video.decode_worker", json.dumps(asdict(limits))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            # Each thread of numpy's products reserves 41 MB of the limited address space, and there is one a core.
            env={**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"},
            cwd="/",  # python -m looks for modules here first: never in a folder of somebody's videos
            bufsize=0,
        )
        self._finalizer = weakref.finalize(self, _end, self._process, self._log)
        assert self._process.stdout is not None
        self._answers = self._process.stdout.fileno()
        self._poll = select.poll()
        self._poll.register(self._answers, select.POLLIN)

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    def ask(self, request: dict[str, Any]) -> None:
        """Send a request; its answers are read with `next_message`."""
        assert self._process.stdin is not None
        self._deadline = time.monotonic() + self.limits.total_s
        try:
            self._process.stdin.write(json.dumps(request).encode("ascii") + b"\n")
        except BrokenPipeError:
            return  # it has just died; the first read says of what

    def next_message(
        self, path: Path, on_progress: Callable[[float], None] | None = None
    ) -> tuple[dict[str, Any], bytearray]:
        """The next answer about `path`: its JSON object and its raw pixels.

        Signs of life go to `on_progress`: the time in the video, in seconds, that the decoder has come to.

        Raises:
            VideoError: the child reports a problem, died, or stays silent. Only after a report can it be used again.
        """
        while True:
            text_size, num_pixel_bytes = HEADER.unpack(self._read(HEADER.size, path))
            if text_size > MAX_TEXT_BYTES or num_pixel_bytes > MAX_PIXEL_BYTES:
                self.kill()
                raise VideoError(f"{shown(path)}: made the decoder answer nonsense; leave it out")
            message = json.loads(bytes(self._read(text_size, path)))
            pixels = self._read(num_pixel_bytes, path)
            if message["kind"] == "error":
                if message["is_fatal"]:
                    self.kill()  # it is on its way out: the next file must not meet it
                raise VideoError(f"{shown(path)}: {message['found']}; {message['advice']}")
            if message["kind"] != "progress":
                return message, pixels
            if on_progress is not None:
                on_progress(message["time_s"])

    def _read(self, size: int, path: Path) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            left_s = self._deadline - time.monotonic()
            if not self._can_read_within(min(self.limits.stall_s, left_s)):
                self.kill()
                if self._stop is not None and self._stop.is_set():
                    raise VideoError(f"{shown(path)}: was left, since the program ends; ask again when it runs")
                if left_s <= self.limits.stall_s:
                    found = f"took longer than {self.limits.total_s:g} s"
                    advice = "allow more time (Limits.total_s, cut --timeout)"
                else:
                    found = f"the decoder gave no sign of life for {self.limits.stall_s:g} s"
                    advice = (
                        "leave it out, or allow more for a slow disk or a busy machine (Limits.stall_s, cut --timeout)"
                    )
                raise VideoError(f"{shown(path)}: {found} and was stopped; {advice}")
            count = os.readv(self._answers, [view])
            if count == 0:
                raise VideoError(f"{shown(path)}: {self._cause_of_death()}")
            view = view[count:]
        return data

    def _can_read_within(self, patience_s: float) -> bool:
        """Wait for an answer, in slices: the system's timer counts no more than 24 days, and not for ever."""
        end, slice_s = time.monotonic() + patience_s, _SLICE_S if self._stop is None else _LOOK_S
        while not self._poll.poll(min(max(0.0, end - time.monotonic()), slice_s) * 1000):
            if time.monotonic() >= end or (self._stop is not None and self._stop.is_set()):
                return False
        return True

    def _cause_of_death(self) -> str:
        try:
            code = self._process.wait(IS_AT_END_S)
        except subprocess.TimeoutExpired:
            code = 0
        self._log.seek(0)
        remark = self._log.read().decode(errors="replace").strip().rpartition("\n")[2][:200]
        self.kill()
        if code == -signal.SIGXCPU:
            return (
                f"needed more processor time than {self.limits.cpu_s:g} s and {self.limits.cpu_s_per_video_s:g} s for "
                "each second of video; raise Limits.cpu_s or leave it out"
            )
        if "MemoryError" in remark:
            return "needs more memory than the limit; raise Limits.memory_bytes or leave it out"
        if code < 0:
            name = signal.Signals(-code).name
            reason = "out of memory, or killed by hand" if name == "SIGKILL" else "a crash"
            return f"the decoder was ended by {name} ({reason}); try again, or leave the file out"
        return f"the decoder ended with status {code} ({remark or 'no message'}); leave the file out"

    @property
    def is_alive(self) -> bool:
        """Whether it can take a request."""
        return self._finalizer.alive and self._process.poll() is None

    def kill(self) -> None:
        """End the child now and collect it. Harmless when it has ended."""
        self._finalizer()


def _end(process: subprocess.Popen[bytes], log: IO[bytes]) -> None:
    process.kill()
    # A child that hangs in the kernel on a dead network disk dies when the disk comes back, and not before.
    deadline = time.monotonic() + IS_AT_END_S
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    for pipe in (process.stdin, process.stdout, log):
        if pipe is not None:
            pipe.close()


def require_decoder() -> None:
    """Say what to install where PyAV is not there.

    Raises:
        FeatureError: it is not.
    """
    import importlib.util

    if importlib.util.find_spec("av") is None:
        raise FeatureError("video files are decoded with PyAV, which is not installed; pip install 'untrimmed[video]'")
