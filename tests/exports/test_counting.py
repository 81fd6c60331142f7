"""Timecodes of exports are the timecodes of the page."""

import json
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
        (Timing("1199/50", has_variable_rate=True), "23.976", "23.976", (71928, 71976)),  # frames of the timeline
        (Timing("20"), "25", "25", (75000, 75050)),
    ],
)
def test_frames_of_a_file_are_counted_at_its_own_rate_if_editors_round_that_rate(timing, timeline, rate, frames):
    (cut,) = cuts([ExportedMoment(Path("a.mov"), 3000, 3002, duration_s=3600.0, timing=timing)], RATES[timeline])
    assert (cut.rate, cut.source_in, cut.source_out) == (RATES[rate].frames_per_s, *frames)
