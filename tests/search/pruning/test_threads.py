"""Several threads and processes use one library: each search sees one version, and models and videos load once."""

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import untrimmed
from tests.toy import ToyEncoder, stored_video, write_clip
from untrimmed.encoders.registry import LoadedEncoder
from untrimmed.search import library as library_module
from untrimmed.search.pruning import threads
from untrimmed.search.store.records import Settings
from untrimmed.search.store.table import VideoIndex
from untrimmed.types import FrameFeatures

ROOT = Path(__file__).resolve().parents[3]
SETTINGS = Settings("toy", "toy:1", 4, 4, 2.0, False)
NUM_THREADS = 4


class CountedEncoder(ToyEncoder):
    """Fails if two threads encode at once, because not all encoders are thread-safe."""

    at_once = 0

    def encode_texts(self, texts):
        assert self.at_once == 0, "two threads in the encoder"
        self.at_once += 1
        time.sleep(0.0005)
        self.at_once -= 1
        return super().encode_texts(texts)


def test_interrupted_work_waits_for_its_threads(monkeypatch):
    """Compiled loops read arrays that the caller may free when it returns."""
    started, ended, other_works = [], [], threading.Event()

    def work(start, stop):
        if threading.current_thread() is threading.main_thread():
            assert other_works.wait(60)
            raise KeyboardInterrupt
        started.append(start)
        other_works.set()
        time.sleep(0.2)
        ended.append(start)

    monkeypatch.setattr(threads, "cores", lambda: 2)
    with pytest.raises(KeyboardInterrupt):
        threads.share_work(1000, 1, work)
    assert len(started) == 1
    assert ended == started


@pytest.fixture
def loads(monkeypatch):
    """A list with an entry per loaded encoder, and the ids of videos that were read with their vectors."""
    calls, real = [], VideoIndex.read

    def load(name=None, **_):
        calls.append("encoder")
        time.sleep(0.02)
        return LoadedEncoder(CountedEncoder(), None)

    monkeypatch.setattr(library_module, "load_encoder", load)
    monkeypatch.setattr(VideoIndex, "read", lambda index, expected: calls.extend(expected) or real(index, expected))
    return calls


def video(video_id, seed, indexed_at=1.0):
    rng = np.random.default_rng(seed)
    vectors = rng.random((rng.integers(2, 30), 4))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16)
    features = FrameFeatures(vectors, np.arange(len(vectors)) / 2, len(vectors) / 2)
    return stored_video(video_id, features, indexed_at=indexed_at)


def search_results(lib):
    return tuple((hit.video_id, hit.score) for hit in lib.search("green", limit=100))


def steps_of_a_library(index):
    """Add, change and remove videos, one commit each."""
    for number in range(14):
        index.put(video(f"v{number % 5}", number, indexed_at=float(number)))
        yield
        if number % 4 == 3:
            index.remove([f"v{(number - 1) % 5}"])
            yield


@pytest.mark.check
def test_each_search_sees_one_version_while_another_thread_commits(tmp_path, loads):
    index, lib = VideoIndex(tmp_path, create=True), untrimmed.open(tmp_path)
    index.write_settings(SETTINGS)
    index.put(video("stays", 99))
    versions = [search_results(untrimmed.open(tmp_path))]  # the hits of each committed version
    ended, failed = threading.Event(), []

    def search():
        seen = []
        try:
            while not ended.is_set() or len(seen) < 3:
                seen.append(search_results(lib))
                times_s, values = lib.relevance("green", "/v/stays.mp4")
                assert len(times_s) == len(values) > 1
        except BaseException as error:
            failed.append(error)
            raise
        return seen

    with ThreadPoolExecutor(NUM_THREADS) as pool:
        searches = [pool.submit(search) for _ in range(NUM_THREADS)]
        for _ in steps_of_a_library(index):
            versions.append(search_results(untrimmed.open(tmp_path)))
            if failed:
                break
        ended.set()
        results = [search.result() for search in searches]
    assert len(set(versions)) == len(versions), "all versions have different hits"
    for seen in results:
        places = [versions.index(answer) for answer in seen]
        assert places == sorted(places), "a later search saw an earlier version"
    assert search_results(lib) == versions[-1]


def test_concurrent_searches_load_encoder_and_videos_once(tmp_path, loads):
    index, lib = VideoIndex(tmp_path, create=True), untrimmed.open(tmp_path)
    index.write_settings(SETTINGS)
    for number in range(8):
        index.put(video(f"v{number}", number))
    together = threading.Barrier(NUM_THREADS)

    def search():
        together.wait()
        return search_results(lib)

    with ThreadPoolExecutor(NUM_THREADS) as pool:
        searches = [pool.submit(search) for _ in range(NUM_THREADS)]
        assert len({search.result() for search in searches}) == 1
    assert sorted(loads) == ["encoder", *(f"v{number}" for number in range(8))]


def test_threads_search_while_another_process_indexes_and_this_one_removes(tmp_path, loads):
    clips, lib = tmp_path / "clips", untrimmed.open(tmp_path / "library")
    clips.mkdir()
    for number in range(6):
        write_clip(clips / f"{number}.mp4", ["green", "red", "blue"][number % 3 :], seconds_each=1.0)
    command = [sys.executable, "-m", "tests.index_child", lib.folder, clips]
    child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    with child:
        while (line := child.stdout.readline().rstrip()) and not line.startswith("done"):
            pass
        first = line.removeprefix("done ")
        with ThreadPoolExecutor(NUM_THREADS) as pool:

            def search():
                seen = []
                while child.poll() is None:
                    seen.append({hit.video.name for hit in lib.search("green", limit=100)})
                return seen

            searches = [pool.submit(search) for _ in range(NUM_THREADS)]
            assert child.stdout.read().splitlines()[-1] == "end"
            child.wait()
            results = [search.result() for search in searches]
    for seen in results:
        assert all(first in names for names in seen)
        assert all(earlier <= later for earlier, later in pairwise(seen)), "a video is missing"
    assert len(lib.search("green", limit=100)) == 6
    lib.remove([clips / first])
    assert first not in {hit.video.name for hit in lib.search("green", limit=100)}
