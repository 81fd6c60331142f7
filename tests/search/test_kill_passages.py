"""Reading passages is killed at random times: each video has all of its passages or none, and none is lost."""

import itertools
import random

import pytest

from tests.search.test_kill import index_until
from tests.toy import COLOURS, write_clip
from untrimmed.search.store.passages import PassageTable
from untrimmed.search.store.table import VideoIndex

NUM_VIDEOS = 24
NUM_CUES = 40


@pytest.fixture(scope="module")
def videos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("videos")
    for number, colours in enumerate(itertools.islice(itertools.product(COLOURS, repeat=2), NUM_VIDEOS)):
        write_clip(folder / f"{number:03d}.mp4", colours, seconds_each=0.5)
    return folder


def write_subtitles(folder, version):
    """Write subtitles of all videos. Each version has other words."""
    for file in folder.glob("*.mp4"):
        cues = (f"00:00.{9 * i:03d} --> 00:00.{9 * i + 8:03d}\nversion {version} line {i}.\n" for i in range(NUM_CUES))
        file.with_suffix(".vtt").write_text("WEBVTT\n\n" + "\n".join(cues))


def contents(library):
    """Return what a new reader finds: name of the video -> texts of its passages."""
    if not (library / "library.json").exists():
        return {}
    table = PassageTable(library)
    names = {record.video_id: record.path.rpartition("/")[2] for record in VideoIndex(library).scan()}
    current = {reading.reading_id for reading in table.readings()}
    found = {}
    for match in table.read(list(names)):
        if match.reading_id in current:
            found.setdefault(names[match.video_id], []).append(match.sentence.passage.text)
    return found


def kill_repeatedly(folder, videos, *, kills):
    rng = random.Random(2)
    library = folder / "library"
    for version in range(3):
        write_subtitles(videos, version)
        for _ in range(kills // 3):
            before = contents(library)
            index_until(library, videos, kill_after_s=rng.uniform(0.0, 1.5))
            after = contents(library)
            assert before.keys() <= after.keys(), "a video has lost its passages"
            for texts in after.values():
                assert len(texts) == NUM_CUES, "a reading is incomplete or doubled"
                assert len({text.split()[1] for text in texts}) == 1, "two versions are mixed"
            is_new = [name for name, texts in before.items() if texts[0].startswith(f"version {version}")]
            assert all(after[name] == before[name] for name in is_new)
        index_until(library, videos, kill_after_s=None)
        current = contents(library)
        assert len(current) == NUM_VIDEOS
        assert all(texts[0] == f"version {version} line 0." for texts in current.values())


@pytest.mark.check
def test_six_kills_lose_no_passage(tmp_path, videos):
    kill_repeatedly(tmp_path, videos, kills=6)


@pytest.mark.slow
def test_thirty_kills_lose_no_passage(tmp_path, videos):
    kill_repeatedly(tmp_path, videos, kills=30)
