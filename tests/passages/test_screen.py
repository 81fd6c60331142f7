"""Text in the picture: equal lines become one passage with exact edges; what cannot be read is dropped."""

import dataclasses
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from tests.refusals import refused
from untrimmed.errors import EncoderError
from untrimmed.passages import screen
from untrimmed.passages.screen import RapidReader, ScreenLine, passages_in
from untrimmed.passages.source import Media, ReadingReport, create_source

HEIGHT, WIDTH = 180, 320
TOP, MIDDLE, BOTTOM = (20, 10, 200, 30), (20, 140, 200, 160), (20, 162, 200, 182)
DAY = [("Budget cuts", MIDDLE)]


class SmallReader:
    """Reads frames whose first pixel is the number of a picture, and knows the lines of each picture."""

    def __init__(self, pictures):
        self.pictures = pictures
        self.num_read = 0

    def lines(self, frame):
        self.num_read += 1
        return [
            ScreenLine(text, confidence, box) for text, box, confidence in self.listed(self.pictures[frame[0, 0, 0]])
        ]

    def text(self, line):
        """The number of the picture is in every pixel, so the lines are known; the box is known by its height."""
        return " ".join(text for text, box, _ in self.listed(self.pictures[line[0, 0, 0]]))

    def listed(self, picture):
        return [(line if len(line) == 3 else (*line, 0.95)) for line in picture]


def read(pictures, numbers, fps=2.0, scale=20):
    """The passages of a video that shows these pictures, two each second, and the number of readings."""
    reader = SmallReader({number * scale: picture for number, picture in pictures.items()})
    frames = [
        (index / fps, np.full((HEIGHT, WIDTH, 3), number * scale, np.uint8)) for index, number in enumerate(numbers)
    ]
    passages = list(passages_in(iter(frames), reader, lambda: len(numbers) / fps))
    return [(p.text, p.start_s, p.end_s) for p in passages], reader.num_read


def test_a_line_is_one_passage_with_edges_between_two_frames():
    pictures = {0: [], 1: DAY, 2: []}
    assert read(pictures, [0] * 5 + [1] * 9 + [2] * 10)[0] == [("Budget cuts", 2.25, 6.75)]


def test_the_first_and_last_lines_reach_the_ends_of_the_video():
    assert read({0: DAY}, [0] * 9)[0] == [("Budget cuts", 0, 4.5)]
    lines = read({0: DAY, 1: [("Weather report", MIDDLE)]}, [0] * 8 + [1] * 8)[0]
    assert lines == [("Budget cuts", 0, 3.75), ("Weather report", 3.75, 8.0)]


def test_a_picture_that_does_not_change_is_read_once():
    assert read({0: DAY}, [0] * 200)[1] == 1


def test_a_picture_that_always_changes_is_read_every_two_seconds():
    numbers = [index % 5 for index in range(100)]
    lines, num_read = read(dict.fromkeys(range(5), DAY), numbers)
    assert lines == [("Budget cuts", 0, 50)]
    assert num_read <= 26


def test_a_line_that_is_unreadable_once_stays_one_passage():
    pictures = {0: DAY, 1: [], 2: [("Budget cots", MIDDLE, 0.85)]}
    assert read(pictures, [0] * 4 + [1] * 4 + [2] * 6)[0] == [("Budget cuts", 0, 7)]


@pytest.mark.parametrize(
    "texts",
    [("Chapter 1", "Chapter 2", "Chapter 3"), ("Prices are rising", "Prices are falling"), ("Monday", "Sunday")],
)
def test_similar_lines_in_one_place_are_different_passages(texts):
    pictures = {number: [(text, MIDDLE)] for number, text in enumerate(texts)}
    numbers = [number for number in pictures for _ in range(8)]
    lines = read(pictures, numbers)[0]
    assert [text for text, *_ in lines] == list(texts)
    assert [end_s - start_s for _, start_s, end_s in lines] == pytest.approx([4] * len(texts), abs=0.5)


def test_a_line_that_returns_later_is_a_new_passage():
    lines = read({0: DAY, 1: []}, [0] * 8 + [1] * 40 + [0] * 8)[0]
    assert lines == [("Budget cuts", 0, 3.75), ("Budget cuts", 23.75, 28)]


def test_lines_below_one_another_are_one_passage_if_they_are_shown_together():
    two = [("The second half", BOTTOM), ("of a sentence", TOP), ("is below the first", MIDDLE)]
    texts = [text for text, *_ in read({0: two}, [0] * 4)[0]]
    assert sorted(texts) == ["is below the first The second half", "of a sentence"]
    later = {0: [("The first line", MIDDLE)], 1: [("The first line", MIDDLE), ("comes before it", BOTTOM)]}
    assert sorted(text for text, *_ in read(later, [0] * 8 + [1] * 8)[0]) == ["The first line", "comes before it"]


def test_doubtful_lines_and_numbers_are_dropped():
    picture = [("Budget cuts", MIDDLE, 0.5), ("12:45:07", TOP), ("x", BOTTOM)]
    assert read({0: picture}, [0] * 4)[0] == []
    assert [text for text, *_ in read({0: [("山", TOP)]}, [0] * 4)[0]] == ["山"]


def test_thin_letters_on_a_still_picture_change_the_frame():
    plain = np.full((HEIGHT * 4, WIDTH * 4, 3), 90, np.uint8)
    image = Image.fromarray(plain)
    ImageDraw.Draw(image).text((100, 600), "small text", font=ImageFont.load_default(22), fill="white")
    change = np.abs(screen._tiles(np.array(image)) - screen._tiles(plain)).max()
    assert change >= screen._MIN_CHANGE
    noise = plain + np.random.default_rng(0).integers(0, 6, plain.shape, dtype=np.uint8)
    assert np.abs(screen._tiles(noise) - screen._tiles(plain)).max() < screen._MIN_CHANGE


def write_titles(path, titles, size=(640, 360)):
    """A video with one title for each second."""
    with av.open(str(path), "w") as out:
        track = out.add_stream("mpeg4", rate=10, options={"qscale": "3"})
        track.width, track.height, track.pix_fmt = *size, "yuv420p"
        for title in titles:
            image = Image.new("RGB", size, (30, 60, 90))
            ImageDraw.Draw(image).text((60, 280), title, font=ImageFont.load_default(30), fill="white")
            for _ in range(10):
                out.mux(track.encode(av.VideoFrame.from_image(image)))
        out.mux(track.encode(None))
    return path


@pytest.mark.check
def test_rapidocr_reads_a_title_at_its_time(tmp_path):
    pytest.importorskip("rapidocr")
    path = write_titles(tmp_path / "titles.mp4", ["", "", "Budget cuts", "Budget cuts", "Budget cuts", ""])
    with create_source("screen") as source:
        source.check()
        (passage,) = source.read(Media(path, 6.0), ReadingReport())
    assert passage.text == "Budget cuts"
    assert (passage.start_s, passage.end_s) == (pytest.approx(2, abs=0.3), pytest.approx(5, abs=0.3))
    assert passage.confidence > 0.8


@pytest.mark.check
def test_rapidocr_reads_pictures_of_any_size_and_finds_nothing_in_plain_ones():
    pytest.importorskip("rapidocr")
    reader = RapidReader()
    for height, width in [(2, 2), (1, 400)]:
        assert reader.lines(np.zeros((height, width, 3), np.uint8)) == []
        assert reader.text(np.zeros((height, width, 3), np.uint8)) == ""


def test_missing_or_other_models_are_one_line(monkeypatch):
    absent = dataclasses.replace(screen.DETECTOR, package="no_such_package")
    monkeypatch.setattr(screen, "DETECTOR", absent)
    with refused(EncoderError, "no_such_package", ".[screen-text]"):
        create_source("screen").check()
    monkeypatch.setattr(screen, "DETECTOR", dataclasses.replace(screen.RECOGNISER, sha256="0" * 64))
    with refused(EncoderError, "screen text"):
        create_source("screen").check()


def test_unusable_files_are_refused_and_folders_left_out(tmp_path):
    path = Path(tmp_path / "film.mp4")
    path.write_bytes(b"no film" * 100)
    source = create_source("screen")
    with refused(ValueError, "film.mp4"):
        list(source.read(Media(path, 4.0), ReadingReport()))
    report = ReadingReport()
    assert list(source.read(Media(tmp_path, 4.0), report)) == []
    assert len(report.warnings) == 1
    assert str(tmp_path) not in report.warnings[0], "the caller prints the path"
