"""Work in a thread of its own: a browser that tests have open has an event loop in theirs, which suffers no other."""

from concurrent.futures import ThreadPoolExecutor


def apart(work):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()
