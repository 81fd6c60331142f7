"""Folders of numbered pictures in a library: found, skipped, moved, encoded again, searched."""

import os
import shutil

import numpy as np
import pytest
from PIL import Image

import untrimmed
from tests.media import write_pictures
from tests.refusals import refused
from tests.tiny_features import save_networks, save_roberta
from tests.toy import COLOURS
from untrimmed.errors import ConfigError
from untrimmed.search.store.table import VideoIndex

SIZE = (48, 64)


def write_frames(folder, colours, *, each=6):
    """Pictures of one colour after another; at 3 per second, two seconds of each."""
    pixels = [np.full((*SIZE, 3), COLOURS[colour], np.uint8) * 255 for colour in colours for _ in range(each)]
    return write_pictures(folder, pixels)


@pytest.fixture
def frames(tmp_path):
    write_frames(tmp_path / "frames" / "castle" / "s01", ["red", "green"])
    write_frames(tmp_path / "frames" / "castle" / "s02", ["blue"])
    return tmp_path / "frames"


def test_folders_of_pictures_are_videos_only_with_a_rate(encoder, frames, tmp_path):
    lib = untrimmed.open(tmp_path / "library")
    report = lib.index(frames)
    assert (report.done, report.failed) == ([], [])
    report = lib.index(frames, pictures_fps=3.0)
    assert report.done == [frames / "castle" / "s01", frames / "castle" / "s02"]
    assert [(record.duration_s, record.num_frames) for record in lib.videos()] == [(4.0, 8), (2.0, 4)]
    hit = lib.search("green")[0]
    assert hit.video == frames / "castle" / "s01"
    assert (hit.start_s, hit.end_s) == pytest.approx((2.0, 4.0), abs=0.3)


def test_a_known_folder_is_skipped_until_a_picture_or_the_rate_changes(encoder, frames, tmp_path):
    lib = untrimmed.open(tmp_path / "library")
    lib.index(frames, pictures_fps=3.0)
    folder = frames / "castle" / "s01"
    assert len(lib.index(frames, pictures_fps=3.0).skipped) == 2
    os.utime(folder / "00002.png")  # touched, but with the same content
    assert len(lib.index(frames, pictures_fps=3.0).skipped) == 2
    shutil.copy(folder / "00012.png", folder / "00001.png")
    assert lib.index(frames, pictures_fps=3.0).done == [folder]
    assert len(lib.index(frames, pictures_fps=6.0).done) == 2
    assert [record.duration_s for record in lib.videos()] == [2.0, 1.0]


def test_a_moved_folder_is_recognised(encoder, frames, tmp_path):
    lib = untrimmed.open(tmp_path / "library")
    lib.index(frames, pictures_fps=3.0)
    (frames / "castle").rename(frames / "house")
    num_encoded = encoder.num_encoded
    report = lib.index(frames, pictures_fps=3.0)
    assert (len(report.moved), encoder.num_encoded) == (2, num_encoded)


def test_a_folder_has_the_features_of_the_lossless_video_of_its_pictures(tmp_path):
    """With networks of pictures and of motion, whose frames are decoded at 75 per second."""
    import av

    folder = write_frames(tmp_path / "videos" / "frames", ["red", "green", "blue"])
    rng = np.random.default_rng(0)
    for path in sorted(folder.iterdir())[::2]:
        Image.fromarray(rng.integers(0, 256, (*SIZE, 3), dtype=np.uint8)).save(path)
    with av.open(str(tmp_path / "videos" / "video.mov"), "w") as container:
        stream = container.add_stream("png", rate=3)
        stream.height, stream.width, stream.pix_fmt = *SIZE, "rgb24"
        for path in sorted(folder.iterdir()):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(np.array(Image.open(path)), format="rgb24")))
        container.mux(stream.encode())
    networks = save_networks(tmp_path / "networks")
    roberta = save_roberta(tmp_path / "roberta")
    name = f"resnet152={networks['resnet152']}+i3d={networks['i3d']}+roberta={roberta}"
    lib = untrimmed.open(tmp_path / "library")
    report = lib.index(tmp_path / "videos", encoder=name, pictures_fps=3.0, device="cpu")
    assert (len(report.done), report.failed) == (2, [])
    index = VideoIndex(tmp_path / "library")
    of_folder, of_video = (index.get(record.video_id).features for record in lib.videos())
    assert of_folder.times_s.tolist() == of_video.times_s.tolist() == [0, 1.5, 3, 4.5]
    assert np.array_equal(of_folder.vectors, of_video.vectors)
    assert not np.array_equal(of_folder.vectors[0], of_folder.vectors[1])


def test_an_impossible_rate_is_refused(tmp_path):
    with refused(ConfigError, "pictures_fps", "-1"):
        untrimmed.open(tmp_path / "library").index(tmp_path, pictures_fps=-1)
