"""Exit codes of commands whose output is closed."""

import os
import subprocess
import sys

import pytest

from tests.search.store.test_table import SETTINGS, stored
from untrimmed.search.store.table import VideoIndex


@pytest.mark.parametrize("options", [[], ["--json"]], ids=["table", "json"])
def test_a_closed_pipe_has_its_own_exit_code(tmp_path, options):
    with VideoIndex(tmp_path / "library", create=True) as index:
        index.write_settings(SETTINGS)
        index.put(stored("/v/a.mp4"))
    reader, writer = os.pipe()
    os.close(reader)  # as `| head -1` does
    command = [sys.executable, "-m", "untrimmed", "ls", "--library", tmp_path / "library", *options]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")
