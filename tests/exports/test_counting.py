"""Timecodes of exports are the timecodes of the page."""

import json
import math
from fractions import Fraction
from pathlib import Path

import pytest

from untrimmed.exports.counting import RATES, ExportedMoment, cuts, timecode, usual_rate
from untrimmed.video.timing import Timing

# frame rate, start timecode, and the timecodes of the first and the last frame of the span from 15.25 to 62.35 s
TIMECODES = json.loads((Path(__file__).parents[2] / "web/tests/timecodes.json").read_text())


@pytest.mark.parametrize(("rate", "start", "first", "last"), TIMECODES)
def test_a_moment_has_the_timecodes_of_the_page(rate, start, first, last):
    timing = Timing(rate, start_timecode=start)
    (cut,) = cuts([ExportedMoment(Path("a.mov"), 15.25, 62.35, duration_s=100.0, timing=timing)], usual_rate([timing]))
    frames = cut.source_in, cut.source_out - 1
    is_drop = cut.has_drop_timecode
    assert [timecode(cut.start_frame + frame, cut.rate, is_drop=is_drop) for frame in frames] == [first, last]


@pytest.mark.parametrize(
    ("timing", "timeline", "rate", "frames"),
    [
        (Timing("1199/50"), "23.976", "23.976", (71940, 71988)),  # 23.98 frames per second: the frames of the file
        (Timing("1199/50"), "25", "23.976", (71940, 71988)),
        (Timing("30003/1000"), "30", "30", (90009, 90069)),
        (Timing("1199/50", has_variable_rate=True), "23.976", "23.976", (71929, 71976)),  # frames of the timeline
        (Timing("20"), "25", "25", (75000, 75050)),
    ],
)
def test_frames_of_a_file_are_counted_at_its_own_rate_if_editors_round_that_rate(timing, timeline, rate, frames):
    (cut,) = cuts([ExportedMoment(Path("a.mov"), 3000, 3002, duration_s=3600.0, timing=timing)], RATES[timeline])
    assert (cut.rate, cut.source_in, cut.source_out) == (RATES[rate].frames_per_s, *frames)


@pytest.mark.parametrize("timeline", ["23.976", "24", "25", "29.97", "30"])
@pytest.mark.parametrize("rate", ["25/2", "5", "10", "15", "15000/1001", "12", "18", "144", "240"])
@pytest.mark.parametrize("first", [0, 1, 7, 25, 100, 4321])
def test_a_timeline_at_another_rate_shows_no_frame_outside_the_moment(rate, timeline, first):
    own = Fraction(rate)
    last = first + math.ceil(own)
    moment = ExportedMoment(
        Path("a.mov"), float(first / own), float((last + 1) / own), duration_s=1000, timing=Timing(rate)
    )
    (cut,) = cuts([moment], RATES[timeline])
    shown = [math.floor(frame / cut.rate * own) for frame in range(cut.source_in, cut.source_out)]
    step = max(1, own / cut.rate)  # frames of the file that one frame of the timeline replaces
    assert first <= shown[0] < first + step
    assert last - step < shown[-1] <= last
