"""Record the environment of a training run (versions, commit, device, threads) each time it starts or continues."""

import importlib.metadata
import json
import os
import platform
import subprocess
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from untrimmed.files import write_whole
from untrimmed.version import __version__

ENVIRONMENT = "environment.jsonl"
_PACKAGE = Path(__file__).resolve().parents[1]


def describe_environment(device: torch.device) -> dict[str, Any]:
    """Return versions, the commit of this package, the device and the number of threads, as values for JSON.

    `commit` is None if the package was not installed from git and is not in a git checkout. `commit` ends with "-dirty"
    if files of the package have changed since the commit.

    The device and the number of threads can change the last digits of results, because numbers are added in another
    order.
    """
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "untrimmed": __version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "platform": platform.platform(),
        "device": _name_of(device),
        "threads": torch.get_num_threads(),
    }


def record_environment(folder: Path, device: torch.device, *, update: int) -> None:
    """Append a record to `environment.jsonl` in a run's folder. `update` is the number of finished training steps."""
    path = folder / ENVIRONMENT
    earlier = path.read_text(encoding="utf-8") if path.is_file() else ""
    record = {"update": update, **describe_environment(device)}
    write_whole(path, f"{earlier}{json.dumps(record)}\n", is_only_writer=True)


@cache
def _commit() -> str | None:
    with suppress(importlib.metadata.PackageNotFoundError):  # the package is not installed, but run from a folder
        source = importlib.metadata.distribution("untrimmed").read_text("direct_url.json")
        commit = json.loads(source or "{}").get("vcs_info", {}).get("commit_id")
        if commit is not None:
            return str(commit)
    top, _, commit = (_git("rev-parse", "--show-toplevel", "HEAD") or "").partition("\n")
    if not commit or Path(top) / "src" / "untrimmed" != _PACKAGE:  # the package is not in a checkout of this project
        return None
    return f"{commit}-dirty" if _git("status", "--porcelain", "--", ".") else commit


def _git(*arguments: str) -> str | None:
    """Return the output of a git command in the package's folder, or None if it fails."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "-C", str(_PACKAGE), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True, env=environment)
    # git is not installed, or the folder is not a checkout, or the checkout belongs to another user
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _name_of(device: torch.device) -> str:
    if device.type == "cuda":
        return f"{device}: {torch.cuda.get_device_name(device)}"
    return f"{device}: {_processor()}, {os.cpu_count()} cores"


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
