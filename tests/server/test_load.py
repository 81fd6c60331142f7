"""Four clients search while videos are indexed: no errors, constant memory and, in `make stress`, quick answers."""

import random
import threading
import time

import httpx
import numpy as np
import psutil
import pytest

from tests.server.served_child import serving
from tests.toy import COLOURS, stored_video, write_clip
from untrimmed.search.store.records import Settings
from untrimmed.search.store.table import VideoIndex
from untrimmed.types import FrameFeatures

NUM_VIDEOS, NUM_FRAMES = 60, 1200  # ten minutes each
NUM_SEARCHERS, EACH_S = 4, 0.25  # seconds between the searches of a client, fewer than a person needs to look at hits
MAX_GROWTH = 60 << 20  # bytes; the process needs about 200 MB


@pytest.fixture
def served(tmp_path):
    """A service with ten hours of video: its process, its address, and the folder that may be indexed."""
    chance = np.random.default_rng(0)
    with VideoIndex(tmp_path / "library", create=True) as index:
        index.write_settings(Settings("toy", "toy:1", 4, 4, 2.0, False))
        for number in range(NUM_VIDEOS):
            vectors = chance.random((NUM_FRAMES, 4))
            vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16)
            features = FrameFeatures(vectors, np.arange(NUM_FRAMES) / 2, NUM_FRAMES / 2)
            index.put(stored_video(f"{number:016x}", features))
    (tmp_path / "videos").mkdir()
    with serving(tmp_path / "library", tmp_path / "videos") as (process, address):
        yield psutil.Process(process.pid), address, tmp_path / "videos"


class Load:
    """Run searching clients, and an indexing one if there is a folder, for some time. Returns their results."""

    def __init__(self, address, process, seconds, folder=None):
        self.address, self.ends = address, time.monotonic() + seconds
        self.took_s, self.errors, self.memory, self.num_indexed = [], [], [], 0
        work = [(self.search, number) for number in range(NUM_SEARCHERS)] + ([(self.index, folder)] if folder else [])
        threads = [threading.Thread(target=self.guarded, args=one, daemon=True) for one in work]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            self.memory.append(process.memory_info().rss)
            time.sleep(0.2)

    def guarded(self, work, value):
        try:
            with httpx.Client(base_url=self.address, timeout=60) as client:
                while time.monotonic() < self.ends:
                    work(client, value)
        except Exception as error:
            self.errors.append(repr(error))

    def search(self, client, number):
        chance, began = random.Random(f"{number} {len(self.took_s)}"), time.perf_counter()
        text = " ".join(chance.sample(sorted(COLOURS), 2))
        answer = client.post("/api/search", json={"text": text, "limit": 20})
        took_s = time.perf_counter() - began
        self.took_s.append(took_s)
        if answer.status_code != 200 or len(answer.json()["hits"]) != 20:
            self.errors.append(answer.text[:500])
        time.sleep(max(0.0, EACH_S - took_s))

    def index(self, client, folder):
        """Change the content of one of five clips and index it."""
        self.num_indexed += 1
        colours = random.Random(f"{self.ends} {self.num_indexed}").choices(sorted(COLOURS), k=3)
        write_clip(folder / f"{self.num_indexed % 5}.mp4", colours)
        folder_ids = [one["folder_id"] for one in client.get("/api/folders").json() if one["path"] == str(folder)]
        job = client.post("/api/jobs", json={"folder_ids": folder_ids}).json()
        while job["ended_at"] is None:
            time.sleep(0.05)
            job = client.get(f"/api/jobs/{job['job_id']}").json()
        if job["state"] != "done" or job["num_failed"]:
            self.errors.append(str(job))


@pytest.mark.check
@pytest.mark.parametrize(
    ("seconds", "is_timed"),
    [(20, False), pytest.param(20, True, marks=pytest.mark.slow), pytest.param(600, True, marks=pytest.mark.slow)],
)
def test_four_search_while_one_indexes(served, seconds, is_timed):
    process, address, folder = served
    rounds = [Load(address, process, 3, folder)]
    for _ in range(seconds // 20):  # in turns, so that other load on the machine slows both
        rounds += [Load(address, process, 5), Load(address, process, 20, folder)]
    idle, busy = (np.concatenate([one.took_s for one in rounds[which::2]]) for which in (1, 2))
    idle_s, busy_s = np.percentile(idle, 95), np.percentile(busy, 95)
    memory = np.concatenate([one.memory for one in rounds[1:]])
    quarter = len(memory) // 4
    before, after = int(np.median(memory[:quarter])), int(np.median(memory[-quarter:]))
    num_indexed = sum(one.num_indexed for one in rounds)
    print(
        f"\n{seconds} s: {len(busy)} searches, {num_indexed} videos indexed; p95 idle {idle_s * 1e3:.0f} ms, while "
        f"indexing {busy_s * 1e3:.0f} ms ({busy_s / idle_s:.2f} times); median {np.median(idle) * 1e3:.0f} and "
        f"{np.median(busy) * 1e3:.0f} ms; memory {before >> 20} MB in the first quarter, {after >> 20} MB in the last"
    )
    assert not (errors := [error for one in rounds for error in one.errors]), "\n".join(errors)
    assert num_indexed > 1
    assert after - before < MAX_GROWTH
    assert not is_timed or busy_s < 2 * idle_s
