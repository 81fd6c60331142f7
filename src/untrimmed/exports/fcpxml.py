"""Timelines as FCPXML, for Final Cut Pro and Resolve.

This module writes version 1.10 of Apple's document type. It does not use OpenTimelineIO, whose FCPXML adapter counts
29.97 frames per second as 29. All times are fractions of a second.
"""

from collections.abc import Sequence
from fractions import Fraction
from xml.etree import ElementTree as ET

from untrimmed.exports.counting import Cut, TimelineRate
from untrimmed.exports.names import printable_line, reel_names

_RATE_NAMES = {  # names of rates in `conform-rate`
    Fraction(24000, 1001): "23.98",
    Fraction(24): "24",
    Fraction(25): "25",
    Fraction(30000, 1001): "29.97",
    Fraction(30): "30",
    Fraction(50): "50",
    Fraction(60000, 1001): "59.94",
    Fraction(60): "60",
}


def to_fcpxml(cuts: Sequence[Cut], timeline: TimelineRate, title: str) -> str:
    """Return a project whose timeline plays the moments one after another."""
    root = ET.Element("fcpxml", version="1.10")
    resources = ET.SubElement(root, "resources")
    project = ET.SubElement(ET.SubElement(ET.SubElement(root, "library"), "event", name=title), "project", name=title)
    formats = _Formats(resources)
    sequence = ET.SubElement(
        project,
        "sequence",
        format=formats.of(cuts[0], timeline.frames_per_s),
        duration=_seconds(cuts[-1].record_out, timeline.frames_per_s),
        tcStart=_seconds(timeline.start_frame, timeline.frames_per_s),
        tcFormat=_form(timeline.is_drop),
    )
    spine = ET.SubElement(sequence, "spine")
    assets: dict[str, str] = {}
    reels = reel_names(cut.moment.video for cut in cuts)
    for cut in cuts:
        source = cut.moment.video.as_uri()
        if source not in assets:
            assets[source] = f"a{len(assets) + 1}"
            resources.append(_asset(cut, assets[source], formats.of(cut, cut.rate), reels[cut.moment.video]))
        spine.append(_clip(cut, assets[source], timeline))
    ET.indent(root)
    text = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE fcpxml>\n{text}\n'


class _Formats:
    """Adds `format` elements to the resources of a project: one for each frame rate and picture size."""

    def __init__(self, resources: ET.Element) -> None:
        self._resources = resources
        self._names: dict[tuple[Fraction, int, int], str] = {}

    def of(self, cut: Cut, rate: Fraction) -> str:
        """Return the id of the format for a file's picture size at a frame rate. If there is none, it is added."""
        key = rate, cut.moment.width, cut.moment.height
        if key not in self._names:
            self._names[key] = f"f{len(self._names) + 1}"
            element = ET.SubElement(self._resources, "format", id=self._names[key], frameDuration=_seconds(1, rate))
            if cut.moment.width:
                element.set("width", str(cut.moment.width))
                element.set("height", str(cut.moment.height))
        return self._names[key]


def _asset(cut: Cut, asset_id: str, format_id: str, reel_name: str) -> ET.Element:
    element = ET.Element(
        "asset",
        id=asset_id,
        name=printable_line(cut.moment.video.name),
        start=_seconds(cut.start_frame, cut.rate),
        duration=_seconds(cut.num_frames, cut.rate),
        hasVideo="1",
        format=format_id,
    )
    if num_tracks := cut.moment.timing.num_audio_tracks if cut.moment.timing is not None else 0:
        element.set("hasAudio", "1")
        element.set("audioSources", str(num_tracks))
    ET.SubElement(element, "media-rep", kind="original-media", src=cut.moment.video.as_uri())
    reel = {"key": "com.apple.proapps.studio.reel", "value": reel_name}
    ET.SubElement(ET.SubElement(element, "metadata"), "md", reel)
    return element


def _clip(cut: Cut, asset_id: str, timeline: TimelineRate) -> ET.Element:
    start = _seconds(cut.start_frame + cut.source_in, cut.rate)
    element = ET.Element(
        "asset-clip",
        ref=asset_id,
        name=printable_line(cut.moment.video.name),
        offset=_seconds(timeline.start_frame + cut.record_in, timeline.frames_per_s),  # tcStart is added
        start=start,
        duration=_seconds(cut.record_out - cut.record_in, timeline.frames_per_s),
        tcFormat=_form(cut.has_drop_timecode),
    )
    if cut.rate != timeline.frames_per_s:
        ET.SubElement(element, "conform-rate", scaleEnabled="0", srcFrameRate=_RATE_NAMES[cut.rate])
    if note := printable_line(cut.moment.note):
        ET.SubElement(element, "marker", start=start, duration=_seconds(1, cut.rate), value=note)
    return element


def _form(is_drop: bool) -> str:
    return "DF" if is_drop else "NDF"


def _seconds(frames: int, rate: Fraction) -> str:
    """Return the duration of a number of frames in seconds, as a whole number or a fraction.

    >>> _seconds(3, Fraction(30000, 1001)), _seconds(50, Fraction(25))
    ('1001/10000s', '2s')
    """
    return f"{frames / rate}s"
