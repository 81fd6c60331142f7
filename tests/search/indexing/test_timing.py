"""How files count their frames is stored with them, and added to libraries from before it was."""

from dataclasses import asdict, replace

import numpy as np
import pytest

import untrimmed
from untrimmed.search.store.table import StoredVideo, VideoIndex
from untrimmed.video.timing import Timing

UNKNOWN = {"frame_rate": "", "has_variable_rate": False, "start_timecode": "", "num_audio_tracks": 0}


@pytest.fixture
def old_library(lib):
    """A library without the columns of the timing, as earlier versions made it."""
    index = VideoIndex(lib.folder)
    videos = list(index.read([record.video_id for record in index.scan()]))
    with index:
        for video in videos:
            index.put(replace(video, record=replace(video.record, **UNKNOWN)))
    index._open_table().drop_columns(list(UNKNOWN))
    return lib.folder


def test_records_have_the_timing_of_their_files(lib):
    assert {record.timing for record in VideoIndex(lib.folder).scan()} == {Timing("10")}


def test_an_old_library_is_read_with_unknown_timing(old_library):
    index = VideoIndex(old_library)
    assert [record.timing for record in index.scan()] == [None] * 4
    assert index.damaged() == []
    assert len(untrimmed.open(old_library).search("red")) > 0


def test_indexing_adds_the_timing_to_an_old_library_and_keeps_everything_else(old_library, videos):
    before = {record.video_id: asdict(record) for record in VideoIndex(old_library).scan()}
    vectors = {video.record.video_id: video.features.vectors for video in VideoIndex(old_library).read(list(before))}
    report = untrimmed.open(old_library).index(videos)
    assert (len(report.skipped), report.done) == (4, [])
    index = VideoIndex(old_library)
    for record in index.scan():
        assert asdict(record) == before[record.video_id] | Timing("10").stored
        assert np.array_equal(index.get(record.video_id).features.vectors, vectors[record.video_id])
    assert index.damaged() == []


def test_an_old_library_takes_new_and_replaced_videos(old_library):
    with VideoIndex(old_library) as index:
        old = index.get(index.scan()[0].video_id)
        timed = replace(old.record, **Timing("30000/1001", True, "01:00:00;00", 2).stored)
        index.put_all([replace(old, record=timed)])
        new = replace(timed, video_id="0" * 16, path="/v/new.mp4")
        index.put(StoredVideo(new, old.features, old.encoded))
        index.relocate(new, path=index.folder / "moved.mp4", size=1, mtime_ns=2)
    records = {record.video_id: record for record in VideoIndex(old_library).scan()}
    assert (len(records), records[old.record.video_id]) == (5, timed)
    assert records["0" * 16].timing == timed.timing
