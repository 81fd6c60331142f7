"""Thumbnails are at most a second apart, small, and within a limit of bytes per hour."""

import io

import numpy as np
import pytest
from PIL import Image

from untrimmed.video.thumbnails import ThumbnailMaker


def thumbnails(times_s, frames):
    maker = ThumbnailMaker()
    for start in range(0, len(times_s), 3):  # in batches that fit neither the rate nor the end
        maker.add(times_s[start : start + 3], frames[start : start + 3])
    return maker.finish()


def noise(number, height=180, width=320):
    return np.random.default_rng(0).integers(0, 256, (number, height, width, 3), dtype=np.uint8)


@pytest.mark.parametrize(
    ("times_s", "expected"),
    [
        ([0.0, 0.5, 1.0, 1.5, 2.0, 2.5], [0.0, 1.0, 2.0, 2.5]),
        ([0.0, 1.0, 2.0], [0.0, 1.0, 2.0]),
        ([0.0, 2 / 3, 4 / 3, 2.0], [0.0, 2 / 3, 4 / 3, 2.0]),  # every second one would leave gaps of 1.3 s
        ([0.0, 4.0, 9.0], [0.0, 4.0, 9.0]),  # key frames
        ([k / 25 for k in range(60)], [0.0, 1.0, 2.0, 59 / 25]),
        ([0.3], [0.3]),
    ],
)
def test_the_pictures_are_a_second_apart_and_include_the_last_frame(times_s, expected):
    assert thumbnails(times_s, noise(len(times_s), 8, 8)).times_s.tolist() == expected


@pytest.mark.parametrize(
    ("height", "width", "size"),
    [(288, 512, (284, 160)), (512, 288, (90, 160)), (90, 120, (120, 90)), (2000, 4, (1, 160))],
)
def test_large_frames_are_reduced_to_160_rows(height, width, size):
    picture = thumbnails([0.0], noise(1, height, width)).pictures[0]
    image = Image.open(io.BytesIO(picture))
    assert (image.format, image.size) == ("WEBP", size)


def test_a_picture_shows_its_frame():
    frame = np.zeros((1, 320, 320, 3), dtype=np.uint8)
    frame[:, :160] = (255, 0, 0)
    image = np.asarray(Image.open(io.BytesIO(thumbnails([0.0], frame).pictures[0])).convert("RGB"))
    assert abs(image[20, 80].astype(int) - (255, 0, 0)).max() < 12
    assert image[140, 80].max() < 12


def test_a_scene_without_motion_is_stored_once():
    frames = np.concatenate([np.repeat(noise(1), 50, axis=0), noise(2)[1:]])
    still = thumbnails([float(time_s) for time_s in range(51)], frames)
    assert still.rows == (0,) * 50 + (1,)
    assert len(still.pictures) == 2


def test_no_more_than_25_megabytes_per_hour_even_for_noisy_pictures():
    rng = np.random.default_rng(0)
    coarse = rng.integers(64, 192, (60, 32, 57, 3), dtype=np.uint8)
    frames = coarse.repeat(5, axis=1).repeat(5, axis=2)
    made = thumbnails([float(time_s) for time_s in range(60)], frames)
    sizes = [len(picture) for picture in made.pictures]
    assert 3600 * sizes[0] > 25e6  # at the usual quality
    assert sum(sizes) < 25e6 / 60


def test_no_frames_give_no_pictures():
    assert thumbnails([], []).pictures == ()
