"""Convert seconds to frames and SMPTE timecodes.

Moments are in seconds from the first frame of their file. Editors count the frames of a file from its start timecode,
and the frames of a timeline from 0. Only this module does these conversions, with fractions and OpenTimelineIO.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from untrimmed.errors import UnknownNameError, shown
from untrimmed.search.store.records import VideoRecord
from untrimmed.video.timing import NTSC, Timing, nearest_frame


@dataclass(frozen=True)
class TimelineRate:
    """The frame rate of a timeline. If `is_drop`, its timecodes skip numbers (drop frame)."""

    name: str
    frames_per_s: Fraction
    is_drop: bool = False

    @property
    def base(self) -> int:
        """The number of timecodes per second."""
        return math.ceil(self.frames_per_s)

    def timecode(self, frame: int) -> str:
        """Return the timecode of a frame of a timeline. As usual in editing, frame 0 has the timecode 01:00:00:00.

        >>> RATES["25"].timecode(30)
        '01:00:01:05'
        """
        return timecode(self.start_frame + frame, self.frames_per_s, is_drop=self.is_drop)

    @property
    def start_frame(self) -> int:
        """The timecode of a timeline's first frame, converted to a number of frames."""
        return frame_of_timecode("01:00:00;00" if self.is_drop else "01:00:00:00", self.frames_per_s)


RATES = {
    rate.name: rate
    for rate in (
        TimelineRate("23.976", 24 * NTSC),
        TimelineRate("24", Fraction(24)),
        TimelineRate("25", Fraction(25)),
        TimelineRate("29.97", 30 * NTSC),
        TimelineRate("29.97df", 30 * NTSC, is_drop=True),
        TimelineRate("30", Fraction(30)),
        TimelineRate("50", Fraction(50)),
        TimelineRate("59.94", 60 * NTSC),
        TimelineRate("59.94df", 60 * NTSC, is_drop=True),
        TimelineRate("60", Fraction(60)),
    )
}
_COUNTED = {rate.frames_per_s for rate in RATES.values()}
_SAME_RATE = Fraction(3, 10_000)  # editors treat rates as equal up to this relative difference: 23.98 and 23.976
_ROUNDING_S = Fraction(1, 1000)  # rounding changes the times of moments by less than this
_DROPPING = {rate.frames_per_s for rate in RATES.values() if rate.is_drop}


@dataclass(frozen=True)
class ExportedMoment:
    """A span of a video, in seconds, with a note. `timing` is None if it is unknown."""

    video: Path
    start_s: float
    end_s: float
    note: str = ""
    duration_s: float = 0.0  # duration of the video; 0 if it is unknown
    width: int = 0  # width of the video's picture; 0 if it is unknown
    height: int = 0
    timing: Timing | None = None
    video_id: str = ""

    @classmethod
    def of(cls, record: VideoRecord, start_s: float, end_s: float, note: str) -> ExportedMoment:
        """Create a moment from a span, in seconds, of an indexed video. The span ends at the end of the video."""
        return cls(
            Path(record.path),
            start_s,
            min(end_s, max(start_s, record.duration_s)),
            note,
            record.duration_s,
            record.width,
            record.height,
            record.timing,
            record.video_id,
        )


@dataclass(frozen=True)
class Cut:
    """A moment in frames of its file (`source_in` to `source_out`) and of the timeline (`record_in` to `record_out`).

    Frames are counted from 0, and ends are exclusive. `rate` is the rate in `RATES` that editors use for the file, or
    the rate of the timeline if the file's rate varies or is not close to one in `RATES`. `start_frame` is the file's
    start timecode, converted to a number of frames.
    """

    moment: ExportedMoment
    rate: Fraction
    start_frame: int
    num_frames: int  # number of frames in the file
    source_in: int
    source_out: int
    record_in: int
    record_out: int

    @property
    def has_drop_timecode(self) -> bool:
        """Whether the timecodes of the file skip numbers (drop frame)."""
        return self.rate in _DROPPING and self.moment.timing is not None and ";" in self.moment.timing.start_timecode


def read_rate(name: str) -> TimelineRate:
    """Return the rate with a name such as "25" or "29.97df".

    Raises:
        UnknownNameError: No rate has this name.
    """
    if name not in RATES:
        raise UnknownNameError.among("frame rate", name, RATES)
    return RATES[name]


def usual_rate(timings: Sequence[Timing]) -> TimelineRate:
    """Return the default rate of a timeline: the supported rate that is nearest to the most common rate of the files.

    Of several most common rates, a supported rate is preferred.

    >>> usual_rate([Timing("25"), Timing("30000/1001"), Timing("30000/1001")]).name
    '29.97'
    >>> usual_rate([Timing("10")]).name, usual_rate([Timing("240")]).name
    ('30', '60')
    >>> usual_rate([Timing("10"), Timing("30000/1001")]).name
    '29.97'
    >>> usual_rate([Timing("30000/1001", False, "01:00:00;00")]).name
    '29.97df'
    """
    if not timings:
        return RATES["25"]
    forms = Counter((Fraction(timing.frame_rate), ";" in timing.start_timecode) for timing in timings)
    exact = {candidate.frames_per_s for candidate in RATES.values()}
    rate, is_drop = max(forms, key=lambda form: (forms[form], form[0] in exact))
    multiples = [candidate for candidate in RATES.values() if (candidate.frames_per_s / rate).denominator == 1]
    divisors = [candidate for candidate in reversed(RATES.values()) if (rate / candidate.frames_per_s).denominator == 1]
    nearest = min(RATES.values(), key=lambda candidate: abs(candidate.frames_per_s - rate))
    frames_per_s = next(iter(multiples + divisors), nearest).frames_per_s
    same = [candidate for candidate in RATES.values() if candidate.frames_per_s == frames_per_s]
    return next((candidate for candidate in same if candidate.is_drop == is_drop), same[0])


def timecode(frame: int, rate: Fraction, *, is_drop: bool) -> str:
    """Return the SMPTE timecode of a frame at a rate in `RATES`. After 24 hours, timecodes start again at 0.

    >>> timecode(107892, Fraction(30000, 1001), is_drop=True), timecode(107892, Fraction(30000, 1001), is_drop=False)
    ('01:00:00;00', '00:59:56:12')
    """
    from opentimelineio.opentime import RationalTime

    return RationalTime(frame, float(rate)).to_timecode(float(rate), drop_frame=is_drop)


def frame_of_timecode(text: str, rate: Fraction) -> int:
    """Return the frame number of a SMPTE timecode at a rate in `RATES`. Raises ValueError if there is no such timecode.

    >>> frame_of_timecode("01:00:00;00", Fraction(30000, 1001)), frame_of_timecode("01:00:00:00", Fraction(25))
    (107892, 90000)
    """
    from opentimelineio.opentime import from_timecode

    return round(from_timecode(text, float(rate)).value)


def cuts(moments: Sequence[ExportedMoment], timeline: TimelineRate) -> list[Cut]:
    """Convert moments to frames, and place them one after another on a timeline.

    All moments must have a `timing`. A cut is at least one frame long.
    """
    result = []
    record_in = 0
    for moment in moments:
        assert moment.timing is not None, "the caller has checked"
        rate = _rate(moment.timing, timeline)
        # Editors play the frames of a file with 23.98 frames per second at 23.976, so count them at the file's rate.
        counted = rate if _editors_rate(moment.timing) is None else Fraction(moment.timing.frame_rate)
        source_in, source_out = (
            _source_frame(time_s, moment.timing, counted) for time_s in (moment.start_s, moment.end_s)
        )
        num_frames = nearest_frame(moment.duration_s, counted) or source_out
        source_in = max(0, min(source_in, num_frames - 1))
        source_out = max(source_in + 1, min(source_out, num_frames))
        length = max(1, math.floor((source_out - source_in) / rate * timeline.frames_per_s + Fraction(1, 2)))
        start_frame = _start_frame(moment.timing, rate) or 0
        cut = Cut(
            moment, rate, start_frame, max(num_frames, source_out), source_in, source_out, record_in, record_in + length
        )
        result.append(cut)
        record_in += length
    return result


def timecode_warnings(moments: Sequence[ExportedMoment], timeline: TimelineRate) -> list[str]:
    """Return one line for each file whose start timecode cannot be used. Frames of such files are counted from 0."""
    timings = {moment.video: moment.timing for moment in moments if moment.timing is not None}
    return [
        f"{shown(video)}: start timecode {timing.start_timecode} does not exist at "
        f"{float(_rate(timing, timeline)):.5g} frames per second; in this export, the file's timecodes start at 0"
        for video, timing in timings.items()
        if timing.start_timecode and _start_frame(timing, _rate(timing, timeline)) is None
    ]


def _rate(timing: Timing, timeline: TimelineRate) -> Fraction:
    """Return the rate of a file as in `Cut.rate`."""
    return _editors_rate(timing) or timeline.frames_per_s


def _editors_rate(timing: Timing) -> Fraction | None:
    """Return the rate in `RATES` that editors use for a file, or None if its rate varies or is not close to one."""
    rate = Fraction(timing.frame_rate)
    nearest = min(_COUNTED, key=lambda candidate: abs(candidate - rate))
    is_close = abs(rate - nearest) < _SAME_RATE * nearest
    return nearest if is_close and not timing.has_variable_rate else None


def _source_frame(time_s: float, timing: Timing, counted: Fraction) -> int:
    """Return the number of the frame at `time_s`, at the rate `counted`.

    If the file has another rate, the number is rounded up, so that no timeline frame shows a picture from before
    `time_s`.
    """
    own = Fraction(timing.frame_rate)
    start_s = Fraction(time_s) - _ROUNDING_S if timing.has_variable_rate else nearest_frame(time_s, own) / own
    return max(0, math.ceil(start_s * counted))


def _start_frame(timing: Timing, rate: Fraction) -> int | None:
    """Return a file's start timecode as a number of frames at `rate`, or None if it has no valid start timecode."""
    text = timing.start_timecode
    if not text:
        return None
    own_base, base = math.ceil(Fraction(timing.frame_rate)), math.ceil(rate)
    try:
        if (frames := int(text[9:])) >= own_base:
            return None
        if own_base != base:  # the timecode counts frames at the file's own rate
            text = f"{text[:9]}{frames * base // own_base:02d}"
        if rate not in _DROPPING:  # SMPTE has drop-frame timecodes only at 29.97 and 59.94 frames per second
            text = text.replace(";", ":")
        return frame_of_timecode(text, rate)
    except ValueError:  # this timecode does not exist at this rate
        return None
