"""Indexing is killed at random times: every video and text that was reported is in the library, unchanged."""

import itertools
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.toy import COLOURS, write_clip
from untrimmed.search.store.passages import PassageTable
from untrimmed.search.store.records import THUMBNAILS
from untrimmed.search.store.table import VideoIndex
from untrimmed.search.store.thumbnails import StoredThumbnails, thumbnails_file

ROOT = Path(__file__).resolve().parents[2]


NUM_VIDEOS = 60
KILLS_PER_LIBRARY = 5  # then a new library, so that kills meet small and large ones


@pytest.fixture(scope="module")
def videos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("videos")
    for number, colours in enumerate(itertools.islice(itertools.product(COLOURS, repeat=3), NUM_VIDEOS)):
        write_clip(folder / f"{number:03d}.mp4", colours, seconds_each=1.0)
    return folder


@pytest.fixture(scope="module")
def undisturbed(videos, tmp_path_factory):
    """The vectors of a run that is not killed, by name."""
    library = tmp_path_factory.mktemp("reference") / "library"
    assert len(index_until(library, videos, kill_after_s=None)) == NUM_VIDEOS
    return {name: vectors for name, (_, vectors) in contents(library).items()}


def index_until(library, videos, *, kill_after_s, state="done"):
    """Index, and kill the process after this time; return the names that were reported with this state."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.index_child", library, videos], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    with child:
        assert child.stdout.readline() == "ready\n"
        if kill_after_s is not None:
            time.sleep(kill_after_s)
            child.kill()
        lines = child.stdout.read().splitlines()
    assert not [line for line in lines if line.startswith("failed")]
    assert kill_after_s is not None or lines[-1] == "end"
    return {line.removeprefix(f"{state} ") for line in lines if line.startswith(f"{state} ")}


def contents(library):
    """Return what a new reader finds: name -> (id, vectors)."""
    if not (library / "library.json").exists():
        return {}
    index = VideoIndex(library)
    return {
        Path(video.record.path).name: (video.record.video_id, video.features.vectors.tobytes())
        for video in index.read([record.video_id for record in index.scan()])
    }


def check_thumbnails(library):
    """Assert that every video has intact thumbnails."""
    if not (library / "library.json").exists():
        return
    for record in VideoIndex(library).scan():
        video = StoredThumbnails(thumbnails_file(library, record.content_hash))
        assert all(video.picture(number) for number in range(len(video.times_s)))


def kill_repeatedly(folder, videos, undisturbed, *, kills):
    rng = random.Random(1)
    previous: dict[str, tuple[str, bytes]] = {}
    for number in range(kills):
        if number % KILLS_PER_LIBRARY == 0:
            library, previous = folder / f"library-{number}", {}
        reported = index_until(library, videos, kill_after_s=rng.uniform(0.0, 1.0))
        actual = contents(library)
        assert reported | previous.keys() <= actual.keys(), "a video that was reported done is missing"
        assert {name: vectors for name, (_, vectors) in actual.items()}.items() <= undisturbed.items(), "vectors differ"
        assert previous.items() <= actual.items(), "an id or a vector changed"
        check_thumbnails(library)
        previous = actual
    index_until(library, videos, kill_after_s=None)
    assert {name: vectors for name, (_, vectors) in contents(library).items()} == undisturbed
    check_thumbnails(library)
    assert len(list((library / THUMBNAILS).iterdir())) == NUM_VIDEOS, "files of killed runs are left"


@pytest.mark.check
def test_thirty_two_kills_lose_no_video_that_was_reported_done(tmp_path, videos, undisturbed):
    kill_repeatedly(tmp_path, videos, undisturbed, kills=32)


@pytest.mark.slow
def test_two_hundred_kills_lose_no_video_that_was_reported_done(tmp_path, videos, undisturbed):
    kill_repeatedly(tmp_path, videos, undisturbed, kills=200)


def texts(library):
    """Return what a new reader finds: name -> texts of the video's passages, in time order."""
    table = PassageTable(library)
    assert table.damaged() == []
    names = {record.video_id: Path(record.path).name for record in VideoIndex(library).scan()}
    texts_of: dict[str, list[str]] = {}
    for match in table.read(list(names)):
        texts_of.setdefault(names[match.video_id], []).append(match.sentence.passage.text)
    return texts_of


@pytest.mark.check
def test_thirty_kills_lose_no_text_that_was_reported(tmp_path, videos):
    folder = tmp_path / "talks"
    shutil.copytree(videos, folder)
    index_until(tmp_path / "library", folder, kill_after_s=None)
    expected = {}
    for number, video in enumerate(sorted(folder.iterdir())):
        expected[video.name] = [f"Sentence {part} of film {number}." for part in range(3)]
        cues = (
            f"{part}\n00:00:0{part},000 --> 00:00:0{part},900\n{text}\n"
            for part, text in enumerate(expected[video.name])
        )
        video.with_suffix(".srt").write_text("\n".join(cues))
    rng = random.Random(2)
    num_partial = 0
    for number in range(30):
        if number % KILLS_PER_LIBRARY == 0:
            library, previous = tmp_path / f"library-{number}", set()
            shutil.copytree(tmp_path / "library", library)
        reported = index_until(library, folder, kill_after_s=rng.uniform(0.0, 2.0), state="passages")
        actual = texts(library)
        assert reported | previous <= actual.keys(), "a text that was reported is missing"
        assert actual.items() <= expected.items()
        num_partial += 0 < len(actual) < NUM_VIDEOS
        previous = actual.keys()
    assert num_partial >= 5, "the kills were too early or too late to test anything"
    index_until(library, folder, kill_after_s=None)
    assert texts(library) == expected
