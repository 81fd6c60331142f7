"""Bins are stored whole or not at all, and no change overwrites another one."""

import json
import threading
from dataclasses import replace

import pytest

from tests.refusals import refused
from tests.search.store.test_merge import at, library
from tests.search.store.test_table import stored
from untrimmed.errors import ConfigError, StaleVersionError, UnknownNameError, UntrimmedError
from untrimmed.search.store import merge as merging
from untrimmed.search.store.bins import MAX_BINS, MAX_MOMENTS, BinMoment, Bins
from untrimmed.search.store.records import Records

FIRST = BinMoment("0123456789abcdef", "/v/a.mp4", 1.0, 2.5, "opening", "a dog")
SECOND = BinMoment("fedcba9876543210", "/v/b.mp4", 0.1, 0.30000000000000004)


def test_a_bin_keeps_moments_in_order(tmp_path):
    bins = Bins(tmp_path)
    made = bins.create("Trailer", [FIRST, SECOND, FIRST])
    assert Bins(tmp_path).of(made.bin_id) == made
    assert made.moments == (FIRST, SECOND, FIRST)
    assert made.duration_s == pytest.approx(3.2)
    changed = bins.replace(made.bin_id, made.version, "Reel", [SECOND, FIRST])
    assert [(bin.name, bin.moments) for bin in Bins(tmp_path).all()] == [("Reel", (SECOND, FIRST))]
    assert bins.named("Reel") == changed
    with refused(UnknownNameError, "Trailer", "Reel"):
        bins.named("Trailer")
    bins.remove(made.bin_id, changed.version)
    assert bins.all() == []
    with pytest.raises(UnknownNameError):
        bins.of(made.bin_id)


def test_only_the_current_version_can_be_replaced_or_deleted(tmp_path):
    bins = Bins(tmp_path)
    made = bins.create("Trailer", [FIRST])
    changed = bins.replace(made.bin_id, made.version, "Trailer", [FIRST, SECOND])
    assert changed.version != made.version
    for change in (
        lambda: bins.replace(made.bin_id, made.version, "Trailer", []),
        lambda: bins.remove(made.bin_id, made.version),
    ):
        with refused(StaleVersionError, "Trailer"):
            change()
    assert bins.of(made.bin_id) == changed
    assert bins.replace(made.bin_id, changed.version, "Trailer", [FIRST]).version == made.version


def test_of_many_simultaneous_changes_of_one_version_one_succeeds(tmp_path):
    made = Bins(tmp_path).create("Trailer")
    successes, failures = [], []

    def change(number):
        try:
            successes.append(Bins(tmp_path).replace(made.bin_id, made.version, f"Trailer {number}", [FIRST]))
        except StaleVersionError as error:
            failures.append(error)

    threads = [threading.Thread(target=change, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(successes), len(failures)) == (1, 7)
    assert Bins(tmp_path).all() == successes


def test_names_are_unique_and_limits_hold(tmp_path, monkeypatch):
    bins = Bins(tmp_path)
    bins.create("Trailer")
    other = bins.create("Reel")
    with refused(UntrimmedError, "Trailer"):
        bins.create("Trailer")
    with refused(UntrimmedError, "Trailer"):
        bins.replace(other.bin_id, other.version, "Trailer", [])
    for name in ("", "  ", "a\nb", "a" * 101):
        with pytest.raises(ConfigError):
            bins.create(name)
    with refused(ConfigError, str(MAX_MOMENTS)):
        bins.create("long", [FIRST] * (MAX_MOMENTS + 1))
    for span in ((2.0, 2.0), (-1.0, 1.0), (0.0, float("inf")), (0.0, float("nan"))):
        with refused(ConfigError, "2"):
            bins.create("odd", [FIRST, replace(FIRST, start_s=span[0], end_s=span[1])])
    monkeypatch.setattr("untrimmed.search.store.bins.MAX_BINS", 2)
    with refused(UntrimmedError, "2"):
        bins.create("third")
    assert [bin.name for bin in bins.all()] == ["Reel", "Trailer"]
    assert MAX_BINS >= 100


def test_a_damaged_bin_is_reported_and_does_not_hide_the_others(tmp_path):
    bins = Bins(tmp_path)
    good, bad = bins.create("good", [FIRST]), bins.create("bad", [SECOND])
    file = bins.folder / f"{bad.bin_id}.json"
    whole = file.read_text()
    for text in (
        whole.replace("0.1", "0.2"),
        whole[:-20],
        "[]",
        "{}",
        json.dumps({"checksum": "x", "moments": 3}),
        "\0",
    ):
        file.write_text(text)
        with refused(UntrimmedError, "damaged"):
            bins.of(bad.bin_id)
        assert (bins.all(), bins.damaged()) == ([good], [file])
    file.write_text(whole)
    assert (bins.of(bad.bin_id), bins.damaged()) == (bad, [])


def test_a_moment_belongs_to_its_video_by_id_or_else_by_path():
    record = stored("/v/a.mp4").record
    moment = BinMoment(record.video_id, "/v/a.mp4", 0.0, 1.0)
    moved, new = replace(record, path="/w/a.mp4"), replace(record, video_id="f" * 16)
    assert moment.record(Records([moved])) == moved
    assert moment.record(Records([new])) == new
    assert moment.record(Records([replace(moved, video_id="f" * 16)])) is None
    assert replace(moment, path="").record(Records([new])) is None


def test_a_merge_finds_the_video_of_a_moment_if_another_video_has_its_path(tmp_path):
    (tmp_path / "renamed.mp4").touch()
    old = at(stored(tmp_path / "C0001.mp4"), content_hash="1", indexed_at=1.0)
    renamed = at(stored(tmp_path / "renamed.mp4"), content_hash="1", indexed_at=2.0)
    other = at(stored(tmp_path / "C0001.mp4", seed=2), content_hash="2", indexed_at=2.0)
    folders = [library(tmp_path / "old", old), library(tmp_path / "new", renamed, other)]
    Bins(folders[0]).create("Trailer", [BinMoment(old.record.video_id, old.record.path, 0.0, 1.0, "moment")])
    for number, order in enumerate((folders, folders[::-1])):
        merging.merge(tmp_path / f"out-{number}", order)
        ids = {record.path: record.video_id for record in merging.VideoIndex(tmp_path / f"out-{number}").scan()}
        (bin,) = Bins(tmp_path / f"out-{number}").all()
        assert bin.moments[0].video_id == ids[renamed.record.path]


def test_a_merge_copies_bins_with_the_ids_of_the_merged_videos(tmp_path):
    first, second = at(stored("/v/a.mp4"), content_hash="1"), at(stored("/v/b.mp4", seed=2), content_hash="2")
    second = at(second, video_id=first.record.video_id)  # the two libraries use one id for different videos
    folders = [library(tmp_path / "a", first), library(tmp_path / "b", second)]
    for folder, video in zip(folders, (first, second), strict=True):
        moment = BinMoment(video.record.video_id, video.record.path, 0.0, 1.0, folder.name)
        Bins(folder).create("Trailer", [moment, replace(FIRST, video_id="e" * 16)])
    for _ in range(2):  # merging again adds no copies
        merging.merge(tmp_path / "out", folders)
        ids = {
            path: record.video_id for record in merging.VideoIndex(tmp_path / "out").scan() for path in [record.path]
        }
        assert len(set(ids.values())) == 2
        assert {bin.name: [moment.video_id for moment in bin.moments] for bin in Bins(tmp_path / "out").all()} == {
            "Trailer": [ids["/v/a.mp4"], "e" * 16],
            "Trailer (2)": [ids["/v/b.mp4"], "e" * 16],
        }
