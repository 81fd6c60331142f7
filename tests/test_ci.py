"""CI installs the tools of the page, and fails if the page cannot be tested, unless a variable allows that."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def run_ci(folder, make="exit 0", **environment):
    """Run `.ci/run` with fake programs, which write their calls to `calls`."""
    (folder / "bin").mkdir()
    (folder / ".ci").mkdir()
    stubs = {"apt-get": "exit 100", "id": "echo 0", "make": make}
    for name, script in stubs.items():
        stub = folder / "bin" / name
        stub.write_text(f'#!/bin/sh\necho "{name} $*" >> {folder / "calls"}\n{script}\n')
        stub.chmod(0o755)
    for name in ("dirname", "sh"):
        (folder / "bin" / name).symlink_to(shutil.which(name))
    text = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    (folder / ".ci" / "run").write_text(text.replace("/usr/bin/chromium", str(folder / "chromium")), encoding="utf-8")
    done = subprocess.run(
        [shutil.which("bash"), folder / ".ci" / "run"],
        env={"PATH": str(folder / "bin"), **environment},
        capture_output=True,
        text=True,
    )
    calls = [line for line in (folder / "calls").read_text(encoding="utf-8").splitlines() if not line.startswith("id")]
    return done, calls


def test_skipped_steps_are_listed_last(tmp_path):
    done, calls = run_ci(tmp_path, UNTRIMMED_NO_BROWSER="1")
    assert done.returncode == 0
    assert [call.split()[:2] for call in calls] == [["make", "page-tools"], ["make", "test"], ["make", "rest"]]
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == ["NOT TESTED", "NOT TESTED"]


def test_a_failed_installation_is_tried_for_each_package_alone(tmp_path):
    done, calls = run_ci(tmp_path, make="exit 2")
    assert done.returncode == 2
    assert [call for call in calls if call.startswith("make")] == [f"make page-tools CHROMIUM={tmp_path / 'chromium'}"]
    assert sum(call.startswith("apt-get update") for call in calls) == 2


@pytest.mark.parametrize(("allowed", "fails"), [("", True), ("1", False)])
def test_a_missing_browser_fails_unless_the_variable_allows_it(allowed, fails):
    command = ["make", "page-tools", "CHROMIUM=/nonexistent/chromium"]
    environment = {**os.environ, "UNTRIMMED_NO_BROWSER": allowed}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (done.returncode != 0) == fails
    assert ("UNTRIMMED_NO_BROWSER" in done.stdout) == fails
