"""The estimate of the remaining time of an indexing run."""

from pathlib import Path

import pytest

from untrimmed.search.indexing.estimate import Estimate

A, B, C = Path("a"), Path("b"), Path("c")


class Clock:
    now_s = 100.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


def test_the_remaining_bytes_take_as_long_as_the_encoded_ones(clock):
    estimate = Estimate({A: 1000, B: 3000}, clock)
    clock.now_s += 50  # loading the encoder does not count
    estimate.encode(A, 1000, 0.0, 60.0)
    assert (estimate.remaining_s, estimate.speed, estimate.video_s) == (None, None, 0.0)
    clock.now_s += 10
    estimate.encode(A, 1000, 30.0, 60.0)  # half of the file: 500 bytes in 10 s
    assert (estimate.remaining_s, estimate.speed, estimate.video_s) == (70.0, 3.0, 30.0)
    clock.now_s += 10
    estimate.encode(A, 1000, 60.0, 60.0)
    estimate.finish(A)
    assert (estimate.remaining_s, estimate.speed, estimate.video_s) == (60.0, 3.0, 60.0)
    clock.now_s += 20
    estimate.encode(B, 3000, 10.0, 30.0)  # a third of the second file, which is slower: 2000 bytes in 40 s
    assert (estimate.remaining_s, estimate.speed, estimate.video_s) == (40.0, 1.75, 70.0)


def test_there_is_no_estimate_in_the_first_seconds(clock):
    estimate = Estimate({A: 1000}, clock)
    estimate.encode(A, 1000, 0.0, 60.0)
    clock.now_s += 4
    estimate.encode(A, 1000, 30.0, 60.0)
    assert estimate.remaining_s is None
    clock.now_s += 1
    assert estimate.remaining_s == 5.0


def test_pauses_do_not_count(clock):
    estimate = Estimate({A: 1000}, clock)
    estimate.encode(A, 1000, 0.0, 60.0)
    clock.now_s += 10
    estimate.encode(A, 1000, 30.0, 60.0)
    with estimate.exclude():
        clock.now_s += 3600
    assert (estimate.remaining_s, estimate.speed) == (10.0, 3.0)


def test_known_and_failed_files_are_not_counted_as_work(clock):
    estimate = Estimate({A: 1000, B: 4000, C: 1000}, clock)
    estimate.encode(A, 1000, 0.0, 10.0)
    clock.now_s += 10
    estimate.encode(A, 1000, 10.0, 10.0)
    estimate.finish(A)
    assert estimate.remaining_s == 50.0
    estimate.finish(B)  # moved, so it is not encoded
    assert estimate.remaining_s == 10.0
    estimate.finish(Path("already known"))
    assert estimate.remaining_s == 10.0


def test_a_changed_file_that_was_not_expected_is_added(clock):
    estimate = Estimate({A: 1000}, clock)
    estimate.encode(A, 1000, 0.0, 10.0)
    clock.now_s += 10
    estimate.encode(A, 1000, 10.0, 10.0)
    estimate.finish(A)
    estimate.encode(B, 500, 0.0, 10.0)
    assert estimate.remaining_s == 5.0
    estimate.encode(B, 500, 10.0, 10.0)
    estimate.finish(B)
    assert estimate.remaining_s == 0.0


def test_a_video_longer_than_declared_does_not_exceed_its_file(clock):
    estimate = Estimate({A: 1000, B: 1000}, clock)
    estimate.encode(A, 1000, 0.0, 10.0)
    clock.now_s += 10
    estimate.encode(A, 1000, 40.0, 10.0)
    assert estimate.remaining_s == 10.0
    estimate.encode(A, 1000, 40.0, 0.0)  # an unknown duration is no evidence
    assert estimate.remaining_s is None
