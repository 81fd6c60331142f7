"""The decoding child: `python -m untrimmed.video.decode_worker LIMITS`, started by `process`.

It reads one JSON request per line from stdin, processes the file within limits of memory and processor time, and
answers on stdout (see `messages`). A file that crashes this process does not affect the parent. If the parent exits,
this process exits too, because stdin ends or an answer cannot be written.
"""

import contextlib
import gc
import itertools
import json
import math
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, astuple, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import av
from av.video.frame import VideoFrame
from av.video.reformatter import ColorRange, Colorspace, VideoReformatter

from untrimmed.video.decode import (
    ADVICE_COPY,
    DEMUXERS,
    SEEKABLE,
    STILL_DEMUXERS,
    UNSPECIFIED_COLORSPACE,
    MediaProblemError,
    OpenVideo,
    check_folder,
    check_limits_in,
    decode_packet,
    last_line,
    measure_timing,
    memory_problem,
    open_video,
    pixel_aspect,
    read_packets,
    scaled_size,
    span_of_frames,
    square_size,
)
from untrimmed.video.messages import write_message
from untrimmed.video.pictures import Pictures, read_pictures
from untrimmed.video.sampling import FrameSampler
from untrimmed.video.timeline import EPSILON_S, FramesFrom, SampleGrid, SampleTimes
from untrimmed.video.timing import Timing

if TYPE_CHECKING:
    from untrimmed.video.cut import WrittenClip

HEARTBEAT_S = 1.0
MAX_LOG_BYTES = 1 << 20
_SEEKS_BEFORE_S = (0.0, 30.0)  # seconds before a span to which a seek is tried
MIN_SEEK_S = 5.0
_COMPARED_S = 30.0  # to check a cut, it is decoded again from this many seconds earlier


class Worker:
    """Serves the requests of one parent, one after another."""

    def __init__(self, limits: dict[str, Any]) -> None:
        self.limits = limits
        self.answers = sys.stdout.fileno()
        self._cpu_at_start = 0.0
        self._decoded_s = 0.0
        self._is_again = False  # whether decoding has started again from the beginning
        self._beat_at = 0.0
        self._batch: list[tuple[list[float], bytes, list[int]]] = []

    def serve(self) -> None:
        """Answer requests until the parent closes stdin."""
        tasks = {
            "read": self.read,
            "frame_at": self.frame_at,
            "frames_between": self.frames_between,
            "sound": self.sound,
            "picture": self.picture,
            "cut": self.cut,
            "proxy": self.proxy,
            "picture_start": self.picture_start,
            "timing": self.timing,
            "subtitle_file": self.subtitle_file,
            "subtitle_streams": self.subtitle_streams,
        }
        for line in sys.stdin.buffer:
            request = json.loads(line)
            os.ftruncate(sys.stderr.fileno(), 0)
            self._cpu_at_start = used_cpu_s()
            self._beat_at = time.monotonic() + HEARTBEAT_S
            self._decoded_s, self._is_again = 0.0, False
            self._allow_cpu(0.0)
            try:
                tasks[request["task"]](request)
            except MediaProblemError as problem:
                self._send_problem(problem)
                if problem.is_fatal:
                    return
            except MemoryError:
                self._send_problem(memory_problem("decode"))
                return

    def read(self, request: dict[str, Any]) -> None:
        """Sample a whole file or folder of pictures. Send one `info` message, then `frames` messages, then `end`."""
        if request["pictures_fps"] is not None and os.path.isdir(request["path"]):
            self._read_pictures(request, self._pictures(request))
            return
        sampler = self._read_once(request, is_keyframes_only=request["keyframes_only"], extra=[])
        if sampler.last_frame is None and request["keyframes_only"]:
            sampler = self._read_once(
                request, is_keyframes_only=False, extra=["no key frame can be decoded, so every frame is decoded"]
            )
        if sampler.last_frame is None:
            check_limits_in(read_log(), self.limits["max_pixels"])
            remark = in_brackets(sampler.warnings, read_log())
            if "Picture size 0x0 is invalid" in read_log():
                remark = " (its header with the size of the pictures is missing)"
            raise MediaProblemError(f"has a video stream, but no frame of it can be decoded{remark}", ADVICE_COPY)

    def timing(self, request: dict[str, Any]) -> None:
        """Send one `end` message with the fields of `Timing`."""
        self._send({"kind": "end", **asdict(self._timing(request))})

    def picture_start(self, request: dict[str, Any]) -> None:
        """Send one `end` message with `OpenVideo.picture_start_s`."""
        with self._open(request) as video:
            self._send({"kind": "end", "picture_start_s": video.picture_start_s})

    def _timing(self, request: dict[str, Any]) -> Timing:
        with self._open(request) as video:
            return measure_timing(video)

    def _read_once(self, request: dict[str, Any], *, is_keyframes_only: bool, extra: list[str]) -> FrameSampler:
        timing = self._timing(request)
        with self._open(request) as video:
            sampler = FrameSampler(video, self._on_progress)
            scaler = VideoReformatter()
            fps = request["fps"]
            grid: SampleGrid | FramesFrom = SampleGrid(fps)
            has_rate = not timing.has_variable_rate and not is_keyframes_only
            if has_rate and not request["repeats_frames"] and fps > Fraction(timing.frame_rate):
                rate = f"{float(Fraction(timing.frame_rate)):.5g}"
                extra.append(f"has {rate} frames per second, so it is sampled at that rate and not at {fps:g}")
                grid = FramesFrom(0.0)
            samples = sampler.sample_keyframes(fps) if is_keyframes_only else sampler.sample(grid)
            is_announced = False
            for sample in samples:
                if sample.times_s[-1] > self.limits["max_duration_s"]:
                    extra.append(f"only the first {self.limits['max_duration_s']:g} s are used (Limits.max_duration_s)")
                    sampler.duration_s = sample.times_s[0]
                    break
                if not is_announced:
                    self._send(describe(video, sample.frame, timing))
                    is_announced = True
                pixels, form = to_rgb(scaler, sample.frame, video, request["short_side"])
                self._add(sample.times_s, pixels, form, request["batch_size"])
            if is_announced:
                self._finish(extra + sampler.warnings, sampler.duration_s)
        return sampler

    def _add(self, times_s: list[float], pixels: bytes, form: list[int], batch_size: int) -> None:
        for time_s in times_s:
            if self._batch and self._batch[-1][2] != form:
                self._flush()  # the picture size changed within the file
            self._batch.append(([time_s], pixels, form))
            if len(self._batch) == batch_size:
                self._flush()

    def _finish(self, warnings: list[str], duration_s: float) -> None:
        """Send the last frames of a video, then an `end` message."""
        self._flush()
        decode_cpu_s = used_cpu_s() - self._cpu_at_start
        self._send({"kind": "end", "warnings": warnings, "duration_s": duration_s, "decode_cpu_s": decode_cpu_s})

    def _read_pictures(self, request: dict[str, Any], pictures: Pictures) -> None:
        """Sample a folder of pictures. A damaged picture is replaced by the previous picture.

        A folder that is too long is refused, not shortened, because the frame rate is later computed from the duration.
        """
        grid = SampleGrid(request["fps"])
        scaler = VideoReformatter()
        damaged: list[str] = []
        last: tuple[bytes, list[int]] | None = None
        longest_s = self.limits["max_duration_s"]
        if pictures.duration_s > longest_s:
            raise MediaProblemError(
                f"is {pictures.duration_s:,.0f} s long at {pictures.fps:g} pictures per second, expected at most "
                f"{longest_s:,.0f} s",
                "divide the folder, number the pictures without gaps, or set their rate (--pictures-fps)",
            )
        for index, name in enumerate(pictures.names):
            end_s = pictures.end_s(index)
            if not (times_s := grid.take_before(end_s)):
                continue
            try:
                with self._open_picture(pictures, name) as video:
                    frame = self._first_frame(video)
                    if last is None:
                        timing = Timing(str(Fraction(pictures.fps).limit_denominator(1001)))
                        self._send(describe(video, frame, timing) | {"duration_s": pictures.duration_s})
                    last = to_rgb(scaler, frame, video, request["short_side"])
            except MediaProblemError as problem:
                if problem.is_fatal:
                    raise
                damaged.append(f"{name} {problem.problem}")
            if last is not None:
                self._add(times_s, *last, request["batch_size"])
            self._on_progress(end_s)
        if last is None:
            raise MediaProblemError(f"has numbered pictures, but none can be decoded ({damaged[0]})", ADVICE_COPY)
        warnings = [f"damaged pictures left out: {len(damaged)} ({damaged[0]})"] if damaged else []
        self._finish(warnings, pictures.duration_s)

    def _pictures(self, request: dict[str, Any]) -> Pictures:
        try:
            pictures = read_pictures(request["path"], request["pictures_fps"])
        except OSError as error:
            raise MediaProblemError(f"cannot be read ({error.strerror})", "check the folder") from error
        if pictures is None:
            advice = "give the pictures names that differ only in the number, such as 00001.jpg, 00002.jpg"
            raise MediaProblemError("is a folder without numbered pictures", advice)
        return pictures

    def _open_picture(self, pictures: Pictures, name: str) -> Any:
        return self._open({"path": os.path.join(pictures.folder, name)}, STILL_DEMUXERS)

    def _flush(self) -> None:
        if not self._batch:
            return
        times_s = [time_s for times, _, _ in self._batch for time_s in times]
        message = {"kind": "frames", "times_s": times_s, "form": self._batch[0][2]}
        self._send(message, [pixels for _, pixels, _ in self._batch])
        self._batch = []

    def frame_at(self, request: dict[str, Any]) -> None:
        """Send the frame at a time, in full size or smaller, in a `frames` message, then `end`."""
        time_s, short_side = request["time_s"], request["short_side"]
        if request["pictures_s"] is not None and os.path.isdir(request["path"]):
            self._send_picture_at(request)
            return
        with self._open(request) as video:
            frame = self._seek_frame(video, request) if video.container.format.name in SEEKABLE else None
            if frame is not None:
                self._send_frame(frame, video, time_s, short_side)
                return
        with self._open(request) as video:
            frame = self._find_frame(FrameSampler(video, self._on_progress), time_s, request["last_for_s"])
            if frame is None:
                raise MediaProblemError(f"has no decodable frame{in_brackets([], read_log())}", ADVICE_COPY)
            self._send_frame(frame, video, time_s, short_side)

    def frames_between(self, request: dict[str, Any]) -> None:
        """Send small pictures of all frames on screen between two times: a `frames` message, then `end`."""
        start_s, stop_s = request["start_s"], request["stop_s"]
        with self._open(request) as video:
            first = self._find_frame(FrameSampler(video, self._on_progress), 0.0)
            is_seekable = first is not None and first.pts is not None and video.container.format.name in SEEKABLE
        seeks_s = [start_s - before_s for before_s in _SEEKS_BEFORE_S if start_s - before_s >= MIN_SEEK_S]
        for seek_s in [*(seeks_s if is_seekable else ()), None]:  # without a seek at last
            found = self._frames_after(request, None if first is None else first.pts, seek_s)
            if found is not None:
                break
        times_s, pictures, form = found or ([], [], [])
        if not times_s:
            raise MediaProblemError(f"shows nothing from {start_s:g} to {stop_s:g} s", "choose a span inside the video")
        self._send({"kind": "frames", "times_s": times_s, "form": form}, pictures)
        self._send({"kind": "end"})

    def _frames_after(
        self, request: dict[str, Any], origin: int | None, seek_s: float | None
    ) -> tuple[list[float], list[bytes], list[int]] | None:
        """Return the frames of `frames_between` (times, pixels, form), or None if a seek to `seek_s` missed the first.

        Containers seek by decoding times, so in files with reordered frames, a seek can land after the time.
        """
        with self._open(request) as video:
            if seek_s is not None:
                assert video.stream.time_base is not None
                try:
                    video.container.seek((origin or 0) + int(seek_s / video.stream.time_base), stream=video.stream)
                except av.error.FFmpegError:
                    return None
            # without a seek, the sampler decodes the first frame, which some decoders need
            sampler = FrameSampler(video, self._on_progress, origin=None if seek_s is None else origin)
            times_s: list[float] = []
            pictures: list[bytes] = []
            forms: list[list[int]] = []
            scaler = VideoReformatter()
            start_s = request["start_s"]
            for number, sample in enumerate(sampler.sample(FramesFrom(start_s))):
                is_late = sample.times_s[0] > start_s + EPSILON_S or not sampler.starts_at_key_frame
                if seek_s is not None and number == 0 and is_late:
                    return None
                if sample.times_s[0] > request["stop_s"]:
                    break
                pixels, form = to_rgb(scaler, sample.frame, video, request["short_side"])
                if form == (forms or [form])[0] and not sample.frame.is_corrupt:
                    times_s.append(sample.times_s[0])
                    pictures.append(pixels)
                    forms.append(form)
        return times_s, pictures, forms[0] if forms else []

    def sound(self, request: dict[str, Any]) -> None:
        """Send the sound in `sound` messages, then an `end` message. A file without sound has no `sound` message."""
        from untrimmed.video.sound import SoundDecoder, choose_sound  # other requests do not need it

        if os.path.isdir(request["path"]):  # a folder of pictures
            check_folder(request["path"], request["identity"])
            self._send({"kind": "end", "warnings": []})
            return
        with self._open(request) as video:
            first = self._find_frame(FrameSampler(video, self._on_progress), 0.0)
            pts = first.pts if first is not None else None
            origin_s = float(pts * video.stream.time_base) if pts is not None and video.stream.time_base else 0.0
        with self._open(request) as video:
            stream = choose_sound(video.container)
            warnings: list[str] = []
            if stream is not None:
                decoder = SoundDecoder(video, stream, origin_s, self._on_progress, warnings)
                for start_s, samples in decoder.pieces(self.limits["max_duration_s"]):
                    self._send({"kind": "sound", "start_s": start_s}, [samples])
            self._send({"kind": "end", "warnings": warnings})

    def _send_picture_at(self, request: dict[str, Any]) -> None:
        """Send the picture of a folder at a time. The frame rate follows from the duration `pictures_s`."""
        whole = self._pictures({**request, "pictures_fps": 1.0})
        pictures = replace(whole, fps=whole.duration_s / request["pictures_s"])
        name = pictures.names[pictures.index_at(request["time_s"])]
        with self._open_picture(pictures, name) as video:
            # check the folder only now, because the picture may have been replaced before it was opened
            check_folder(pictures.folder, request["identity"])
            self._send_frame(self._first_frame(video), video, request["time_s"], request["short_side"])

    def _seek_frame(self, video: OpenVideo, request: dict[str, Any]) -> VideoFrame | None:
        """Return the frame at a time after a seek in the container's index, or None if that fails."""
        time_s = request["time_s"]
        if time_s < MIN_SEEK_S:
            return None
        first = self._find_frame(FrameSampler(video, self._on_progress), 0.0)
        if first is None or first.pts is None or video.stream.time_base is None:
            return None
        try:
            video.container.seek(first.pts + int(time_s / video.stream.time_base), stream=video.stream)
        except av.error.FFmpegError:
            return None
        sampler = FrameSampler(video, self._on_progress, origin=first.pts)
        frame = self._find_frame(sampler, time_s, request["last_for_s"])
        if frame is None or frame.pts is None or sampler.timeline.raw_s(frame.pts) > time_s + EPSILON_S:
            return None
        if frame.is_corrupt or not sampler.starts_at_key_frame:  # the decoder lacks earlier packets
            return None
        return frame

    def _find_frame(self, sampler: FrameSampler, time_s: float, last_for_s: float = math.inf) -> VideoFrame | None:
        """Return the frame shown at `time_s`. Up to `last_for_s` seconds after the end, this is the last frame."""
        for sample in sampler.sample(SampleTimes(time_s)):
            return sample.frame
        if sampler.last_frame is not None and time_s > sampler.duration_s + last_for_s:
            raise MediaProblemError(
                f"shows nothing at {time_s:g} s, because it is {sampler.duration_s:.1f} s long",
                "choose a time inside the video",
            )
        return sampler.last_frame  # the time is after the end

    def _send_frame(self, frame: VideoFrame, video: OpenVideo, time_s: float, short_side: int | None = None) -> None:
        pixels, form = to_rgb(VideoReformatter(), frame, video, short_side)
        self._send({"kind": "frames", "times_s": [time_s], "form": form}, [pixels])
        self._send({"kind": "end"})

    def cut(self, request: dict[str, Any]) -> None:
        """Write a span to a new file.

        Edges of the span are moved as `span_of_frames` describes. Send the middle frame of the span as a `frames`
        message with the start of the span, then `end` with the time of the video at which the new file ends.
        """
        # this module imports numpy, which would delay sampling
        from untrimmed.video.cut import SeekError, write_cut

        with self._open(request) as video:
            span_s = span_of_frames(video, request["start_s"], request["end_s"])
        args = span_s, request["out"], request["format"], self._on_progress

        def send(cut: "WrittenClip", video: OpenVideo) -> None:
            pixels, form = self._small(cut.middle.frame, video, request)
            times = {"times_s": [cut.middle.time_s], "start_s": span_s[0]}
            self._send({"kind": "frames", **times, "form": form}, [pixels])
            self._send({"kind": "end", "end_s": cut.end_s})

        with self._open(request) as video:
            # Decode the first frame before the seek, because its packet has the x264 version, which some decoders need.
            first = self._find_frame(FrameSampler(video, self._on_progress), 0.0)
            origin = first.pts if first is not None else None
            if origin is not None and span_s[0] > 0 and video.container.format.name in SEEKABLE:
                with contextlib.suppress(SeekError):
                    cut = write_cut(video, origin, *args, is_sought=True)
                    if self._matches_search(cut, video, origin, request):
                        send(cut, video)
                        return
        with self._open(request) as video:
            send(write_cut(video, origin, *args, is_sought=False), video)

    def proxy(self, request: dict[str, Any]) -> None:
        """Write a proxy of a span to a new file and check it. Then send `end` with the time at which the proxy ends."""
        from untrimmed.video.proxy import check_proxy

        cut = self._write_proxy(request)
        with self._open({"path": request["out"]}) as proxy:
            check_proxy(proxy, cut, request["start_s"])
        self._send({"kind": "end", "end_s": cut.end_s})

    def _write_proxy(self, request: dict[str, Any]) -> "WrittenClip":
        from untrimmed.video.cut import SeekError
        from untrimmed.video.proxy import proxy_encoding, write_proxy

        span_s = request["start_s"], request["end_s"]
        with open(request["out"], "wb") as out, self._open(request) as sound:
            args = span_s, out, proxy_encoding(), self._on_progress
            with self._open_threaded(request) as video:
                first = self._find_frame(FrameSampler(video, self._on_progress), 0.0)  # as in `cut`
                origin = first.pts if first is not None else None
                if origin is not None and span_s[0] > 0 and video.container.format.name in SEEKABLE:
                    with contextlib.suppress(SeekError):
                        return write_proxy(video, sound, origin, *args, is_sought=True)
            with self._open_threaded(request) as video:
                return write_proxy(video, sound, origin, *args, is_sought=False)

    @contextlib.contextmanager
    def _open_threaded(self, request: dict[str, Any]) -> Iterator[OpenVideo]:
        """Open a video for decoding with several threads.

        This needs more memory, but the viewer waits less for the first frame.
        """
        with self._open(request) as video:
            video.stream.codec_context.thread_count = request["threads"]
            video.stream.codec_context.thread_type = "AUTO"
            yield video

    def _matches_search(self, cut: Any, video: OpenVideo, origin: int, request: dict[str, Any]) -> bool:
        """Whether the frames of a cut stay the same if decoding starts half a minute earlier.

        `origin` is the timestamp of the video's first frame.
        """
        pictures = {sample.time_s: self._small(sample.frame, video, request) for sample in cut.samples}
        times_s = sorted(pictures)
        with self._open(request) as searched:
            from_s = times_s[0] - _COMPARED_S
            is_sought = from_s > 0 and searched.stream.time_base is not None
            if is_sought:
                with contextlib.suppress(av.error.FFmpegError):
                    place = origin + int(from_s / searched.stream.time_base)
                    searched.container.seek(place, stream=searched.stream)
            sampler = FrameSampler(
                searched, lambda _: self._on_progress(request["end_s"]), origin=origin if is_sought else None
            )
            for sample in sampler.sample(SampleTimes(*times_s)):
                picture = self._small(sample.frame, searched, request)
                if any(pictures[time_s] != picture for time_s in sample.times_s):
                    return False
                if times_s[-1] in sample.times_s:
                    return not is_sought or bool(sampler.starts_at_key_frame)
        return False

    def _small(self, frame: VideoFrame, video: OpenVideo, request: dict[str, Any]) -> tuple[bytes, list[int]]:
        return to_rgb(VideoReformatter(), frame, video, request["short_side"])

    def picture(self, request: dict[str, Any]) -> None:
        """Send a still picture in full size in a `frames` message, then `end`."""
        with self._open(request, STILL_DEMUXERS) as video:
            self._send_frame(self._first_frame(video), video, 0.0)

    def subtitle_file(self, request: dict[str, Any]) -> None:
        """Send the cues of a subtitle file in `cues` messages, then `end` with the number of broken cues."""
        from untrimmed.video.subtitle_streams import file_cues, in_batches  # sampling does not need it

        cues, faults = file_cues(request["path"], request["language"], self._on_progress)
        for batch in in_batches(cues, lambda cue: cue.text):
            self._send({"kind": "cues", "cues": batch})
        self._send({"kind": "end", **asdict(faults)})

    def subtitle_streams(self, request: dict[str, Any]) -> None:
        """Send the cues of a video's text streams in `cues` messages, each with the index of its stream.

        Then send `end` with the languages of the streams, warnings about streams that are not read, and other warnings.
        """
        from untrimmed.video.subtitle_streams import in_batches, language_of, stream_cues, subtitle_streams

        warnings: list[str] = []
        with self._open(request) as video:
            streams, unread = subtitle_streams(video)
            languages = {str(stream.index): language_of(stream) for stream in streams}
            origin_s = 0.0
            if streams:
                first = self._find_frame(FrameSampler(video, self._on_progress), 0.0)
                if first is not None and first.pts is not None and video.stream.time_base is not None:
                    origin_s = float(first.pts * video.stream.time_base)
        if streams:
            with self._open(request) as video:
                streams, _ = subtitle_streams(video)
                cues = stream_cues(video, streams, origin_s, self._on_progress, warnings)
                for batch in in_batches(cues, lambda item: item[1].text):
                    self._send({"kind": "cues", "cues": [(index, *cue) for index, cue in batch]})
        self._send({"kind": "end", "languages": languages, "unread": unread, "warnings": warnings})

    def _first_frame(self, video: OpenVideo) -> VideoFrame:
        packets = itertools.chain(read_packets(video, [video.stream], []), [None])
        frame = next((frame for packet in packets for frame in decode_packet(video.stream, packet) or []), None)
        if frame is None:
            raise MediaProblemError(f"contains no decodable picture{in_brackets([], read_log())}", ADVICE_COPY)
        return frame

    def _open(self, request: dict[str, Any], demuxers: str = DEMUXERS) -> Any:
        return open_video(
            request["path"],
            max_pixels=self.limits["max_pixels"],
            error_log=read_log,
            demuxers=demuxers,
            identity=request.get("identity"),
        )

    def _send(self, message: dict[str, Any], pixels: list[bytes] | None = None) -> None:
        write_message(self.answers, message, pixels)
        self._beat_at = time.monotonic() + HEARTBEAT_S

    def _send_problem(self, problem: MediaProblemError) -> None:
        fields = {"problem": problem.problem, "advice": problem.advice, "is_fatal": problem.is_fatal}
        self._send({"kind": "error", **fields})

    def _on_progress(self, time_s: float) -> None:
        if time.monotonic() < self._beat_at:
            return
        self._allow_cpu(time_s)
        if os.fstat(sys.stderr.fileno()).st_size > MAX_LOG_BYTES:
            os.ftruncate(sys.stderr.fileno(), 0)
        self._send({"kind": "progress", "time_s": time_s})

    def _allow_cpu(self, time_s: float) -> None:
        """Raise the limit on processor time with the decoded time, because the declared duration may be wrong.

        If decoding starts again from the beginning, a second pass is allowed.
        """
        self._is_again = self._is_again or time_s < self._decoded_s
        self._decoded_s = max(self._decoded_s, time_s)
        decoded_s = self._decoded_s + (time_s if self._is_again else 0.0)
        allowed_s = self.limits["cpu_s"] + self.limits["cpu_s_per_video_s"] * decoded_s
        set_soft_limit(resource.RLIMIT_CPU, int(self._cpu_at_start + allowed_s) + 1)


def describe(video: OpenVideo, frame: VideoFrame, timing: Timing) -> dict[str, Any]:
    """Return the `info` message: declared properties, displayed size, frame rate, timecode and audio tracks."""
    width, height = square_size(frame.width, frame.height, pixel_aspect(video.stream))
    if video.orientation(frame).transpose:
        width, height = height, width
    return {
        "kind": "info",
        "duration_s": video.declared_s,
        "width": width,
        "height": height,
        "timing": asdict(timing),
        "codec": video.stream.codec_context.codec.canonical_name,
    }


def to_rgb(
    scaler: VideoReformatter, frame: VideoFrame, video: OpenVideo, short_side: int | None
) -> tuple[bytes, list[int]]:
    """Return a frame as packed RGB rows, and its form: height, width, and the three flags of `Orientation`."""
    width, height = square_size(frame.width, frame.height, pixel_aspect(video.stream))
    if short_side is not None:
        width, height = scaled_size(width, height, short_side)
    # By convention, untagged HD pictures are in BT.709 and smaller pictures in BT.601.
    is_untagged_hd = frame.colorspace == UNSPECIFIED_COLORSPACE and frame.height >= 720
    rgb = scaler.reformat(
        frame,
        width,
        height,
        "rgb24",
        src_colorspace=Colorspace.ITU709 if is_untagged_hd else None,
        dst_color_range=ColorRange.JPEG,
        interpolation="AREA" if width < frame.width else "BILINEAR",
        threads=1,
    )
    plane = rgb.planes[0]
    data = bytes(plane)
    row = width * 3
    if plane.line_size != row:
        step = plane.line_size
        data = b"".join(data[start : start + row] for start in range(0, step * height, step))
    return data, [height, width, *map(int, astuple(video.orientation(frame)))]


def read_log() -> str:
    """Return the messages of FFmpeg and Python during this request, from the file to which stderr is redirected."""
    return os.pread(sys.stderr.fileno(), 8192, max(0, os.fstat(sys.stderr.fileno()).st_size - 8192)).decode(
        errors="replace"
    )


def in_brackets(warnings: list[str], log: str) -> str:
    """Return the first warning, or else FFmpeg's last message, in brackets, to append it to an error message."""
    remark = warnings[0] if warnings else last_line(log)
    return f" ({remark})" if remark else ""


def set_soft_limit(kind: int, value: int) -> None:
    """Limit a resource of this process, within the hard limit."""
    hard = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def used_cpu_s() -> float:
    """Return the processor time of this process in seconds."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Set the resource limits, then serve requests."""
    limits = json.loads(sys.argv[1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole process group; the parent handles it
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":  # other kernels do not enforce this limit
        set_soft_limit(resource.RLIMIT_AS, limits["memory_bytes"])
    # FFmpeg must write to stderr directly, because its threads would deadlock in a Python callback.
    av.logging.restore_default_callback()
    av.logging.set_libav_level(av.logging.ERROR)
    gc.freeze()  # so that `gc.collect` does not scan the imported modules
    try:
        Worker(limits).serve()
    except BrokenPipeError:
        os._exit(0)  # the parent has exited


if __name__ == "__main__":
    main()
