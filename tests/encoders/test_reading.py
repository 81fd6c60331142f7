import pytest

from untrimmed.encoders.reading import known_words, reading_of
from untrimmed.types import Reading

TEXT = "one two three"
ONE, TWO, TH, REE = (0, 3), (4, 7), (8, 10), (10, 13)


@pytest.mark.parametrize(
    ("pieces", "is_cut", "reading"),
    [
        ([(*ONE, True), (*TWO, True), (*TH, True), (*REE, False)], False, Reading()),  # one known piece is enough
        ([(*ONE, True), (*TWO, False), (*TH, False), (*REE, False)], False, Reading(("two", "three"))),
        ([(*ONE, False), (*TWO, False)], False, Reading(("one", "two"), is_understood=False)),
        ([], False, Reading(is_understood=False)),
        ([(*ONE, True), (*TWO, True)], True, Reading(num_words_read=2)),
        ([(*ONE, True), (*TWO, True), (*TH, True)], True, Reading(num_words_read=2)),  # "three" was read in part
    ],
)
def test_words_are_known_by_their_pieces(pieces, is_cut, reading):
    assert reading_of(TEXT, pieces, is_cut=is_cut) == reading


@pytest.mark.parametrize(
    ("reading", "known"),
    [
        (Reading(), TEXT),
        (Reading(("two",)), "one three"),
        (Reading(("one", "two", "three"), is_understood=False), TEXT),  # its vector is not used
        (Reading(("one",), num_words_read=2), "two"),  # words after the cut are not added
    ],
)
def test_unknown_words_are_removed(reading, known):
    assert known_words(TEXT, reading) == known
