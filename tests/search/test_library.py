import os
import shutil
from dataclasses import replace

import numpy as np
import pytest

import untrimmed
from tests.refusals import refused, require_named
from tests.search.conftest import use_encoder
from tests.toy import ToyEncoder, write_clip
from untrimmed.errors import ConfigError, IndexMismatchError, UnknownNameError, UntrimmedError


@pytest.fixture
def videos(tmp_path):
    folder = tmp_path / "videos"
    (folder / "sub").mkdir(parents=True)
    write_clip(folder / "flag.mp4", ["red", "white", "green"])
    write_clip(folder / "sea.mp4", ["blue", "blue", "white"])
    write_clip(folder / "sub" / "sun [1].mkv", ["yellow", "red"])
    (folder / "notes.txt").write_text("not a video")
    (folder / ".hidden.mp4").write_text("ignored")
    return folder


@pytest.fixture
def lib(tmp_path):
    return untrimmed.open(tmp_path / "library")


def states(lib, videos):
    report = lib.index(videos)
    return len(report.done), len(report.skipped), len(report.failed)


def test_a_sentence_finds_the_video_and_the_span(encoder, videos, lib):
    assert states(lib, videos) == (3, 0, 0)
    best = lib.search("something green")[0]
    assert best.video == videos / "flag.mp4"
    assert best.start_s == pytest.approx(4.0, abs=0.75)
    assert best.end_s == pytest.approx(6.0, abs=0.3)
    assert best.moments[0].start_s == best.start_s
    assert [hit.video.name for hit in lib.search("yellow", limit=1)] == ["sun [1].mkv"]


def test_search_respects_folder_threshold_and_limit(encoder, videos, lib):
    lib.index(videos)
    assert [hit.video.name for hit in lib.search("blue", within=videos / "sub")] == ["sun [1].mkv"]
    assert len(lib.search("blue", limit=2)) == 2
    assert [hit.video.name for hit in lib.search("blue", min_score=0.9)] == ["sea.mp4"]
    assert lib.search("blue", min_score=1.1) == []


def test_unchanged_files_are_not_encoded_again(encoder, videos, lib):
    lib.index(videos)
    encoded = encoder.num_encoded
    assert states(lib, videos) == (0, 3, 0)
    (videos / "sea.mp4").touch()  # another modification time, the same content
    assert states(lib, videos) == (0, 3, 0)
    assert encoder.num_encoded == encoded


def test_a_moved_file_is_not_encoded_again_and_keeps_its_id(encoder, videos, lib):
    lib.index(videos)
    encoded, previous = encoder.num_encoded, {record.path: record.video_id for record in lib.videos()}
    (videos / "sea.mp4").rename(videos / "sub" / "ocean.mp4")
    report = lib.index(videos)
    assert report.moved == [videos / "sub" / "ocean.mp4"]
    assert encoder.num_encoded == encoded
    after = {record.path: record.video_id for record in lib.videos()}
    assert after[str(videos / "sub" / "ocean.mp4")] == previous[str(videos / "sea.mp4")]
    assert str(videos / "sea.mp4") not in after
    assert lib.search("blue")[0].video == videos / "sub" / "ocean.mp4"


def test_a_copy_is_not_encoded_again_and_can_be_found(encoder, videos, lib):
    lib.index(videos)
    encoded = encoder.num_encoded
    shutil.copyfile(videos / "sea.mp4", videos / "copy.mp4")
    assert states(lib, videos) == (0, 4, 0)
    assert encoder.num_encoded == encoded
    assert {hit.video.name for hit in lib.search("blue", limit=2)} == {"sea.mp4", "copy.mp4"}


def test_two_copies_in_one_run_are_encoded_once(encoder, videos, lib):
    shutil.copyfile(videos / "sea.mp4", videos / "sea2.mp4")
    assert states(lib, videos) == (3, 1, 0)
    assert len(lib.videos()) == 4


def test_a_changed_file_is_encoded_again_under_its_id(encoder, videos, lib):
    lib.index(videos)
    previous = {record.path: record.video_id for record in lib.videos()}
    write_clip(videos / "sea.mp4", ["yellow", "yellow"])
    os.utime(videos / "sea.mp4", (1, 1))
    assert states(lib, videos) == (1, 2, 0)
    assert {record.path: record.video_id for record in lib.videos()} == previous
    assert lib.search("blue", min_score=0.9) == []


def test_another_sampling_encodes_all_videos_again(encoder, videos, lib):
    lib.index(videos)
    report = lib.index(videos, fps=4)
    assert len(report.done) == 3
    assert {record.sampling for record in lib.videos()} == {"4 fps"}
    require_named(report.notice, "2 fps", "4 fps", "3")
    assert states(lib, videos) == (0, 3, 0)  # the library keeps its sampling
    assert lib.index(videos).notice is None


def test_another_encoder_is_refused_and_changes_nothing(encoder, videos, lib):
    lib.index(videos)
    encoder.identity = "toy:2"
    other = untrimmed.open(lib.folder)
    with refused(IndexMismatchError, "toy:1", "toy:2"):
        other.index(videos)
    with pytest.raises(IndexMismatchError):
        other.search("red")
    assert {record.encoder_identity for record in lib.videos()} == {"toy:1"}


def test_an_open_library_sees_commits_of_another_one(encoder, videos, lib):
    lib.index(videos / "flag.mp4")
    reader = untrimmed.open(lib.folder)
    assert len(reader.search("blue")) == 1
    lib.index(videos)
    assert len(reader.search("blue")) == 3
    lib.remove([videos / "sub"])
    assert len(reader.search("blue")) == 2


def test_relevance_rises_where_the_sentence_fits(encoder, videos, lib):
    lib.index(videos)
    times_s, values = lib.relevance("green", videos / "flag.mp4")
    assert times_s[values.argmax()] >= 4.0
    with pytest.raises(UnknownNameError, match=r"other\.mp4"):
        lib.relevance("green", videos / "other.mp4")


def test_invalid_arguments_are_refused(encoder, videos, lib, tmp_path):
    with pytest.raises(UntrimmedError):
        lib.index(tmp_path / "nowhere")
    with pytest.raises(UntrimmedError):
        lib.search("red")
    lib.index(videos)
    with pytest.raises(ConfigError):
        lib.search("  ")
    with pytest.raises(ConfigError):
        lib.search("red", limit=0)
    with pytest.raises(UnknownNameError, match=r"nowhere\.mp4"):
        lib.remove([tmp_path / "nowhere.mp4"])
    with pytest.raises(ConfigError, match=r"fps|frames"):
        lib.index(videos, fps=-1)


def test_a_file_that_was_moved_and_replaced_keeps_its_vectors(encoder, videos, lib):
    lib.index(videos)
    encoded = encoder.num_encoded
    (videos / "flag.mp4").rename(videos / "zebra.mp4")
    write_clip(videos / "flag.mp4", ["yellow", "yellow", "white", "yellow"])
    assert states(lib, videos) == (1, 3, 0)
    assert lib.search("green")[0].video.name == "zebra.mp4"
    assert lib.search("yellow")[0].video.name == "flag.mp4"
    assert encoder.num_encoded - encoded == 3  # pictures of the new file: yellow, white, yellow


def test_two_files_that_swap_names_keep_their_vectors(encoder, videos, lib):
    lib.index(videos)
    (videos / "flag.mp4").rename(videos / "other.mp4")
    (videos / "sea.mp4").rename(videos / "flag.mp4")
    (videos / "other.mp4").rename(videos / "sea.mp4")
    report = lib.index(videos)
    assert not report.failed
    assert lib.search("green")[0].video.name == "sea.mp4"
    assert lib.search("blue")[0].video.name == "flag.mp4"


def test_an_unreadable_folder_is_reported_and_others_are_indexed(encoder, videos, lib, monkeypatch):
    def scandir(path, real=os.scandir):
        if os.fspath(path) == str(videos / "sub"):
            raise PermissionError(13, "Permission denied", str(videos / "sub"))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    report = lib.index(videos)
    assert len(report.done) == 2
    assert [failure.path for failure in report.failed] == [videos / "sub"]
    assert "Permission denied" in report.failed[0].reason


def test_a_full_disk_ends_the_run_in_one_line_and_keeps_finished_videos(encoder, videos, lib, monkeypatch):
    lib.index(videos / "flag.mp4")

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("lance.LanceDataset.insert", full)
        with refused(UntrimmedError, "No space left on device"):
            lib.index(videos)
    assert [record.path for record in lib.videos()] == [str(videos / "flag.mp4")]
    assert states(lib, videos) == (2, 1, 0)


def test_an_emptied_library_keeps_its_settings_unless_an_encoder_is_named(encoder, videos, lib):
    lib.index(videos, fps=4)
    lib.remove([videos])
    lib.index(videos)
    assert {record.sampling for record in lib.videos()} == {"4 fps"}
    lib.remove([videos])
    encoder.identity = "toy:2"
    lib.index(videos, encoder="toy")
    assert {record.encoder_identity for record in lib.videos()} == {"toy:2"}


class OtherEncoder(ToyEncoder):
    """The same vectors in reverse order, in the same number of dimensions or one more."""

    def __init__(self, width):
        super().__init__("toy:2")
        self.frame_dim = self.word_dim = width

    def encode_frames(self, frames):
        return self._turned(super().encode_frames(frames))

    def encode_texts(self, texts):
        actual = super().encode_texts(texts)
        return [replace(text, sentence=self._turned(text.sentence), words=self._turned(text.words)) for text in actual]

    def _turned(self, vectors):
        more = self.frame_dim - vectors.shape[-1]
        return np.pad(vectors[..., ::-1], [(0, 0)] * (vectors.ndim - 1) + [(0, more)])


@pytest.mark.parametrize("width", [4, 5])
def test_an_open_library_loads_the_encoder_that_another_process_indexed_with(encoder, videos, lib, monkeypatch, width):
    lib.index(videos)
    assert lib.search("green")[0].video == videos / "flag.mp4"
    use_encoder(monkeypatch, OtherEncoder(width))
    writer = untrimmed.open(lib.folder)
    writer.remove([videos])
    writer.index(videos, encoder="toy")
    image = np.zeros((8, 8, 3), dtype=np.uint8)
    image[..., 1] = 255
    for actual in (lib.search("green"), lib.similar(image)):
        assert (actual[0].video, actual[0].score > 0.9) == (videos / "flag.mp4", True)
    assert lib.search("green") == untrimmed.open(lib.folder).search("green")


def test_rank_equals_one_search_per_sentence(encoder, videos, lib):
    lib.index(videos)
    sentences = ["red", "green", "blue"]
    ranked = lib.rank(sentences, limit=2)
    for sentence, actual in zip(sentences, ranked, strict=True):
        assert list(actual.items()) == [(hit.video, hit.score) for hit in lib.search(sentence, limit=2)]
    assert all(
        path.is_relative_to(videos / "sub") for actual in lib.rank(sentences, within=videos / "sub") for path in actual
    )
    assert lib.rank([]) == []
    for wrong in ("red", [""]):
        with pytest.raises(ConfigError):
            lib.rank(wrong)
