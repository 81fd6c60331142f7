"""The run that every change must pass says what it could not test."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

RUN = Path(__file__).resolve().parents[1] / ".ci" / "run"
LEFT_OUT = "NOT TESTED: the page, because Chromium could not be installed"


@pytest.mark.parametrize("result", [0, 2])
def test_a_browser_that_cannot_be_installed_is_named_in_the_last_line(tmp_path, result):
    made = {"apt-get": "exit 100", "id": "echo 0", "npm": "", "make": f"echo tested; exit {result}"}
    (tmp_path / "bin").mkdir()
    for name, script in made.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / ".ci").mkdir()
    (tmp_path / ".ci" / "run").write_text(RUN.read_text().replace("/usr/bin/chromium", str(tmp_path / "chromium")))
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    done = subprocess.run(
        [shutil.which("bash"), tmp_path / ".ci" / "run"],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.splitlines()) == (result, ["tested", LEFT_OUT])
