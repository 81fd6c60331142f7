"""Libraries that send statistics about their use are told not to."""

import os
import subprocess
import sys


def test_onnxruntime_sends_no_statistics(tmp_path):
    settings = {name: value for name, value in os.environ.items() if not name.endswith("_TELEMETRY")}
    settings |= {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    program = "import untrimmed, onnxruntime; onnxruntime.SessionOptions()"
    subprocess.run([sys.executable, "-c", program], env=settings, check=True)
    assert not list(tmp_path.rglob("*")), "onnxruntime stores an id of the device and statistics before it sends them"
