"""The service as a process. Ctrl-C cancels long work at once."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request

import psutil
import pytest

import untrimmed
from untrimmed.server.run import listening_at


@pytest.fixture
def process(world, tmp_path):
    """The process of `untrimmed serve` with the library of `world`, and its address. Its log is in a file."""
    command = [
        sys.executable,
        "-m",
        "untrimmed",
        "serve",
        "--port",
        "0",
        "--no-browser",
        "--library",
        str(world / "library"),
    ]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with (
        (tmp_path / "log").open("w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment) as process,
    ):
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def ask(url):
    with contextlib.suppress(OSError):
        urllib.request.urlopen(url, timeout=100).close()


WEB_SOCKET = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
REQUESTS = [  # first line, headers, expected status
    ("GET /healthz HTTP/1.1", f"Connection: Upgrade\r\nUpgrade: websocket\r\n{WEB_SOCKET}", 200),
    ("GET /no/such/route HTTP/1.1", f"Connection: Upgrade\r\nUpgrade: websocket\r\n{WEB_SOCKET}", 404),
    ("GET /healthz HTTP/1.1", "Connection: Upgrade\r\nUpgrade: h2c", 200),
    ("nonsense", "", 400),
]


def test_requests_of_other_protocols_are_answered_and_are_not_logged(process, tmp_path):
    running, address = process
    port = int(address.rpartition(":")[2].strip("/"))
    for first, headers, status in REQUESTS:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
            connection.sendall(f"{first}\r\nHost: localhost\r\n{headers}\r\n\r\n".encode())
            assert connection.recv(64).split()[1] == str(status).encode(), first
    running.send_signal(signal.SIGINT)
    running.wait(30)
    start = ("serving ", "to choose folders ")
    assert [line for line in (tmp_path / "log").read_text().splitlines() if not line.startswith(start)] == []


@pytest.mark.parametrize("max_s", [30.0, pytest.param(1.0, marks=pytest.mark.slow)])
def test_a_running_cut_does_not_delay_the_shutdown(world, process, tmp_path, max_s):
    running, address = process
    video_id = untrimmed.open(world / "library").videos()[0].video_id
    url = f"{address}api/videos/{video_id}/clip?start_s=0&end_s=1"
    asking = threading.Thread(target=ask, args=(url,), daemon=True)
    asking.start()
    deadline, service = time.monotonic() + 30, psutil.Process(running.pid)
    # Between fork and exec the child is a copy of the program, and the service waits for it.
    while not (children := [child for child in service.children() if child.cmdline() != service.cmdline()]):
        assert time.monotonic() < deadline
        time.sleep(0.001)
    children[0].suspend()  # it would need minutes without an answer
    running.send_signal(signal.SIGINT)
    began = time.monotonic()
    psutil.wait_procs(children, timeout=30)
    took_s = time.monotonic() - began
    assert not children[0].is_running()
    assert took_s < max_s
    running.wait(30)
    asking.join(30)
    assert list(tmp_path.glob("untrimmed-*")) == []
    print(f"the child ended after {took_s:.2f} s, the service after {time.monotonic() - began:.2f} s")


def test_connections_send_small_answers_at_once():
    with listening_at("127.0.0.1", 0) as (listening, _), socket.create_connection(listening.getsockname()):
        connection, _ = listening.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
