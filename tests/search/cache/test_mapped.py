"""Arrays that are mapped: what was written, or an error before anything is made of it."""

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
    """A copy with one bit changed."""
    content = bytearray(written.read_bytes())
    content[place % len(content)] ^= 1 << bit
    path.write_bytes(content)
    return path


def test_arrays_are_what_was_written_and_mapped(written):
    arrays = MappedArrays(written)
    assert list(arrays) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert np.array_equal(arrays[name], array), name
        assert arrays[name].dtype == array.dtype
        assert not arrays[name].flags.owndata
        arrays[name][...] = 0
        assert np.array_equal(MappedArrays(written)[name], array), "what is written stays in this process"


def test_rows_are_checked_where_they_are_touched(written, tmp_path):
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
def test_what_is_fetched_is_what_will_be_read(written, rows):
    told = []

    class Noting:
        def madvise(self, option, start, length):
            assert start % mmap.PAGESIZE == 0
            told.append((start, start + length))

    arrays, some = MappedArrays(written), np.array(rows, dtype=np.int64)
    begin = written.read_bytes().index(ARRAYS["large"].tobytes())
    arrays._map = Noting()
    arrays.prefetch("large", some)
    for row, (start, stop) in zip(rows, told, strict=True):
        assert start <= begin + 300 * row < begin + 300 * (row + 1) <= stop <= start + 2 * PAGE + mmap.PAGESIZE
    assert np.array_equal(arrays.scattered_rows("large", some), ARRAYS["large"][rows])


@settings(max_examples=100, deadline=None)
@given(place=st.integers(min_value=0, max_value=1 << 30), bit=st.integers(0, 7))
def test_any_bit_that_has_changed_is_found(written, tmp_path_factory, place, bit):
    with pytest.raises(DamagedError):
        dict(MappedArrays(flipped(written, tmp_path_factory.mktemp("flip") / "block", place, bit)))


@pytest.mark.parametrize("place", [*range(120), -1])
def test_a_bit_of_the_first_or_last_bytes_is_found(written, tmp_path, place):
    with pytest.raises(DamagedError):
        dict(MappedArrays(flipped(written, tmp_path / "block", place, place % 8)))


@pytest.mark.parametrize("kept", [0, 1, 31, 32, 50, 1000, -64, -1])
def test_a_file_that_is_gone_or_cut_is_found(written, tmp_path, kept):
    with pytest.raises(DamagedError):
        MappedArrays(tmp_path / "block")
    (tmp_path / "block").write_bytes(written.read_bytes()[:kept])
    with pytest.raises(DamagedError):
        dict(MappedArrays(tmp_path / "block"))


def test_a_file_that_is_removed_stays_for_who_has_it(written, tmp_path):
    shutil.copy(written, tmp_path / "block")
    arrays = MappedArrays(tmp_path / "block")
    (tmp_path / "block").unlink()
    assert np.array_equal(arrays["large"], ARRAYS["large"])


def test_a_name_that_was_not_written_is_no_key(written):
    with pytest.raises(KeyError):
        MappedArrays(written)["other"]


def test_damage_is_told_to_another_process_as_it_is(tmp_path):
    error = DamagedError(tmp_path, "cut")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.path) == (str(error), tmp_path)
