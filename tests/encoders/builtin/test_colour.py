import numpy as np
import pytest

from untrimmed.encoders.builtin.colour import _NAMES, DIM, MAX_NORM, ColourNames


@pytest.fixture(scope="module")
def colours() -> ColourNames:
    return ColourNames()


@pytest.mark.parametrize(
    ("rgb", "name"),
    [
        ((0, 0, 0), "black"),
        ((128, 128, 128), "grey"),
        ((255, 255, 255), "white"),
        ((200, 20, 30), "red"),
        ((250, 150, 20), "orange"),
        ((250, 230, 40), "yellow"),
        ((120, 75, 40), "brown"),
        ((40, 120, 40), "green"),
        ((30, 60, 200), "blue"),
        ((120, 30, 150), "purple"),
        ((250, 150, 190), "pink"),
    ],
)
def test_a_frame_of_one_colour_has_its_name(colours, rgb, name):
    (evidence,) = colours.describe(np.full((1, 8, 8, 3), rgb, np.uint8))
    assert _NAMES[int(evidence[:-1].argmax())] == name
    # ln((1 + 0.01) / (1/11 + 0.01)) / -ln 0.01 = 0.503, cut to 1/2; a colour that is absent: -0.500
    np.testing.assert_allclose(evidence.max(), 0.5, atol=1e-6)
    assert np.linalg.norm(evidence) <= MAX_NORM + 1e-6


def test_the_last_component_separates_grey_from_coloured_pictures(colours):
    grey = np.full((8, 8, 3), 90, np.uint8)
    red = np.full((8, 8, 3), (200, 0, 0), np.uint8)
    np.testing.assert_array_equal(colours.describe(np.stack([grey, red]))[:, -1], [0.5, -0.5])


def test_colour_words_and_their_synonyms_are_recognised(colours):
    np.testing.assert_array_equal(colours.mentioned("a man in a boat"), np.zeros(DIM))
    assert {_NAMES[i] for i in np.flatnonzero(colours.mentioned("A golden-red leaf"))} == {"yellow", "red"}
    np.testing.assert_allclose(np.linalg.norm(colours.mentioned("a golden-red leaf")), 1)


def test_black_and_white_is_two_colours_of_a_thing_but_none_of_a_film(colours):
    dog, film, style = map(
        colours.mentioned, ("a black and white dog", "a black and white silent film", "a dog, in black and white")
    )
    assert {_NAMES[i] for i in np.flatnonzero(dog)} == {"black", "white"}
    for vector in (film, style):
        np.testing.assert_array_equal(np.flatnonzero(vector), [DIM - 1])
