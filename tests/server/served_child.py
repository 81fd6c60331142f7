"""A service with the toy encoder in its own process: `python -m tests.server.served_child LIBRARY VIDEOS PORT`.

It prints its port and ends when its standard input is closed.
"""

import os
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import untrimmed
from tests.toy import ToyEncoder
from untrimmed.encoders.registry import LoadedEncoder
from untrimmed.search import library as library_module
from untrimmed.server.app import create_app
from untrimmed.server.run import run_app


@contextmanager
def serving(library, videos, port=0):
    """The process and its address. The process ends with the block."""
    command = [sys.executable, "-m", "tests.server.served_child", str(library), str(videos), str(port)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=Path(__file__).resolve().parents[2], **pipes) as process:
        yield process, f"http://127.0.0.1:{process.stdout.readline().strip()}"
        process.stdin.close()


def end_with_the_input():
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    library_module.load_encoder = lambda *_, **__: LoadedEncoder(ToyEncoder(), None)
    app = create_app(untrimmed.open(sys.argv[1]), folders=(Path(sys.argv[2]),), warm=True)
    listening = socket.create_server(("127.0.0.1", int(sys.argv[3])))
    print(listening.getsockname()[1], flush=True)
    threading.Thread(target=end_with_the_input, daemon=True).start()
    run_app(app, listening, app.state.service)
