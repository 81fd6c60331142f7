from pathlib import Path

import pytest

from untrimmed.cli import cut as cut_module
from untrimmed.cli import last_search
from untrimmed.cli.last_search import NumberedMoment, recall, remember
from untrimmed.errors import ConfigError, UnknownNameError
from untrimmed.search.query.hits import Hit
from untrimmed.types import Moment


def hit(name, *moments):
    first = moments[0]
    return Hit(Path(name), name, first.start_s, first.end_s, 0.5, 60.0, moments)


HITS = [hit("a.mp4", Moment(1.0, 4.0), Moment(9.0, 12.5)), hit("b.mp4", Moment(0.0, 2.0))]


def test_hits_of_the_last_search_have_numbers(tmp_path):
    remember(tmp_path, HITS)
    first, second = NumberedMoment("1", Path("a.mp4"), 1.0, 4.0), NumberedMoment("2", Path("b.mp4"), 0.0, 2.0)
    assert recall(tmp_path, "2") == [second]
    assert recall(tmp_path, "1.2") == [NumberedMoment("1.2", Path("a.mp4"), 9.0, 12.5)]
    assert recall(tmp_path, "1-2") == [first, second]
    assert recall(tmp_path, "2, 1.2,1-1") == [second, NumberedMoment("1.2", Path("a.mp4"), 9.0, 12.5), first]


def test_a_hit_without_a_moment_is_its_best_moment_even_if_moments_are_in_time_order(tmp_path):
    early, best = Moment(1.0, 4.0), Moment(9.0, 12.5)
    remember(tmp_path, [Hit(Path("a.mp4"), "a", best.start_s, best.end_s, 0.5, 60.0, (early, best))])
    assert recall(tmp_path, "1") == [NumberedMoment("1", Path("a.mp4"), 9.0, 12.5)]
    assert recall(tmp_path, "1.1") == [NumberedMoment("1.1", Path("a.mp4"), 1.0, 4.0)]


def test_clips_of_videos_with_equal_names_say_which_folder(tmp_path):
    hits = [
        NumberedMoment(rank, Path(path), 0.0, 1.0)
        for rank, path in [("1", "/a/x.mp4"), ("2", "/b/x.mkv"), ("3", "/b/y.mp4")]
    ]
    names = [file.name for file in cut_module._files(hits, tmp_path)]
    assert names == ["01_a_x_0.0-1.0s.mp4", "02_b_x_0.0-1.0s.mp4", "03_y_0.0-1.0s.mp4"]


@pytest.mark.parametrize(
    ("number", "error"),
    [
        ("3", UnknownNameError),
        ("0", UnknownNameError),
        ("1.9", UnknownNameError),
        ("x", ConfigError),
        ("1-999999999", UnknownNameError),
        ("2-1", ConfigError),
        ("1-2.2", ConfigError),
        ("1,", ConfigError),
        ("²", ConfigError),
    ],
)
def test_unknown_hit_numbers_are_refused(tmp_path, number, error):
    remember(tmp_path, HITS)
    with pytest.raises(error):
        recall(tmp_path, number)


def test_a_search_without_hits_is_named(tmp_path):
    remember(tmp_path, HITS)
    remember(tmp_path, [], "a dog")
    with pytest.raises(UnknownNameError, match=r"hit 1: the last search \(a dog\) found nothing; search again"):
        recall(tmp_path, "1")


@pytest.mark.parametrize(
    "damage",
    ["{", "5", "null", '[["a"]]', '[["v", [[1]]]]', '[["v", 1]]', "[[1, [[1, 2]]]]", '[["v", [["a", 2]]]]', "[null]"],
)
def test_a_damaged_file_of_hits_asks_for_another_search(tmp_path, damage):
    (tmp_path / "last_search.json").write_text(damage)
    with pytest.raises(ConfigError):
        recall(tmp_path, "1")


@pytest.mark.parametrize("lets_delete", [True, False])
@pytest.mark.parametrize("has_cache", [True, False])
def test_hits_of_an_older_search_are_deleted_if_new_ones_cannot_be_stored(
    tmp_path, monkeypatch, capsys, lets_delete, has_cache
):
    """Files can be deleted on a full disk, but not in a read-only library."""
    library, cache = tmp_path / "library", tmp_path / "cache"
    monkeypatch.setattr("platformdirs.user_cache_path", lambda name: cache / name)
    remember(library, HITS)
    write_whole, unlink = last_search.write_whole, Path.unlink

    def write(path, content):
        if path.parent == library or not has_cache:
            raise OSError(28, "No space left on device")
        write_whole(path, content)

    def delete(path, **options):
        if path.parent == library and not lets_delete:
            raise OSError(30, "Read-only file system")
        unlink(path, **options)

    with monkeypatch.context() as broken:
        broken.setattr(last_search, "write_whole", write)
        broken.setattr(Path, "unlink", delete)
        remember(library, HITS[1:])
        if has_cache:
            assert recall(library, "1")[0].video == Path("b.mp4")
        elif lets_delete:
            with pytest.raises(UnknownNameError):
                recall(library, "1")
    assert ("FILE@START-END" in capsys.readouterr().err) is not has_cache
    remember(library, HITS)
    assert recall(library, "1")[0].video == Path("a.mp4")
