"""The thumbnails of a library: made, found, copied and removed together with their videos."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import untrimmed
from tests.refusals import refused
from tests.toy import write_clip
from untrimmed.errors import UntrimmedError, VideoError
from untrimmed.search.cache.mapped import DamagedError
from untrimmed.search.store.records import THUMBNAILS
from untrimmed.search.store.thumbnails import StoredThumbnails, open_thumbnails, thumbnails_file, write_thumbnails
from untrimmed.video.reader import VideoReader
from untrimmed.video.thumbnails import Thumbnails


def files(lib):
    folder = lib.folder / THUMBNAILS
    return {file.name for file in folder.iterdir()} if folder.is_dir() else set()


def hashes(lib):
    return {record.content_hash for record in lib.videos()}


def stored(tmp_path, times_s, rows=None):
    rows = tuple(range(len(times_s))) if rows is None else rows
    pictures = tuple(bytes([65 + row]) * (row + 1) for row in range(max(rows) + 1))  # A, BB, CCC, ...
    write_thumbnails(tmp_path, "hash", Thumbnails(np.array(times_s), rows, pictures))
    return open_thumbnails(tmp_path, "hash")


def test_the_nearest_picture_is_at_most_half_a_second_away(tmp_path):
    video = stored(tmp_path, [0.0, 1.0, 4.0])
    answers = {time_s: video.at(time_s) for time_s in (0.0, 0.4, 0.6, 1.5, 1.6, 3.4, 3.5, 4.5, 4.6)}
    assert answers == {
        0.0: b"A", 0.4: b"A", 0.6: b"BB", 1.5: b"BB", 1.6: None, 3.4: None, 3.5: b"CCC", 4.5: b"CCC", 4.6: None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("time_s", "start_s", "end_s", "expected"),
    [
        (1.5, 1.25, 4.0, b"CCC"),  # both are 0.5 s away, but the one at 1 s is before the moment
        (1.5, 0.0, 2.0, b"BB"),  # the one at 2 s is the first frame after the moment
        (1.5, 1.0, 2.0, b"BB"),
        (1.4, 1.0, 4.0, b"BB"),
        (1.4, 1.25, 4.0, None),  # the one at 2 s is too far away
        (1.5, 1.25, 1.75, None),  # neither is in the moment
    ],
)
def test_the_nearest_picture_is_inside_the_moment(tmp_path, time_s, start_s, end_s, expected):
    assert stored(tmp_path, [0.0, 1.0, 2.0]).at(time_s, start_s, end_s) == expected


def test_times_share_a_picture(tmp_path):
    video = stored(tmp_path, [0.0, 1.0, 2.0, 3.0], rows=(0, 0, 1, 1))
    assert [video.picture(number) for number in range(4)] == [b"A", b"A", b"BB", b"BB"]
    assert video.num_bytes == 3


def test_indexing_keeps_pictures_of_every_video(lib):
    assert files(lib) == hashes(lib)
    for record in lib.videos():
        video = open_thumbnails(lib.folder, record.content_hash)
        assert all(video.at(time_s) for time_s in np.linspace(0, record.duration_s, 20))


def test_pictures_stay_with_a_moved_file_and_go_with_removed_and_changed_ones(lib, videos, tmp_path):
    clips = tmp_path / "clips"
    shutil.copytree(videos, clips)
    lib.index(clips)  # copies of the indexed files
    assert files(lib) == hashes(lib)
    before = files(lib)
    (clips / "sun.mp4").rename(clips / "moon.mp4")
    lib.index(clips)
    assert files(lib) == before
    write_clip(clips / "wood.mp4", ["red", "blue"])
    lib.remove([record.path for record in lib.videos() if not Path(record.path).is_relative_to(clips)])
    lib.index(clips)
    assert files(lib) == hashes(lib) != before
    lib.remove([clips])
    assert files(lib) == set()


def test_a_library_without_thumbnails_stores_none_until_they_are_requested(encoder, videos, tmp_path):
    lib = untrimmed.open(tmp_path / "plain")
    lib.index(videos / "flag.mp4", thumbnails=False)
    lib.index(videos)
    assert files(lib) == set()
    num_encoded = encoder.num_encoded
    report = lib.index(videos, thumbnails=True)
    assert sorted(report.thumbnails) == sorted(videos.iterdir())
    assert encoder.num_encoded == num_encoded
    assert files(lib) == hashes(lib)
    assert lib.index(videos, thumbnails=True).thumbnails == []


def test_added_pictures_equal_those_made_at_indexing(lib, videos):
    expected = {file.name: file.read_bytes() for file in (lib.folder / THUMBNAILS).iterdir()}
    shutil.rmtree(lib.folder / THUMBNAILS)
    lib.index(videos, thumbnails=True)
    assert {file.name: file.read_bytes() for file in (lib.folder / THUMBNAILS).iterdir()} == expected


def test_a_library_made_before_thumbnails_gets_them_for_new_videos_only(lib, videos, tmp_path):
    shutil.rmtree(lib.folder / THUMBNAILS)
    settings = lib.folder / "library.json"
    values = json.loads(settings.read_text())
    del values["thumbnails"], values["checksum"]
    settings.write_text(json.dumps(values))
    write_clip(tmp_path / "new.mp4", ["red"])
    report = lib.index([videos, tmp_path / "new.mp4"])
    assert report.thumbnails == []
    new = next(record for record in lib.videos() if record.path.endswith("new.mp4"))
    assert files(lib) == {new.content_hash}


def raise_video_error(*_):
    raise VideoError("cannot be decoded any more")


def test_missing_pictures_of_an_unreadable_file_are_a_warning(lib, videos, monkeypatch):
    shutil.rmtree(lib.folder / THUMBNAILS)
    monkeypatch.setattr(VideoReader, "read", raise_video_error)
    report = lib.index(videos, thumbnails=True)
    assert files(lib) == set()
    assert report.failed == report.thumbnails == []
    assert {warning.path for warning in report.warnings} == set(videos.iterdir())


def test_merged_parts_have_all_pictures(encoder, videos, tmp_path):
    lib = untrimmed.open(tmp_path / "films")
    for number in (1, 2):
        lib.index(videos, part=f"{number}/2")
    lib.merge([tmp_path / f"films.part-{number}-of-2" for number in (1, 2)])
    assert files(lib) == hashes(lib)
    for number in (1, 2):
        shutil.rmtree(tmp_path / f"films.part-{number}-of-2")
    assert all(open_thumbnails(lib.folder, digest).at(0.0) for digest in hashes(lib))


def test_merging_again_adds_pictures_that_were_missing(encoder, videos, tmp_path):
    part = untrimmed.open(tmp_path / "part")
    part.index(videos, thumbnails=False)
    lib = untrimmed.open(tmp_path / "films")
    lib.merge([part.folder])
    assert files(lib) == set()
    part.index(videos, thumbnails=True)
    assert lib.merge([part.folder]).copied == 0
    assert files(lib) == hashes(lib)


def test_repair_removes_damaged_pictures_only(lib, videos):
    damaged = thumbnails_file(lib.folder, lib.videos()[0].content_hash)
    content = bytearray(damaged.read_bytes())
    content[-70] ^= 1
    damaged.write_bytes(content)
    video = StoredThumbnails(damaged)
    with pytest.raises(DamagedError):
        video.picture(len(video.times_s) - 1)
    assert lib.repair().files == (damaged,)
    assert files(lib) == hashes(lib) - {damaged.name}
    assert lib.repair().files == ()


def test_a_damaged_file_opens_as_no_pictures(tmp_path):
    stored(tmp_path, [0.0])
    thumbnails_file(tmp_path, "hash").write_bytes(b"no header")
    assert open_thumbnails(tmp_path, "hash") is None


def test_incomplete_files_of_killed_writers_are_removed(lib, videos, tmp_path):
    (lib.folder / THUMBNAILS / ".abc.12345678").write_bytes(b"half")
    (lib.folder / THUMBNAILS / "of a video that was never committed").write_bytes(b"whole")
    write_clip(tmp_path / "new.mp4", ["red"])
    lib.index(tmp_path / "new.mp4")
    assert files(lib) == hashes(lib)


def test_a_folder_that_cannot_be_written_is_an_error_and_adds_no_video(lib, tmp_path):
    shutil.rmtree(lib.folder / THUMBNAILS)
    (lib.folder / THUMBNAILS).write_text("a file")
    write_clip(tmp_path / "new.mp4", ["red"])
    num_videos = len(lib.videos())
    with refused(UntrimmedError, "thumbnails"):
        lib.index(tmp_path / "new.mp4")
    assert len(lib.videos()) == num_videos
