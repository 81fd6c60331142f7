"""Mapped arrays equal those that were written, or raise an error before they are used."""

import mmap
import pickle
import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.refusals import refused
from untrimmed.search.cache.mapped import PAGE, DamagedError, MappedArrays, row_range, write_arrays

ARRAYS = {
    "rows": np.arange(50_000, dtype=np.float16).reshape(1000, 50),
    "large": np.random.default_rng(0).integers(0, 255, (700, 300), dtype=np.uint8),
    "ids": np.array(["a", "bb", ""]),
    "number": np.array(7),
    "empty": np.empty((0, 4), dtype=np.float32),
}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("mapped") / "block"
    write_arrays(path, ARRAYS)
    return path


def flipped(written, path, place, bit=0):
    """Write a copy with one flipped bit."""
    content = bytearray(written.read_bytes())
    content[place % len(content)] ^= 1 << bit
    path.write_bytes(content)
    return path


def test_arrays_are_mapped_and_equal_to_those_written(written):
    arrays = MappedArrays(written)
    assert list(arrays) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert np.array_equal(arrays[name], array), name
        assert arrays[name].dtype == array.dtype
        assert not arrays[name].flags.owndata
        arrays[name][...] = 0
        assert np.array_equal(MappedArrays(written)[name], array), "changes stay in this process"


def test_only_the_pages_of_the_rows_that_are_read_are_verified(written, tmp_path):
    content = written.read_bytes()
    place = content.index(ARRAYS["large"].tobytes()) + 3 * PAGE + 7  # of row 655
    arrays = MappedArrays(flipped(written, tmp_path / "block", place))
    assert np.array_equal(row_range(arrays, "large", 300, 600), row_range(ARRAYS, "large", 300, 600))
    with refused(DamagedError, "'large'", "196,608"):
        row_range(arrays, "large", 655, 656)
    with pytest.raises(DamagedError):
        arrays["large"]
    assert np.array_equal(arrays["rows"], ARRAYS["rows"])


@pytest.mark.skipif(not hasattr(mmap.mmap, "madvise"), reason="no such call on this system")
@settings(deadline=None)
@given(rows=st.lists(st.integers(0, 699), max_size=20))
def test_prefetched_bytes_contain_the_rows_that_are_read_next(written, rows):
    hints = []

    class RecordingMap:
        def madvise(self, option, start, length):
            assert start % mmap.PAGESIZE == 0
            hints.append((start, start + length))

    arrays, row_index = MappedArrays(written), np.array(rows, dtype=np.int64)
    begin = written.read_bytes().index(ARRAYS["large"].tobytes())
    arrays._map = RecordingMap()
    arrays.prefetch("large", row_index)
    for row, (start, stop) in zip(rows, hints, strict=True):
        assert start <= begin + 300 * row < begin + 300 * (row + 1) <= stop <= start + 2 * PAGE + mmap.PAGESIZE
    assert np.array_equal(arrays.scattered_rows("large", row_index), ARRAYS["large"][rows])


@settings(max_examples=100, deadline=None)
@given(place=st.integers(min_value=0, max_value=1 << 30), bit=st.integers(0, 7))
def test_any_flipped_bit_is_detected(written, tmp_path_factory, place, bit):
    with pytest.raises(DamagedError):
        dict(MappedArrays(flipped(written, tmp_path_factory.mktemp("flip") / "block", place, bit)))


@pytest.mark.parametrize("place", [*range(120), -1])
def test_a_flipped_bit_in_the_first_or_last_bytes_is_detected(written, tmp_path, place):
    with pytest.raises(DamagedError):
        dict(MappedArrays(flipped(written, tmp_path / "block", place, place % 8)))


@pytest.mark.parametrize("stop", [0, 1, 31, 32, 50, 1000, -64, -1])
def test_a_missing_or_truncated_file_is_refused(written, tmp_path, stop):
    with pytest.raises(DamagedError):
        MappedArrays(tmp_path / "block")
    (tmp_path / "block").write_bytes(written.read_bytes()[:stop])
    with pytest.raises(DamagedError):
        dict(MappedArrays(tmp_path / "block"))


def test_a_removed_file_stays_readable_where_it_is_mapped(written, tmp_path):
    shutil.copy(written, tmp_path / "block")
    arrays = MappedArrays(tmp_path / "block")
    (tmp_path / "block").unlink()
    assert np.array_equal(arrays["large"], ARRAYS["large"])


def test_an_unknown_name_raises_a_key_error(written):
    with pytest.raises(KeyError):
        MappedArrays(written)["other"]


def test_a_damaged_error_can_be_pickled(tmp_path):
    error = DamagedError(tmp_path, "cut")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.path) == (str(error), tmp_path)
