"""Start a decoding child process, send requests to it, wait for answers within limits, and stop it."""

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

from untrimmed.errors import ConfigError, FeatureError, VideoError, install_advice, shown
from untrimmed.video.messages import HEADER, MAX_PIXEL_BYTES, MAX_TEXT_BYTES

EXIT_WAIT_S = 5.0
_SLICE_S = 60.0
_STOP_CHECK_S = 0.1  # time between checks of `stop`


@dataclass(frozen=True)
class Limits:
    """Resource limits for decoding one file.

    - `memory_bytes`: the child's address space (Linux only).
    - `cpu_s`, `cpu_s_per_video_s`: processor time: `cpu_s`, plus `cpu_s_per_video_s` for each second of decoded video.
    - `stall_s`: longest wait for any message.
    - `total_s`: longest time for all answers to one request. It includes the time that the caller needs between them.
    - `max_pixels`: pixels of a picture (the default allows 8K).
    - `max_duration_s`: a longer video is cut off with a warning; a longer folder of pictures is refused.
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
                raise ConfigError(f"Limits.{name} is {value}, expected a value above 0")


class DecodeProcess:
    """A running child process. It serves one request at a time and is discarded after a failure."""

    def __init__(self, limits: Limits, stop: threading.Event | None = None) -> None:
        """Start the child. If another thread sets `stop`, waiting for an answer raises a VideoError."""
        self.limits = limits
        self._stop = stop
        self._deadline = math.inf
        # The log is a file, because a pipe can fill up, and both processes can read a file.
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the child
        fcntl.fcntl(self._log, fcntl.F_SETFL, os.O_APPEND)  # the child truncates it for every request
        package_root = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join(filter(None, [package_root, os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "untrimmed.video.decode_worker", json.dumps(asdict(limits))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            # Each OpenBLAS thread (one per core) reserves 41 MB of the limited address space.
            env={**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"},
            cwd="/",  # `python -m` imports from the current folder first, which could contain untrusted files
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
        """Send a request. Read the answers with `next_message`."""
        assert self._process.stdin is not None
        self._deadline = time.monotonic() + self.limits.total_s
        try:
            self._process.stdin.write(json.dumps(request).encode("ascii") + b"\n")
        except BrokenPipeError:
            return  # the child has just died; `next_message` reports the cause

    def next_message(
        self, path: Path, on_progress: Callable[[float], None] | None = None
    ) -> tuple[dict[str, Any], bytearray]:
        """Return the next answer about `path`: its JSON object and its raw pixels.

        `on_progress` is called with the time in the video that the decoder has reached, in seconds.

        Raises:
            VideoError: The child reported a problem, died, or sent nothing in time. Check `is_alive` before using the
                child again.
        """
        while True:
            text_size, num_pixel_bytes = HEADER.unpack(self._read(HEADER.size, path))
            if text_size > MAX_TEXT_BYTES or num_pixel_bytes > MAX_PIXEL_BYTES:
                self.kill()
                raise VideoError(f"{shown(path)}: the decoder sent an invalid answer; leave the file out")
            message = json.loads(bytes(self._read(text_size, path)))
            pixels = self._read(num_pixel_bytes, path)
            if message["kind"] == "error":
                if message["is_fatal"]:
                    self.kill()  # the child is about to exit and must not get the next file
                raise VideoError(f"{shown(path)}: {message['problem']}; {message['advice']}")
            if message["kind"] != "progress":
                return message, pixels
            if on_progress is not None:
                on_progress(message["time_s"])

    def _read(self, size: int, path: Path) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            remaining_s = self._deadline - time.monotonic()
            if not self._can_read_within(min(self.limits.stall_s, remaining_s)):
                self.kill()
                if self._stop is not None and self._stop.is_set():
                    raise VideoError(
                        f"{shown(path)}: decoding was cancelled because the program is exiting; try again later"
                    )
                if remaining_s <= self.limits.stall_s:
                    problem = f"decoding took longer than {self.limits.total_s:g} s"
                    advice = "allow more time (Limits.total_s, cut --timeout)"
                else:
                    problem = f"the decoder sent nothing for {self.limits.stall_s:g} s"
                    advice = (
                        "leave the file out, or allow more time if the disk is slow (Limits.stall_s, cut --timeout)"
                    )
                raise VideoError(f"{shown(path)}: {problem} and was stopped; {advice}")
            count = os.readv(self._answers, [view])
            if count == 0:
                raise VideoError(f"{shown(path)}: {self._cause_of_death()}")
            view = view[count:]
        return data

    def _can_read_within(self, patience_s: float) -> bool:
        """Return whether an answer arrives in time. Long waits are split, because `poll` waits at most 24 days."""
        end = time.monotonic() + patience_s
        slice_s = _SLICE_S if self._stop is None else _STOP_CHECK_S
        while self._stop is None or not self._stop.is_set():
            if self._poll.poll(min(max(0.0, end - time.monotonic()), slice_s) * 1000):
                return True
            if time.monotonic() >= end:
                break
        return False

    def _cause_of_death(self) -> str:
        try:
            code = self._process.wait(EXIT_WAIT_S)
        except subprocess.TimeoutExpired:
            code = 0
        self._log.seek(0)
        remark = self._log.read().decode(errors="replace").strip().rpartition("\n")[2][:200]
        self.kill()
        if code == -signal.SIGXCPU:
            return (
                f"needed more processor time than {self.limits.cpu_s:g} s plus {self.limits.cpu_s_per_video_s:g} s for "
                "each second of video; raise Limits.cpu_s or leave the file out"
            )
        if "MemoryError" in remark:
            return "needs more memory than the limit; raise Limits.memory_bytes or leave the file out"
        if code < 0:
            name = signal.Signals(-code).name
            reason = "out of memory, or killed by a user" if name == "SIGKILL" else "a crash"
            return f"the decoder was ended by {name} ({reason}); try again, or leave the file out"
        return f"the decoder ended with status {code} ({remark or 'no message'}); leave the file out"

    @property
    def is_alive(self) -> bool:
        """Whether the child can take a request."""
        return self._finalizer.alive and self._process.poll() is None

    def kill(self) -> None:
        """Kill the child, unless it has already exited, and wait for its exit."""
        self._finalizer()


def _end(process: subprocess.Popen[bytes], log: IO[bytes]) -> None:
    process.kill()
    # if the child waits for a network disk that does not respond, it exits only when the disk responds again
    deadline = time.monotonic() + EXIT_WAIT_S
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    for pipe in (process.stdin, process.stdout, log):
        if pipe is not None:
            pipe.close()


def require_decoder() -> None:
    """Check that PyAV is installed.

    Raises:
        FeatureError: PyAV is not installed.
    """
    import importlib.util

    if importlib.util.find_spec("av") is None:
        raise FeatureError(f"decoding video needs PyAV, which is not installed; {install_advice('video')}")
