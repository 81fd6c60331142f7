from pathlib import Path

import numpy as np
from PIL import Image

from untrimmed.demo.picture import draw_hit
from untrimmed.types import Moment

TIMES_S = np.arange(0.0, 40.0, 0.5)
RELEVANCE = np.exp(-(((TIMES_S - 20.0) / 3.0) ** 2))


def _draw(path: Path, truth: list[Moment], hit: Moment = Moment(17.0, 22.0)) -> np.ndarray:
    frame = np.zeros((90, 160, 3), np.uint8)
    frame[:] = (0, 128, 0)
    drawn = draw_hit(path, "a green field", frame, 20.0, TIMES_S, RELEVANCE, truth, hit, video="field.mp4")
    assert drawn == path
    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB")).astype(int)


def _columns(pixels: np.ndarray, colour: tuple[int, int, int], rows: slice) -> np.ndarray:
    near = (np.abs(pixels[rows] - np.array(colour)) < 6).all(axis=-1)
    return np.flatnonzero(near.any(axis=0))


def test_the_picture_is_1320_pixels_wide_and_shows_the_frame(tmp_path: Path):
    pixels = _draw(tmp_path / "hit.png", [Moment(16.0, 23.0)])
    assert pixels.shape == (444, 1320, 3)
    assert _columns(pixels, (0, 128, 0), slice(None)).size > 450
    assert [path.name for path in tmp_path.iterdir()] == ["hit.png"]


def test_the_bracket_marks_the_span_of_the_hit(tmp_path: Path):
    curve_area = slice(115, 350)
    orange = (194, 65, 12)
    early = _columns(_draw(tmp_path / "a.png", [], Moment(2.0, 6.0)), orange, curve_area)
    late = _columns(_draw(tmp_path / "b.png", [], Moment(20.0, 30.0)), orange, curve_area)
    # The axis is 0 to 39.5 s over 0.505 of 1320 pixels: 16.9 pixels a second; the line itself is 4 pixels wide.
    assert abs(np.ptp(early) - 4 * 16.9) <= 6
    assert abs(np.ptp(late) - 10 * 16.9) <= 6
    assert abs(late.min() - early.min() - 18 * 16.9) <= 3


def test_only_correct_moments_of_this_video_are_shaded(tmp_path: Path):
    shade = (250, 230, 195)  # the amber at 0.35 on white
    rows = slice(115, 300)
    shaded = _columns(_draw(tmp_path / "a.png", [Moment(10.0, 20.0)]), shade, rows)
    assert abs((shaded.max() - shaded.min()) - 10 * 16.9) < 6
    assert _columns(_draw(tmp_path / "b.png", []), shade, rows).size == 0
