import numpy as np
import pytest
from PIL import Image

from untrimmed.demo.camera import ASPECT, HEIGHT, WIDTH, Move, Window, blend, plan_move, to_planes, view
from untrimmed.demo.sources import FILLERS, SUBJECTS, Footage, load_pictures

PROGRESS = np.linspace(0, 1, 9)


@pytest.mark.parametrize("footage", SUBJECTS + FILLERS, ids=lambda footage: footage.name)
def test_the_window_stays_inside_the_picture_and_shows_the_subject(footage: Footage):
    width, height = load_pictures(footage)[0].size
    subject = footage.subject or (0.5, 0.5, 0.5, 0.5)
    tolerance = 0.51  # a subject may be half a pixel larger than the largest window
    for seed in range(20):
        move = plan_move((width, height), footage.subject, footage.closest, np.random.default_rng(seed))
        for progress in PROGRESS:
            left, top, right, bottom = move.at(float(progress)).box
            assert left > -tolerance
            assert top > -tolerance
            assert right < width + tolerance
            assert bottom < height + tolerance
            if footage.subject is not None:
                assert left <= subject[0] * width + tolerance
                assert top <= subject[1] * height + tolerance
                assert right >= subject[2] * width - tolerance
                assert bottom >= subject[3] * height - tolerance


def test_the_seed_determines_the_move():
    plan = [plan_move((640, 480), None, 0.5, np.random.default_rng(seed)) for seed in (1, 1, 2)]
    assert plan[0] == plan[1] != plan[2]


def test_a_move_starts_and_ends_softly():
    move = Move(Window(0.0, 0.0, 100.0), Window(80.0, 0.0, 100.0))
    # smoothstep(0.1) = 3 * 0.01 - 2 * 0.001 = 0.028
    assert move.at(0.1).left == pytest.approx(80 * 0.028)
    assert (move.at(0.0).left, move.at(0.5).left, move.at(1.0).left) == (0, 40, 80)


def test_a_view_shows_the_content_of_the_window():
    picture = np.zeros((360, 1280, 3), np.uint8)
    picture[:, 640:] = 255
    planes = to_planes(Image.fromarray(picture))
    left, right = view(planes, Window(0.0, 0.0, 640.0)), view(planes, Window(640.0, 0.0, 640.0))
    assert [plane.size for plane in left] == [(WIDTH, HEIGHT), (WIDTH // 2, HEIGHT // 2), (WIDTH // 2, HEIGHT // 2)]
    # Limited range: black is 16, white is 235, no colour is 128.
    assert (np.asarray(left[0])[:, :600] == 16).all()
    assert (np.asarray(right[0])[:, 40:] == 235).all()
    assert (np.asarray(left[1]) == 128).all()
    assert pytest.approx(16 / 9) == ASPECT


def test_a_fade_goes_from_the_first_picture_to_the_second():
    black, white = (to_planes(Image.new("RGB", (4, 4), colour)) for colour in ("black", "white"))
    assert [blend(black, white, part)[0].getpixel((0, 0)) for part in (0.0, 0.5, 1.0)] == [16, 125, 235]
