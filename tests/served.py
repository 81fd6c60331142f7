"""A service on a socket of this machine."""

import threading
from contextlib import contextmanager

import uvicorn

from untrimmed.server.run import listening_at


@contextmanager
def served(app, log_level="error"):
    with listening_at("127.0.0.1", 0) as (listening, address):
        server = uvicorn.Server(uvicorn.Config(app, log_level=log_level, timeout_graceful_shutdown=1))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        yield address.rstrip("/")
        server.should_exit = True
        thread.join(20)
