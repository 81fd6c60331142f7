import json
import shutil
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from tests.refusals import refused
from tests.toy import stored_video
from untrimmed.errors import ConfigError, IndexBusyError, IndexMismatchError, UnknownNameError, UntrimmedError
from untrimmed.search.corpora.engine import Engine
from untrimmed.search.query.find import find
from untrimmed.search.query.query import Cutoff
from untrimmed.search.store.records import Settings, VideoRecord
from untrimmed.search.store.table import StoredVideo, VideoIndex, new_video_id
from untrimmed.types import FrameFeatures, TextFeatures

DIM = 6
SETTINGS = Settings("toy", "toy:1", DIM, DIM, 2.0, False)


def stored(path, *, num_frames=5, seed=0, encoded=b"", dim=DIM):
    vectors = np.random.default_rng(seed).standard_normal((num_frames, dim)).astype(np.float16)
    features = FrameFeatures(vectors, np.arange(num_frames) / 2.0, num_frames / 2)
    return stored_video(new_video_id(), features, encoded, path=str(path))


@pytest.fixture
def index(tmp_path):
    with VideoIndex(tmp_path / "library", create=True) as index:
        index.write_settings(SETTINGS)
        yield index


def test_another_reader_gets_the_videos_that_were_put(index):
    videos = [stored(f"/v/{i}.mp4", num_frames=i + 1, seed=i, encoded=bytes([i])) for i in range(20)]
    for video in videos:
        index.put(video)
    actual = {
        video.record.video_id: video for video in VideoIndex(index.folder).read([v.record.video_id for v in videos])
    }
    assert len(actual) == 20
    for video in videos:
        second = actual[video.record.video_id]
        assert second.record == video.record
        assert second.encoded == video.encoded
        assert np.array_equal(second.features.vectors, video.features.vectors)
        assert np.array_equal(second.features.times_s, video.features.times_s)


def test_putting_a_known_id_replaces_its_row(index):
    first, second = stored("/v/a.mp4", seed=1), stored("/v/a.mp4", seed=2, num_frames=9)
    index.put(first)
    replaced = StoredVideo(VideoRecord(**{**vars(second.record), "video_id": first.record.video_id}), second.features)
    index.put(replaced)
    assert len(index) == 1
    assert np.array_equal(index.get(first.record.video_id).features.vectors, second.features.vectors)


def test_videos_can_be_replaced_while_they_are_read(index):
    videos = [stored(f"{number}.mp4", seed=number) for number in range(40)]
    index.put_all(videos)
    read = []
    for video in index.read([video.record.video_id for video in videos]):
        index.put(video)
        read.append(video.record.video_id)
    assert sorted(read) == sorted(video.record.video_id for video in videos)


def test_a_relocated_video_keeps_its_id_and_vectors(index, tmp_path):
    video = stored("/v/a.mp4")
    index.put(video)
    index.relocate(video.record, path=tmp_path / "it's here.mp4", size=11, mtime_ns=21)
    actual = index.get(video.record.video_id)
    assert (actual.record.path, actual.record.size, actual.record.mtime_ns) == (str(tmp_path / "it's here.mp4"), 11, 21)
    assert np.array_equal(actual.features.vectors, video.features.vectors)


def test_remove_returns_the_number_of_removed_videos(index):
    videos = [stored(f"/v/{i}.mp4") for i in range(3)]
    for video in videos:
        index.put(video)
    assert index.remove([videos[0].record.video_id, "0123456789abcdef"]) == 1
    assert [record.path for record in index.scan()] == ["/v/1.mp4", "/v/2.mp4"]


def test_compacting_does_not_change_the_content(index):
    videos = [stored(f"/v/{i}.mp4", seed=i) for i in range(12)]
    for video in videos:
        index.put(video)
    previous = index.scan()
    index.compact()
    assert index.scan() == previous
    assert np.array_equal(index.get(videos[7].record.video_id).features.vectors, videos[7].features.vectors)


def test_a_reader_sees_commits_and_does_not_wait_for_the_writer(index):
    reader = VideoIndex(index.folder)
    assert (len(reader), reader.version()) == (0, 0)
    index.put(stored("/v/a.mp4"))
    first = reader.version()
    index.put(stored("/v/b.mp4"))
    assert len(reader) == 2
    assert reader.version() > first


def test_a_reader_can_stay_at_its_first_version(index):
    videos = [stored(f"/v/{i}.mp4", seed=i) for i in range(2)]
    index.put(videos[0])
    reader = VideoIndex(index.folder, follow=False)
    assert [record.path for record in reader.scan()] == ["/v/0.mp4"]
    index.put(videos[1])
    index.remove([videos[0].record.video_id])
    assert [record.path for record in reader.scan()] == ["/v/0.mp4"]
    actual = reader.get(videos[0].record.video_id)
    assert np.array_equal(actual.features.vectors, videos[0].features.vectors)


def test_a_folder_that_is_not_writable_is_refused_with_the_reason(index, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("filelock.FileLock.acquire", refuse)
    with refused(UntrimmedError, "(Permission denied)"):
        VideoIndex(index.folder).__enter__()


def test_a_second_writer_is_refused_in_one_line(index):
    code = "import sys; from untrimmed.search.store.table import VideoIndex; VideoIndex(sys.argv[1]).__enter__()"
    second = subprocess.run([sys.executable, "-c", code, index.folder], capture_output=True, text=True, check=False)
    assert second.returncode == 1
    assert IndexBusyError.__name__ in second.stderr.splitlines()[-1]
    with pytest.raises(IndexBusyError):
        VideoIndex(index.folder).__enter__()


@pytest.mark.parametrize("name", ["with blank # and %20?", "wörter: ein & 'mehr'", "ü" * 100])
def test_a_folder_can_have_an_odd_name(tmp_path, name):
    with VideoIndex(tmp_path / name, create=True) as index:
        index.write_settings(SETTINGS)
        index.put(stored("/v/a.mp4"))
    assert len(VideoIndex(tmp_path / name).scan()) == 1
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


def test_a_folder_whose_name_is_not_utf8_is_refused(tmp_path):
    with refused(UntrimmedError, "UTF-8"):
        VideoIndex(tmp_path / "caf\udce9", create=True)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_manifest_is_refused(tmp_path):
    with VideoIndex(tmp_path, create=True) as index:
        index.write_settings(SETTINGS)
        index.put(stored("/v/a.mp4"))
    for manifest in (tmp_path / "videos.lance" / "_versions").iterdir():
        manifest.write_bytes(manifest.read_bytes()[:20])
    with pytest.raises(UntrimmedError):
        VideoIndex(tmp_path).scan()


@pytest.mark.parametrize("damage", [Path.unlink, lambda file: file.write_bytes(file.read_bytes()[:50])])
def test_missing_or_damaged_data_is_refused(tmp_path, damage):
    video = stored("/v/a.mp4")
    with VideoIndex(tmp_path, create=True) as index:
        index.write_settings(SETTINGS)
        index.put(video)
    for file in (tmp_path / "videos.lance" / "data").iterdir():
        damage(file)
    for read in (VideoIndex.scan, lambda index: index.get(video.record.video_id)):
        with refused(UntrimmedError, str(tmp_path)) as met:
            read(VideoIndex(tmp_path))
        assert ".rs:" not in str(met.value)


def test_a_search_of_a_deleted_version_is_repeated_with_the_next(index):
    index.put(stored("/v/a.mp4"))
    calls = []

    def ask(view):
        calls.append([record.path for record in view.records])
        if len(calls) == 1:
            index.put(stored("/v/b.mp4"))
            index._table.optimize.compact_files()
            index._table.cleanup_old_versions(timedelta(0))
        return view.frames()

    assert len(Engine(index.folder).answer(ask)) == 2
    assert calls == [["/v/a.mp4"], ["/v/a.mp4", "/v/b.mp4"]]


def test_a_library_that_is_created_again_with_the_same_version_number_is_noticed(tmp_path):
    def make(path):
        shutil.rmtree(tmp_path, ignore_errors=True)
        index = VideoIndex(tmp_path, create=True)
        index.write_settings(SETTINGS)
        index.put(stored(path))
        return index.version()

    version, engine = make("/v/a.mp4"), Engine(tmp_path)
    assert [record.path for record in engine.view().records] == ["/v/a.mp4"]
    assert make("/v/b.mp4") == version
    view = engine.view()
    assert [record.path for record in view.records] == ["/v/b.mp4"]
    assert len(view.frames()) == 1


@pytest.mark.parametrize("options", [{"within": "/nowhere"}, {"limit": 0}])
def test_errors_that_no_version_would_avoid_are_raised_at_once(index, options):
    index.put(stored("/v/a.mp4"))
    query = TextFeatures("red", np.ones(DIM, np.float32), np.ones((1, DIM), np.float32), ("red",))
    calls = []

    def ask(view):
        calls.append(view)
        assert len(calls) == 1, "asked again"
        index.put(stored("/v/b.mp4"))
        cutoff = Cutoff(limit=options.get("limit", 1))
        among = view.below(options["within"]) if "within" in options else None
        find(view, view.frames().prepare(query), cutoff, among=among)

    with pytest.raises((ConfigError, UnknownNameError), match=r"limit|/nowhere"):
        Engine(index.folder).answer(ask)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_a_video_with_a_stored_vector_that_is_not_finite_is_named(index, wrong):
    good, bad = stored("/v/good.mp4"), stored("/v/bad.mp4")
    bad.features.vectors[2, 1] = wrong
    for video in (good, bad):
        index.put(video)
    assert index.get(good.record.video_id) is not None
    with refused(IndexMismatchError, "/v/bad.mp4", "untrimmed index"):
        index.get(bad.record.video_id)


def test_damaged_settings_and_other_formats_are_refused(index):
    file = index.folder / "library.json"
    actual = json.loads(file.read_text())
    assert index.settings == SETTINGS
    for change in ({"format": 99, "checksum": None}, {"fps": 3.0}):  # the second has a wrong checksum
        file.write_text(json.dumps(actual | change))
        with refused(IndexMismatchError, "library.json"):
            _ = index.settings
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(IndexMismatchError):
        _ = index.settings
    file.write_text("{")
    with pytest.raises(IndexMismatchError):
        _ = index.settings
