"""Timecodes of exports are the timecodes of the page."""

import json
from pathlib import Path

import pytest

from untrimmed.exports.counting import ExportedMoment, cuts, timecode, usual_rate
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
