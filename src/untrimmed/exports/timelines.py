"""Write timelines for editors with OpenTimelineIO: OTIO, CMX 3600, Final Cut Pro 7 XML and Kdenlive.

A timeline plays the moments one after another. It has a video track and, if the files have sound, an audio track.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from untrimmed.errors import ConfigError, install_advice, shown
from untrimmed.exports.counting import Cut, TimelineRate, nearest_frame, timecode
from untrimmed.exports.names import printable_line, reel_names

if TYPE_CHECKING:
    import opentimelineio as otio


@dataclass(frozen=True)
class _Count:
    """How a format counts the frames of a file."""

    rate: Callable[[Cut], Fraction]
    has_timecode: bool  # whether frames are counted from the start timecode instead of 0
    clock: Callable[[Fraction], float] = float  # the frame rate with which OpenTimelineIO computes


def to_otio(cuts: Sequence[Cut], timeline: TimelineRate, title: str) -> str:
    """Return an OpenTimelineIO file."""
    count = _Count(lambda cut: cut.rate, has_timecode=True)
    result = _timeline(title, cuts, timeline, count, _marker)
    result.global_start_time = _start_time(timeline)
    return _write(result, "otio_json")


def to_final_cut_7(cuts: Sequence[Cut], timeline: TimelineRate, title: str) -> str:
    """Return Final Cut Pro 7 XML for Premiere and Resolve. Times of markers count from the first frame of the file."""

    def marker(cut: Cut, time: Callable[[int], Any]) -> Any:
        return _marker(cut, lambda frame: time(frame - cut.start_frame))

    count = _Count(lambda cut: cut.rate, has_timecode=True)
    result = _timeline(title, cuts, timeline, count, marker)
    result.global_start_time = _start_time(timeline)
    result.metadata["fcp_xml"] = {"timecode": {"displayformat": "DF" if timeline.is_drop else "NDF"}}
    if cuts[0].moment.width:
        size = {"width": str(cuts[0].moment.width), "height": str(cuts[0].moment.height)}
        result.metadata["fcp_xml"]["media"] = {"video": {"format": {"samplecharacteristics": size}}}
    reels = reel_names(cut.moment.video for cut in cuts)
    with_sound = [cut for cut in cuts if _has_sound(cut)]
    for number, (clip, cut) in enumerate(zip(result.find_clips(), [*cuts, *with_sound], strict=True), start=1):
        # Each clip needs an id. Otherwise, the adapter writes a repeated clip as a reference to the earlier clip, which
        # includes the earlier clip's place.
        kind = {"mediatype": "video" if number <= len(cuts) else "audio", "trackindex": "1"}
        clip.metadata["fcp_xml"] = {"@id": f"clipitem-{number}", "sourcetrack": kind}
        reel = {"name": reels[cut.moment.video]}
        form = "DF" if cut.has_drop_timecode else "NDF"
        clip.media_reference.metadata["fcp_xml"] = {"timecode": {"displayformat": form, "reel": reel}}
    return _with_links(_write(result, "fcp_xml"))


def _with_links(xml: str) -> str:
    """Return Final Cut Pro 7 XML in which each clip is linked with its sound, so that editors move both together."""
    root = ET.fromstring(xml)
    items: dict[str, list[ET.Element]] = {}
    links: dict[str, list[dict[str, str]]] = {}
    for kind in ("video", "audio"):
        for index, item in enumerate(root.iterfind(f".//media/{kind}/track/clipitem"), start=1):
            place = item.findtext("start", "")
            items.setdefault(place, []).append(item)
            link = {"linkclipref": item.get("id", ""), "mediatype": kind, "trackindex": "1", "clipindex": str(index)}
            links.setdefault(place, []).append(link)
    for place, linked in items.items():
        for item in linked:
            for link in links[place]:
                element = ET.SubElement(item, "link")
                for name, value in link.items():
                    ET.SubElement(element, name).text = value
    ET.indent(root)
    text = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE xmeml>\n{text}\n'


def to_edl(cuts: Sequence[Cut], timeline: TimelineRate, title: str) -> str:
    """Return an edit list (CMX 3600). It has a single frame rate for all files.

    Raises:
        ConfigError: The frame rate of a file is not that of the timeline.
    """
    rate = timeline.frames_per_s
    for cut in cuts:
        if cut.rate != rate:
            rates = f"{float(cut.rate):.5g} frames per second, but the edit list has {float(rate):.5g}"
            raise ConfigError(
                f"{shown(cut.moment.video)}: has {rates} for all files; choose the rate of the "
                "files, export files of different rates separately, or write .otio or .fcpxml"
            )
    # At 29.97 and 59.94, the adapter writes drop-frame timecodes. Other timecodes are the same as at 30 and 60.
    clock = float(rate) if timeline.is_drop else float(timeline.base)
    result = _timeline(title, cuts, timeline, _Count(lambda cut: rate, has_timecode=True, clock=lambda _: clock), None)
    reels = reel_names(cut.moment.video for cut in cuts)
    for clip, cut in zip(result.video_tracks()[0], cuts, strict=True):
        cmx = {"reel": reels[cut.moment.video]}
        note = printable_line(cut.moment.note)
        clip.metadata["cmx_3600"] = cmx | ({"comments": [f"COMMENT: {note}"]} if note else {})
        if note:
            clip.markers.append(_marker_at(note, timeline.start_frame + cut.record_in, clock))
    text = _write(result, "cmx_3600", rate=clock, reelname_len=None)
    _, _, events = text.partition("\n")
    events = re.sub(r"^(\d{3,}  \S+ +)V( +C +)(\S+ \S+) \S+ \S+", _Events(cuts, timeline), events, flags=re.MULTILINE)
    return f"TITLE: {title}, {float(rate):.5g} frames per second\n{_fcm(timeline.is_drop)}{events}"


def _fcm(is_drop: bool) -> str:
    return f"FCM: {'DROP FRAME' if is_drop else 'NON-DROP FRAME'}\n"


class _Events:
    """Sets the channels and timecodes of each event in an edit list. Source timecodes are those of the event's file.

    An FCM line is written when the kind of source timecodes changes (drop frame or not).
    """

    def __init__(self, cuts: Sequence[Cut], timeline: TimelineRate) -> None:
        self._cuts = iter(cuts)
        self._timeline = timeline
        self._is_drop = timeline.is_drop

    def __call__(self, match: re.Match[str]) -> str:
        cut = next(self._cuts)
        is_drop = self._timeline.is_drop
        source = match[3]
        has_timecode = cut.moment.timing is not None and cut.moment.timing.start_timecode
        if has_timecode and cut.has_drop_timecode != is_drop:
            is_drop = cut.has_drop_timecode
            first = cut.start_frame + cut.source_in
            ends = first, first + cut.record_out - cut.record_in
            source = " ".join(timecode(frame, cut.rate, is_drop=is_drop) for frame in ends)
        fcm = _fcm(is_drop) if is_drop != self._is_drop else ""
        self._is_drop = is_drop
        record = f"{self._timeline.timecode(cut.record_in)} {self._timeline.timecode(cut.record_out)}"
        return f"{fcm}{match[1]}{'B' if _has_sound(cut) else 'V'}{match[2]}{source} {record}"


def to_kdenlive(cuts: Sequence[Cut], timeline: TimelineRate, title: str) -> str:
    """Return a Kdenlive project. Frames of each file are counted from 0 at the project's frame rate."""
    count = _Count(lambda cut: timeline.frames_per_s, has_timecode=False)
    result = _timeline(title, cuts, timeline, count, None)
    for cut in cuts:
        if note := printable_line(cut.moment.note):
            result.tracks.markers.append(_marker_at(note, cut.record_in, float(timeline.frames_per_s)))
    return _write(result, "kdenlive")


def _timeline(
    title: str,
    cuts: Sequence[Cut],
    timeline: TimelineRate,
    count: _Count,
    marker: Callable[[Cut, Callable[[int], otio.opentime.RationalTime]], otio.schema.Marker] | None,
) -> otio.schema.Timeline:
    import opentimelineio as otio

    result = otio.schema.Timeline(title)
    clock = count.clock(timeline.frames_per_s)
    result.global_start_time = otio.opentime.RationalTime(0, clock)
    for kind in (otio.schema.TrackKind.Video, otio.schema.TrackKind.Audio):
        track = otio.schema.Track(kind, kind=kind)
        for cut in cuts:
            rate = count.rate(cut)

            def time(frame: int, cut: Cut = cut, rate: Fraction = rate) -> otio.opentime.RationalTime:
                value = frame if rate == cut.rate else nearest_frame(frame / cut.rate, rate)
                return otio.opentime.RationalTime(value, count.clock(rate))

            first = cut.start_frame if count.has_timecode else 0
            length = otio.opentime.RationalTime(cut.record_out - cut.record_in, clock)
            if kind == otio.schema.TrackKind.Audio and not _has_sound(cut):
                track.append(otio.schema.Gap(duration=length))
                continue
            media = otio.schema.ExternalReference(
                target_url=cut.moment.video.as_uri(),
                available_range=otio.opentime.TimeRange(time(first), time(cut.num_frames)),
            )
            media.name = printable_line(cut.moment.video.name)
            source_range = otio.opentime.TimeRange(time(first + cut.source_in), length)
            clip = otio.schema.Clip(media.name, media, source_range)
            clip.metadata["untrimmed"] = {"video_id": cut.moment.video_id, "note": printable_line(cut.moment.note)}
            if marker is not None and cut.moment.note.strip() and kind == otio.schema.TrackKind.Video:
                clip.markers.append(marker(cut, time))
            track.append(clip)
        if track.find_clips():
            result.tracks.append(track)
    return result


def _start_time(timeline: TimelineRate) -> otio.opentime.RationalTime:
    import opentimelineio as otio

    return otio.opentime.RationalTime(timeline.start_frame, float(timeline.frames_per_s))


def _marker(cut: Cut, time: Callable[[int], otio.opentime.RationalTime]) -> otio.schema.Marker:
    start = time(cut.start_frame + cut.source_in)
    return _marker_at(printable_line(cut.moment.note), start.value, start.rate)


def _marker_at(name: str, frame: float, rate: float) -> otio.schema.Marker:
    import opentimelineio as otio

    start = otio.opentime.RationalTime(frame, rate)
    span = otio.opentime.TimeRange(start, otio.opentime.RationalTime(1, rate))
    return otio.schema.Marker(name, span, color=otio.schema.MarkerColor.RED)


def _has_sound(cut: Cut) -> bool:
    return cut.moment.timing is not None and cut.moment.timing.num_audio_tracks > 0


def _write(timeline: otio.schema.Timeline, adapter: str, **options: Any) -> str:
    import opentimelineio as otio

    if adapter not in otio.adapters.available_adapter_names():
        raise ConfigError(f"this format needs the {adapter} adapter of OpenTimelineIO; {install_advice('video')}")
    if adapter == "kdenlive":  # this adapter prints to stdout, on which the MCP server sends its answers
        otio.adapters.from_name(adapter).module().print = lambda *_: None
    return str(otio.adapters.write_to_string(timeline, adapter, **options))
