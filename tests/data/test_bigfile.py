import numpy as np
import pytest

from tests.refusals import refused
from untrimmed.data.annotations import Annotation
from untrimmed.data.bigfile import (
    BigFile,
    read_captions,
    read_video2frames,
    write_bigfile,
    write_captions,
)
from untrimmed.errors import FeatureError

VIDEOS = {"b_1": np.arange(6, dtype=np.float32).reshape(3, 2), "café": np.array([[9.0, 8.0]], dtype=np.float32)}


@pytest.fixture
def folder(tmp_path):
    write_bigfile(tmp_path / "features", VIDEOS.items())
    return tmp_path / "features"


def test_written_features_are_read_back_by_video(folder):
    store, table = BigFile(folder), read_video2frames(folder / "video2frames.txt")
    assert store.shape == (4, 2)
    assert {video: store.read_sequence(names).tolist() for video, names in table.items()} == {
        video: frames.tolist() for video, frames in VIDEOS.items()
    }


def test_a_bulk_read_drops_repeated_and_unknown_names_and_returns_row_order(folder):
    names, vectors = BigFile(folder).read(["b_1_2", "nobody", "b_1_0", "b_1_2"])
    assert names == ["b_1_0", "b_1_2"]
    assert vectors.tolist() == [[0.0, 1.0], [4.0, 5.0]]
    assert BigFile(folder).read([])[1].shape == (0, 2)


def test_a_name_is_not_split_at_a_byte_that_decodes_to_a_space(folder):
    (folder / "id.txt").write_bytes(b"a\xa0b b\nc\td")
    assert BigFile(folder).names == ["a\xa0b", "b", "c", "d"]


def test_a_repeated_name_refers_to_its_last_row(folder):
    (folder / "id.txt").write_text("x y x z")
    assert BigFile(folder).read_one("x").tolist() == [4.0, 5.0]


def test_the_error_names_an_unknown_frame(folder):
    for read in (lambda s: s.read_one("nobody"), lambda s: s.read_sequence(["b_1_0", "nobody"])):
        with refused(FeatureError, "'nobody'"):
            read(BigFile(folder))


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("shape.txt", b"4\n", ("shape.txt",)),
        ("shape.txt", b"5 2\n", ("id.txt", "4", "shape.txt", "5")),
        ("feature.bin", b"1234", ("feature.bin", "4", "32")),
    ],
)
def test_inconsistent_files_are_refused(folder, file, content, message):
    (folder / file).write_bytes(content)
    with refused(FeatureError, *message):
        BigFile(folder)


@pytest.mark.parametrize("file", ["shape.txt", "id.txt", "feature.bin"])
def test_the_error_names_a_missing_file(folder, file):
    (folder / file).unlink()
    with pytest.raises(FeatureError, match=file):
        BigFile(folder)


@pytest.mark.parametrize(
    "text", ["__import__('os').getcwd()", "{'a': 'frame'}", "[1]", "{", "{'a': [1]}", "{1: ['a']}"]
)
def test_the_frame_table_is_parsed_and_never_executed(tmp_path, text):
    path = tmp_path / "video2frames.txt"
    path.write_text(text)
    with pytest.raises(FeatureError, match="video2frames"):
        read_video2frames(path)


def test_a_caption_starts_after_the_first_space_and_its_video_ends_at_the_hash(tmp_path):
    path = tmp_path / "c.txt"
    path.write_text("v1#enc#0 a dog  runs # fast \n\n v2#1 x\n", encoding="utf-8")
    captions = read_captions(path)
    assert captions == [Annotation("v1", "v1#enc#0", "a dog  runs # fast"), Annotation("v2", "v2#1", "x")]
    assert [caption.video for caption in captions] == ["v1", "v2"]


def test_captions_are_written_and_read_back(tmp_path):
    captions = [Annotation("v", "v#0", "first line"), Annotation("v", "v#1", "zweite Zeile, schön")]
    write_captions(tmp_path / "c.txt", captions)
    assert read_captions(tmp_path / "c.txt") == captions


def test_the_error_names_the_line_without_text(tmp_path):
    path = tmp_path / "c.txt"
    path.write_text("v#0 fine\nv#1\n")
    with refused(FeatureError, "c.txt:2", "'v#1'"):
        read_captions(path)


@pytest.mark.parametrize("captions", [[("a b", "x")], [("a", "x"), ("a", "y")], [("a", " ")]])
def test_unreadable_captions_are_not_written(tmp_path, captions):
    with pytest.raises(FeatureError):
        write_captions(tmp_path / "c.txt", [Annotation("v", *caption) for caption in captions])
    assert not (tmp_path / "c.txt").exists()


@pytest.mark.parametrize(
    ("videos", "message"),
    [
        ({"a": np.zeros((1, 2)), "b": np.zeros((1, 3))}, r"widths \[2, 3\]"),
        ({"a b": np.zeros((1, 2))}, "'a b_0'"),
        ({"漢": np.zeros((1, 2))}, "'漢_0'"),
        ({}, "no videos"),
    ],
)
def test_unreadable_features_are_not_written(tmp_path, videos, message):
    with pytest.raises(FeatureError, match=message):
        write_bigfile(tmp_path / "f", videos.items())
    assert not (tmp_path / "f").exists()


def test_a_byte_order_mark_is_not_part_of_the_first_caption(tmp_path):
    path = tmp_path / "captions.txt"
    path.write_text("\ufeffa#enc#0 a dog\n", encoding="utf-8")
    assert [caption.video for caption in read_captions(path)] == ["a"]


def test_the_error_names_a_folder_in_place_of_the_frame_table_once(tmp_path):
    with pytest.raises(FeatureError) as failure:
        read_video2frames(tmp_path)
    assert str(failure.value).count(str(tmp_path)) == 1
