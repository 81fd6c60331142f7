"""Read text in the picture, such as captions, titles and signs, with RapidOCR.

Two frames per second are decoded. RapidOCR runs at most once every two seconds, and only on a frame that
differs from the last one it read. Equal lines in consecutive readings become one passage. To find when a line appears
or disappears between two readings, the line's box is read in some of the frames between them.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float32, UInt8

from untrimmed.encoders.builtin.weights import PackagedFile
from untrimmed.errors import EncoderError, install_advice
from untrimmed.passages.passage import Passage
from untrimmed.passages.source import Media, PassageSource, ReadingReport, register_source

_INSTALL = install_advice("screen-text")
_USER = "screen text"
# PP-OCRv6 (Apache-2.0): Latin scripts, Chinese and Japanese.
DETECTOR = PackagedFile(
    "rapidocr",
    "models/PP-OCRv6_det_small.onnx",
    "090f04abcd9d9a7498bc4ebf677e4cb9bdce1fe4197ddb7e529f1ef44e1ff94f",
    _USER,
    _INSTALL,
)
RECOGNISER = PackagedFile(
    "rapidocr",
    "models/PP-OCRv6_rec_small.onnx",
    "6f327246b50388f3c176ae304bd95767ea6dc0c9ae92153ef8cbe210b3c14884",
    _USER,
    _INSTALL,
)
_FPS = 2.0
_SHORT_SIDE = 720
_DETECTION_SIDE = 736  # longer side of the reduced frame in which lines are found; they are read in the full frame
_MIN_STEP_S = 2.0  # smallest time between two readings
_TILES = (18, 32)  # numbers of rows and columns of the parts in which two frames are compared
_MIN_CHANGE = 12.0  # a frame differs if the mean of a part has changed by this many grey levels
_MIN_CONFIDENCE = 0.8
_MIN_LETTERS = 2
_SAME_TEXT = 0.8  # smallest similarity of two readings of a line that has moved
_SAME_PLACE_TEXT = 0.6  # smallest similarity of two readings of a line in the same place
_SAME_WORD = 0.7  # smallest similarity of two readings of a word
_MAX_UNREAD_S = 5.0  # a line that reappears later than this is a new line
_MIN_OVERLAP = 0.5  # smallest intersection over union of two boxes in the same place
_MARGIN = 0.15  # margin on each side of a line's box when it is read, as a share of the line's height
_SAME_TIME_S = 0.3  # lines below one another are one passage if their times differ by at most this
_MAX_LINE_GAP = 0.8  # largest distance between two such lines, as a share of the height of a line

_CONFUSED = str.maketrans("01i|!", "ollll")  # characters that text recognition confuses, and what they are compared as

Frame = UInt8[np.ndarray, "_ _ 3"]  # any size, because parts of frames are also read


@dataclass(frozen=True)
class ScreenLine:
    """A line of text in a frame: its text, confidence, and box (left, top, right, bottom) in pixels."""

    text: str
    confidence: float
    box: tuple[float, float, float, float]

    @property
    def height(self) -> float:
        """The height in pixels."""
        return self.box[3] - self.box[1]


@runtime_checkable
class LineReader(Protocol):
    """Reads lines in RGB frames."""

    def lines(self, frame: Frame) -> list[ScreenLine]:
        """Return all lines of a frame."""

    def text(self, line: Frame) -> str:
        """Return the text in a picture of one line; empty if nothing can be read."""


class RapidReader:
    """Reads lines with RapidOCR."""

    def __init__(self) -> None:
        """Load the models.

        Raises:
            EncoderError: A package is missing or its models are not the pinned ones.
        """
        paths = {"Det.model_path": str(DETECTOR.locate()), "Rec.model_path": str(RECOGNISER.locate())}
        from rapidocr import RapidOCR

        self._engine: Any = RapidOCR(
            params={
                **paths,
                "Global.log_level": "critical",
                "Global.use_cls": False,
                "Global.text_score": 0.0,  # do not drop lines here; `_is_useful` does
                "Det.limit_side_len": _DETECTION_SIDE,
                "Det.limit_type": "max",
            }
        )

    def lines(self, frame: Frame) -> list[ScreenLine]:
        """Return all lines of a frame."""
        result = self._engine(_bgr(frame), use_det=True, use_cls=False, use_rec=True)
        if not getattr(result, "txts", None) or getattr(result, "boxes", None) is None:
            return []
        lines = []
        for corners, text, confidence in zip(result.boxes, result.txts, result.scores, strict=True):
            left, top = np.min(corners, axis=0).tolist()
            right, bottom = np.max(corners, axis=0).tolist()
            lines.append(ScreenLine(text.strip(), float(confidence), (left, top, right, bottom)))
        return lines

    def text(self, line: Frame) -> str:
        """Return the text in a picture of one line; empty if nothing can be read."""
        result = self._engine(_bgr(line), use_det=False, use_cls=False, use_rec=True)
        return " ".join(getattr(result, "txts", None) or ()).strip()


@register_source("screen")
@dataclass(frozen=True)
class ScreenText(PassageSource):
    """Reads text in the picture. Each passage is a line, or several lines below one another."""

    mode = "written"

    @property
    def identity(self) -> str:
        """The version of this code and the digests of the models."""
        return f"screen-1 {DETECTOR.sha256[:16]} {RECOGNISER.sha256[:16]}"

    def check(self) -> None:
        """Check the packages and the models.

        Raises:
            EncoderError: A package is missing, or its models are not the pinned ones.
        """
        if importlib.util.find_spec("onnxruntime") is None:
            raise EncoderError(f"screen text needs package 'onnxruntime', which is not installed; {_INSTALL}")
        DETECTOR.locate()
        RECOGNISER.locate()

    def read(self, media: Media, report: ReadingReport) -> Iterator[Passage]:
        """Yield the lines of text in a video's picture, each after it has disappeared."""
        from untrimmed.video.reader import Sampling, VideoReader

        if media.path.is_dir():
            report.warn("screen text in folders of pictures is not read; make a video of the pictures")
            return
        with VideoReader(sampling=Sampling(fps=_FPS), short_side=_SHORT_SIDE, batch_size=8) as reader:
            stream = reader.read(media.path)

            def frames() -> Iterator[tuple[float, Frame]]:
                for batch in stream:
                    yield from zip(batch.times_s.tolist(), batch.frames, strict=True)
                    report.progress(float(batch.times_s[-1]))

            yield from passages_in(frames(), self._reader, lambda: stream.duration_s)
            for warning in stream.warnings:
                report.warn(warning)

    def close(self) -> None:
        """Release the models."""
        self.__dict__.pop("_reader", None)

    @cached_property
    def _reader(self) -> LineReader:
        return RapidReader()


@dataclass
class _Track:
    """A line that is on screen. `end_s` is set if the last reading did not find the line."""

    line: ScreenLine  # the most confident reading
    latest: ScreenLine
    start_s: float
    end_s: float | None = None


@dataclass
class _Screen:
    """The lines that are on screen. Frames are read in temporal order."""

    reader: LineReader
    duration_s: Callable[[], float]  # returns the duration of the video, which is known after the last frame
    tracks: list[_Track] = field(default_factory=list)

    def read(self, frame: Frame, time_s: float, since: Sequence[tuple[float, Frame]]) -> Iterator[Passage]:
        """Read a frame, and yield the lines that have disappeared.

        `since` contains the decoded frames between the previous reading and this frame. It starts with the last frame
        that looks like the frame of the previous reading.
        """
        lines = [line for line in self.reader.lines(frame) if _is_useful(line)]
        ended = []
        for track in self.tracks:
            best = max(lines, key=lambda line: _similarity(line, track.latest), default=None)
            is_recent = track.end_s is None or time_s - track.end_s <= _MAX_UNREAD_S
            if best is not None and is_recent and _is_same(best, track.latest):
                lines.remove(best)
                track.latest = best
                track.end_s = None
                if best.confidence > track.line.confidence:
                    track.line = best
            elif track.end_s is None:  # the line may still be there, but unreadable in this frame
                track.end_s = self._edge_s([*since, (time_s, frame)], track.latest, is_start=False)
            else:
                ended.append(track)
        self.tracks = [track for track in self.tracks if track not in ended]
        yield from self._passages(ended)
        for line in lines:
            self.tracks.append(_Track(line, line, self._edge_s([*since, (time_s, frame)], line, is_start=True)))

    def finish(self) -> Iterator[Passage]:
        """Yield the lines that are on screen at the end."""
        yield from self._passages(self.tracks)

    def _edge_s(self, frames: Sequence[tuple[float, Frame]], line: ScreenLine, *, is_start: bool) -> float:
        """Return when a line appears (`is_start`) or disappears, between the first and the last frame.

        The line's box is read in some of the frames (bisection). The result is halfway between two frames.
        """
        low, high = 0, len(frames) - 1
        if high == 0:
            return frames[0][0]
        while high - low > 1:
            middle = (low + high) // 2
            text = self.reader.text(_crop(frames[middle][1], line.box))
            if _is_same_text(text, line.text, _SAME_PLACE_TEXT) == is_start:
                high = middle
            else:
                low = middle
        return (frames[low][0] + frames[high][0]) / 2

    def _passages(self, tracks: list[_Track]) -> Iterator[Passage]:
        ordered = sorted(tracks, key=lambda track: (track.line.box[1], track.line.box[0]))
        while ordered:
            block = [ordered.pop(0)]
            for track in list(ordered):
                if _continues(block[-1], track):
                    block.append(track)
                    ordered.remove(track)
            yield self._passage(block)

    def _passage(self, block: list[_Track]) -> Passage:
        start_s = min(track.start_s for track in block)
        end_s = max(self.duration_s() if track.end_s is None else track.end_s for track in block)
        return Passage(
            " ".join(track.line.text for track in block),
            start_s,
            max(start_s, end_s),
            source="screen",
            confidence=min(1.0, float(np.mean([track.line.confidence for track in block]))),
        )


def passages_in(
    frames: Iterable[tuple[float, Frame]], reader: LineReader, duration_s: Callable[[], float]
) -> Iterator[Passage]:
    """Yield the lines in frames, which have times in seconds. `duration_s` is called after the last frame."""
    screen = _Screen(reader, duration_s)
    seen: Float32[np.ndarray, "R C 3"] | None = None  # tiles of the last frame that was read
    read_s = -_MIN_STEP_S
    since: list[tuple[float, Frame]] = []
    for time_s, frame in frames:
        tiles = _tiles(frame)
        if seen is not None and tiles.shape == seen.shape and np.abs(tiles - seen).max() < _MIN_CHANGE:
            since = [(time_s, frame)]  # the screen has not changed since the reading
            continue
        if time_s - read_s < _MIN_STEP_S:
            since.append((time_s, frame))
            continue
        yield from screen.read(frame, time_s, since)
        seen = tiles
        read_s = time_s
        since = [(time_s, frame)]
    if len(since) > 1:  # the screen has changed since the last reading
        yield from screen.read(since[-1][1], since[-1][0], since[:-1])
    yield from screen.finish()


def _tiles(frame: Frame) -> Float32[np.ndarray, "R C 3"]:
    """Return the mean brightness of each part of a frame, and the mean differences of neighbouring pixels in it.

    Thin letters hardly change the mean brightness, but they change the differences.
    """
    grey = frame[::2, ::2].mean(axis=2, dtype=np.float32)
    rows, columns = (max(1, size // count) for size, count in zip(grey.shape, _TILES, strict=True))
    height, width = grey.shape[0] // rows * rows, grey.shape[1] // columns * columns
    edges_x = np.abs(np.diff(grey, axis=1, append=grey[:, -1:]))
    edges_y = np.abs(np.diff(grey, axis=0, append=grey[-1:]))
    parts = np.stack([grey, 2 * edges_x, 2 * edges_y], axis=-1)[:height, :width]
    return parts.reshape(height // rows, rows, width // columns, columns, 3).mean(axis=(1, 3))


def _is_useful(line: ScreenLine) -> bool:
    """Whether a line is readable and has letters. A clock, for example, has none and changes every second."""
    letters = [character for character in line.text if character.isalpha()]
    is_ideographic = any(ord(letter) >= 0x3040 for letter in letters)
    return line.confidence >= _MIN_CONFIDENCE and (len(letters) >= _MIN_LETTERS or is_ideographic)


def _ratio(first: str, second: str) -> float:
    """Return the similarity of two texts from 0 to 1, ignoring case and blanks."""
    return SequenceMatcher(None, _folded(first), _folded(second), autojunk=False).ratio()


def _folded(text: str) -> str:
    return "".join(text.casefold().split())


def _similarity(first: ScreenLine, second: ScreenLine) -> float:
    return _ratio(first.text, second.text) + _overlap(first.box, second.box)


def _is_same(first: ScreenLine, second: ScreenLine) -> bool:
    """Whether two readings are of the same line. If the boxes overlap, the texts may be less similar."""
    is_in_place = _overlap(first.box, second.box) >= _MIN_OVERLAP
    return _is_same_text(first.text, second.text, _SAME_PLACE_TEXT if is_in_place else _SAME_TEXT)


def _is_same_text(first: str, second: str, least: float) -> bool:
    """Return whether two texts are readings of the same line. All numbers must be equal, and all words similar.

    >>> others = "Prlces are rising", "Prices are falling", "Prices are ri"
    >>> [_is_same_text("Prices are rising", other, 0.6) for other in others]
    [True, False, True]
    >>> _is_same_text("Chapter 1", "Chapter 2", 0.6), _is_same_text("Chapter 1", "Chapter l", 0.6)
    (False, True)
    """
    if _ratio(first, second) < least:
        return False
    words, others = (text.casefold().translate(_CONFUSED).split() for text in (first, second))
    if len(words) != len(others):  # blanks were missed or added, or part of the line is hidden
        words, others = ["".join(words)], ["".join(others)]
    return all(map(_is_same_word, words, others))


def _is_same_word(first: str, second: str) -> bool:
    if re.search(r"\d", first + second):
        return first == second
    return first.startswith(second) or second.startswith(first) or _ratio(first, second) >= _SAME_WORD


def _overlap(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the intersection over union of two boxes."""
    width = min(first[2], second[2]) - max(first[0], second[0])
    height = min(first[3], second[3]) - max(first[1], second[1])
    if width <= 0 or height <= 0:
        return 0.0
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (first, second)]
    return width * height / (sum(areas) - width * height)


def _continues(above: _Track, below: _Track) -> bool:
    """Whether `below` continues the text of `above`: at the same time, just below it, with a similar height."""
    first, second = above.line, below.line
    spans = [(track.start_s, np.inf if track.end_s is None else track.end_s) for track in (above, below)]
    is_same_time = all(a == b or abs(a - b) <= _SAME_TIME_S for a, b in zip(*spans, strict=True))
    height = min(first.height, second.height)
    is_next = -0.5 * height <= second.box[1] - first.box[3] <= _MAX_LINE_GAP * height
    is_below = min(first.box[2], second.box[2]) > max(first.box[0], second.box[0])
    return is_same_time and is_next and is_below and max(first.height, second.height) < 1.6 * height


def _crop(frame: Frame, box: Sequence[float]) -> Frame:
    """Return the part of a frame in a box, with a margin."""
    margin = _MARGIN * (box[3] - box[1])
    left, top = (max(0, int(side - margin)) for side in box[:2])
    right, bottom = (int(side + margin) + 1 for side in box[2:])
    return frame[top : max(top + 1, bottom), left : max(left + 1, right)]


def _bgr(frame: Frame) -> Frame:
    """Return an RGB frame with OpenCV's order of colours."""
    return np.ascontiguousarray(frame[..., ::-1])
