"""Indexing in parts and merging them gives the same library as indexing at once."""

import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

import untrimmed
from tests.refusals import refused
from tests.search.conftest import use_encoder
from tests.search.same_hits import SENTENCES
from tests.search.store.test_table import SETTINGS, stored
from tests.toy import ToyEncoder
from untrimmed.errors import ConfigError, IndexBusyError, IndexMismatchError, UntrimmedError
from untrimmed.search.store import merge as merging
from untrimmed.search.store.merge import LibraryPart, missing_parts
from untrimmed.search.store.table import VideoIndex

ROOT = Path(__file__).resolve().parents[3]


def contents(folder):
    """Return the content of a library by path: vectors, and records without id and time of indexing."""
    index = VideoIndex(folder)
    videos = index.read([record.video_id for record in index.scan()])
    content = {video.record.path: contents_of(video) for video in videos}
    assert len(content) == len(index)
    return content


def answers(folder):
    return [
        (hit.video, hit.score, hit.duration_s, hit.moments)
        for text in SENTENCES
        for hit in untrimmed.open(folder).search(text, limit=3)
    ]


@pytest.fixture
def parts(videos, encoder, tmp_path):
    """The clips, one of them twice, indexed as three parts."""
    shutil.copytree(videos, tmp_path / "clips" / "deep")
    shutil.copy(videos / "flag.mp4", tmp_path / "clips" / "copy.mp4")
    lib = untrimmed.open(tmp_path / "films")
    reports = [lib.index(tmp_path / "clips", part=f"{number}/3") for number in (1, 2, 3)]
    done = [path for report in reports for path in (*report.done, *report.skipped)]
    assert len(done) == len(set(done)) == 5, "the parts are disjoint and complete"
    return [tmp_path / f"films.part-{number}-of-3" for number in (1, 2, 3)]


def test_merged_parts_equal_a_library_that_is_indexed_at_once(parts, tmp_path, encoder):
    untrimmed.open(tmp_path / "once").index(tmp_path / "clips")
    previous = encoder.num_encoded
    report = untrimmed.open(tmp_path / "films").merge(parts)
    assert (report.videos, report.copied, report.duplicates) == (5, 5, 0)
    assert encoder.num_encoded == previous
    assert contents(tmp_path / "films") == contents(tmp_path / "once")
    assert answers(tmp_path / "films") == answers(tmp_path / "once")
    assert untrimmed.open(tmp_path / "films").settings() == untrimmed.open(tmp_path / "once").settings()


def test_a_merged_library_can_be_indexed_and_merged_again(parts, tmp_path, encoder):
    lib = untrimmed.open(tmp_path / "films")
    lib.merge(parts)
    previous = encoder.num_encoded
    assert len(lib.index(tmp_path / "clips").skipped) == 5
    assert encoder.num_encoded == previous
    ids = {record.path: record.video_id for record in lib.videos()}
    shutil.copy(tmp_path / "clips" / "deep" / "wood.mp4", tmp_path / "clips" / "deep" / "sun.mp4")
    for number in (1, 2, 3):
        lib.index(tmp_path / "clips", part=f"{number}/3")
    report = lib.merge(parts)
    assert (report.videos, report.copied) == (5, 1), "known videos are not copied again"
    assert {record.path: record.video_id for record in lib.videos()} == ids
    sun, wood = (lib.relevance("green", tmp_path / "clips" / "deep" / name)[1] for name in ("sun.mp4", "wood.mp4"))
    assert sun.tolist() == wood.tolist()


def test_the_files_of_a_part_do_not_depend_on_the_mount_point():
    names = [f"{number % 7}/{number}.mp4" for number in range(1000)]
    part = LibraryPart(3, 16)
    first, second = (
        part.choose([Path(root, name) for name in names], [Path(root)]) for root in ("/mnt/a", "/data/films")
    )
    assert [path.relative_to("/mnt/a") for path in first] == [path.relative_to("/data/films") for path in second]
    assert 40 <= len(first) <= 90
    all_names = [name for number in range(1, 17) for name in names if LibraryPart(number, 16).contains(name)]
    assert sorted(all_names) == sorted(names)


def library(folder, *videos, **settings):
    with VideoIndex(folder, create=True) as index:
        index.write_settings(replace(SETTINGS, **settings))
        for video in videos:
            index.put(video)
    return folder


def at(video, **fields):
    return replace(video, record=replace(video.record, **fields))


def test_a_repeated_path_keeps_the_newest_content_under_the_first_id(tmp_path):
    old, new = at(stored("/v/a.mp4", seed=1), indexed_at=1.0), at(stored("/v/a.mp4", seed=2), indexed_at=2.0)
    for number, order in enumerate([(old, new), (new, old)]):
        folders = [library(tmp_path / f"{number}-{i}", video) for i, video in enumerate(order)]
        report = merging.merge(tmp_path / f"out-{number}", folders)
        assert (report.videos, report.duplicates) == (1, 1)
        index = VideoIndex(tmp_path / f"out-{number}")
        (record,) = index.scan()
        assert record == replace(new.record, video_id=order[0].record.video_id)
        assert index.get(record.video_id).features.vectors.tobytes() == new.features.vectors.tobytes()


def test_a_file_that_moved_between_parts_is_one_video_and_copies_are_two(tmp_path):
    (tmp_path / "new.mp4").touch()
    moved_away = at(stored(tmp_path / "old.mp4"), indexed_at=1.0, content_hash="same")
    moved = at(stored(tmp_path / "new.mp4"), indexed_at=2.0, content_hash="same")
    folders = [library(tmp_path / "a", moved_away), library(tmp_path / "b", moved)]
    merging.merge(tmp_path / "out", folders)
    (record,) = VideoIndex(tmp_path / "out").scan()
    assert record == replace(moved.record, video_id=moved_away.record.video_id)
    assert len(VideoIndex(tmp_path / "out")) == 1
    merging.merge(tmp_path / "b", [tmp_path / "a"])
    assert [r.video_id for r in VideoIndex(tmp_path / "b").scan()] == [moved_away.record.video_id]
    (tmp_path / "old.mp4").touch()
    assert merging.merge(tmp_path / "both", [*folders[:1], tmp_path / "out"]).videos == 2


def test_two_videos_that_share_an_id_are_both_kept(tmp_path):
    first, second = at(stored("/v/a.mp4"), content_hash="1"), at(stored("/v/b.mp4", seed=2), content_hash="2")
    second = at(second, video_id=first.record.video_id)
    folders = [library(tmp_path / "a", first), library(tmp_path / "b", second)]
    merging.merge(tmp_path / "out", folders)
    ids = {record.path: record.video_id for record in VideoIndex(tmp_path / "out").scan()}
    assert len(set(ids.values())) == 2
    assert merging.merge(tmp_path / "out", folders).copied == 0


def test_incompatible_libraries_are_refused_and_nothing_is_created(tmp_path):
    library_a = library(tmp_path / "a", stored("/v/a.mp4"))
    library_b = library(tmp_path / "b", stored("/v/b.mp4"), encoder_identity="toy:2")
    with refused(IndexMismatchError, "toy:2", "toy:1"):
        merging.merge(tmp_path / "out", [library_a, library_b])
    with pytest.raises(ConfigError):
        merging.merge(library_a, [library_a])
    with pytest.raises(UntrimmedError):
        merging.merge(tmp_path / "out", [tmp_path / "c"])
    part = library(tmp_path / "films.part-2-of-3", stored("/v/c.mp4"))
    with refused(UntrimmedError, "films.part-01-of-3"):
        merging.merge(tmp_path / "out", [part, tmp_path / "films.part-01-of-3"])
    with refused(UntrimmedError, "films.part-1-of-3", "films.part-3-of-3"):
        merging.merge(tmp_path / "out", [part])
    assert missing_parts([tmp_path / "films.part-02-of-16"])[0].name == "films.part-01-of-16"
    with VideoIndex(library_a), pytest.raises(IndexBusyError):
        merging.merge(tmp_path / "out", [library_a])
    assert not (tmp_path / "out" / "library.json").exists()


def test_invalid_parts_are_refused(lib, videos):
    for part in ("3", "0/3", "4/3", "3/16/2", ""):
        with pytest.raises(ConfigError):
            lib.index(videos, part=part)


MERGE = """
import sys
from pathlib import Path
from untrimmed.search.store import merge as merging
merging._BYTES_PER_COMMIT = 1
print("ready", flush=True)
merging.merge(Path(sys.argv[1]), list(map(Path, sys.argv[2:])))
print("end", flush=True)
"""


@pytest.mark.check
def test_a_killed_merge_cannot_be_opened_and_can_be_continued(tmp_path, monkeypatch):
    videos = [at(stored(f"/v/{number:02d}.mp4", seed=number), content_hash=str(number)) for number in range(60)]
    folders = [library(tmp_path / f"{number}", *videos[number::3]) for number in range(3)]
    out, kills, previous = tmp_path / "out", 0, set()
    for wait_s in (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, None):
        child = subprocess.Popen(
            [sys.executable, "-c", MERGE, out, *folders], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        with child:
            assert child.stdout.readline() == "ready\n"
            if wait_s is not None:
                time.sleep(wait_s)
                child.kill()
            ended = child.stdout.read() == "end\n"
        actual = {record.video_id for record in VideoIndex(out, create=True).scan()}
        assert previous <= actual, "copied videos are kept"
        previous = actual
        kills += not ended
        if not ended and not (out / "library.json").exists():
            with pytest.raises(UntrimmedError):
                VideoIndex(out)
    assert kills, "no merge was killed; use shorter waits"
    assert contents(out) == {video.record.path: contents_of(video) for video in videos}
    use_encoder(monkeypatch, ToyEncoder())
    (out / "library.json").unlink()
    with refused(UntrimmedError, "untrimmed merge"):
        untrimmed.open(out).index(folders[0])


def contents_of(video):
    record = replace(video.record, video_id="", indexed_at=0.0)
    return record, video.features.vectors.tobytes(), video.features.times_s.tobytes(), video.encoded
