"""Run calls in a child process that has little memory, and return what each reported and the growth of its memory."""

import json
import resource
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

ROOM = 512 * 2**20
"""Address space in bytes that the calls may use beyond the imported modules. A file that takes more fails."""


def run_bounded(function: str, arguments: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    """Return for each call its `outcome` (the class of an error, or "no error"), `message` and `growth` in bytes.

    `function` is "module:name". Arguments are texts and absolute paths. `growth` is that of the peak resident memory.
    """
    request = json.dumps({"function": function, "calls": [[str(item) for item in call] for call in arguments]})
    child = subprocess.run(
        [sys.executable, "-m", "tests.bounded_memory"], input=request, capture_output=True, text=True, check=False
    )
    assert child.returncode == 0, child.stderr[-2000:]
    outcomes: list[dict[str, Any]] = json.loads(child.stdout.splitlines()[-1])
    return outcomes


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _main() -> None:
    request = json.loads(sys.stdin.read())
    module, _, name = request["function"].partition(":")
    function = getattr(import_module(module), name)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    outcomes = []
    for call in request["calls"]:
        before = _peak()
        outcome, message = "no error", ""
        try:
            function(*(Path(item) if item.startswith("/") else item for item in call))
        except Exception as error:
            outcome, message = type(error).__name__, str(error)
        outcomes.append({"outcome": outcome, "message": message, "growth": _peak() - before})
    print(json.dumps(outcomes))


if __name__ == "__main__":
    _main()
