"""Runs work in another thread, because the main thread may run the event loop of a test browser."""

from concurrent.futures import ThreadPoolExecutor


def apart(work):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()
