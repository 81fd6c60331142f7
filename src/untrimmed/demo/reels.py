"""Render the demo's corpus: untrimmed videos ("reels") of several shots, and the correct moment of every query.

The seed determines the shots of each reel, their lengths, the cuts and fades between them, and every camera move.
"""

import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np

from untrimmed.demo.camera import HEIGHT, WIDTH, Planes, blend, plan_move, to_planes, view
from untrimmed.demo.queries import QUERIES
from untrimmed.demo.sources import FILLERS, SUBJECTS, Footage, footage_path, load_pictures
from untrimmed.files import whole_file, write_whole
from untrimmed.types import Moment

FRAME_RATE = 25
NUM_REELS = 12
REEL_S = (31.0, 46.0)
MEAN_SHOT_S = 5.5
FADE_S = 0.6
TRUTH_FILE = "truth.jsonl"

# In order of preference. FFmpeg builds contain different encoders.
ENCODERS = {
    "libx264": {"preset": "superfast", "crf": "25"},
    "libopenh264": {"b": "1500k"},
    "mpeg4": {"qscale": "3"},
}


@dataclass(frozen=True)
class Shot:
    """One shot of a reel. It overlaps the previous shot by a cross-fade of `fade_frames`; 0 is a hard cut."""

    footage: Footage
    first_frame: int
    num_frames: int
    fade_frames: int
    query: str | None


@dataclass(frozen=True)
class Reel:
    """The plan of one untrimmed video."""

    name: str
    shots: tuple[Shot, ...]
    seed: tuple[int, int]

    @property
    def num_frames(self) -> int:
        """The length in frames."""
        return self.shots[-1].first_frame + self.shots[-1].num_frames


@dataclass(frozen=True)
class Truth:
    """The correct answer to a query: the only moment in the corpus that the query describes. `video` is a file name."""

    video: str
    query: str
    moment: Moment


def plan_reels(seed: int = 0, num_reels: int = NUM_REELS) -> list[Reel]:
    """Return the plans of all reels.

    Each piece of footage in `SUBJECTS` is used in exactly one shot across all reels. The other shots are fillers.
    Within a reel, a filler is used at most once.
    """
    rng = np.random.default_rng(seed)
    subjects = [SUBJECTS[i] for i in rng.permutation(len(SUBJECTS))]
    reels = []
    for index in range(num_reels):
        total_s = rng.uniform(*REEL_S)
        queried = subjects[index::num_reels]
        num_shots = max(int(np.clip(round(total_s / MEAN_SHOT_S), 5, 9)), len(queried))
        fillers = [FILLERS[i] for i in rng.permutation(len(FILLERS))[: num_shots - len(queried)]]
        selection = queried + fillers
        selection = [selection[i] for i in rng.permutation(len(selection))]
        share = rng.uniform(0.7, 1.3, size=len(selection))
        lengths_s = total_s * share / share.sum()
        fades = [0, *(int(FADE_S * FRAME_RATE * (rng.random() < 0.5)) for _ in selection[1:])]
        shots: list[Shot] = []
        start = 0
        for footage, length_s, fade in zip(selection, lengths_s, fades, strict=True):
            first = start - fade
            num_frames = round(float(length_s) * FRAME_RATE) + fade
            query = QUERIES[footage.name] if footage in queried else None
            shots.append(Shot(footage, first, num_frames, fade, query))
            start = first + num_frames
        reels.append(Reel(f"reel_{index + 1:02d}", tuple(shots), (seed, index)))
    return reels


def truth_of(reel: Reel) -> list[Truth]:
    """Return the correct moments in a reel.

    If a moment begins or ends with a fade, its start or end is the middle of the fade.
    """
    starts = [shot.first_frame + shot.fade_frames / 2 for shot in reel.shots] + [float(reel.num_frames)]
    return [
        Truth(f"{reel.name}.mp4", shot.query, Moment(start / FRAME_RATE, end / FRAME_RATE))
        for shot, (start, end) in zip(reel.shots, pairwise(starts), strict=True)
        if shot.query is not None
    ]


def render_corpus(
    folder: Path, *, seed: int = 0, num_reels: int = NUM_REELS, progress: Callable[[str], None] | None = None
) -> list[Truth]:
    """Write the videos and `truth.jsonl` to a folder, and return the correct moments.

    `truth.jsonl` is written last, so it marks a complete corpus. `progress` is called with the name of each finished
    reel.

    Raises:
        VideoError: A package with footage is not installed.
    """
    for footage in SUBJECTS + FILLERS:
        footage_path(footage)  # report missing files before any work
    folder.mkdir(parents=True, exist_ok=True)
    reels = plan_reels(seed, num_reels)
    with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:  # resizing and encoding release the GIL
        for reel, _ in zip(reels, pool.map(lambda reel: render_reel(reel, folder), reels), strict=True):
            if progress is not None:
                progress(reel.name)
    truth = [moment for reel in reels for moment in truth_of(reel)]
    lines = (
        {"video": t.video, "query": t.query, "start_s": round(t.moment.start_s, 3), "end_s": round(t.moment.end_s, 3)}
        for t in truth
    )
    write_whole(folder / TRUTH_FILE, "".join(json.dumps(line) + "\n" for line in lines), is_only_writer=True)
    return truth


def render_reel(reel: Reel, folder: Path) -> Path:
    """Render one reel to `<folder>/<name>.mp4` and return the path. The file appears only when it is complete."""
    import av

    path = folder / f"{reel.name}.mp4"
    codec = next(name for name in ENCODERS if name in av.codecs_available)
    with whole_file(path, is_only_writer=True) as unfinished, av.open(str(unfinished), "w", format="mp4") as container:
        stream = container.add_stream(codec, rate=FRAME_RATE, options=ENCODERS[codec])
        assert isinstance(stream, av.VideoStream)
        stream.width = WIDTH
        stream.height = HEIGHT
        stream.pix_fmt = "yuv420p"
        stream.codec_context.gop_size = 2 * FRAME_RATE
        stream.codec_context.thread_count = 1  # reels are rendered in parallel
        stream.codec_context.time_base = Fraction(1, FRAME_RATE)
        for index, planes in enumerate(reel_frames(reel)):
            pixels = np.frombuffer(b"".join(plane.tobytes() for plane in planes), np.uint8)
            frame = av.VideoFrame.from_ndarray(pixels.reshape(HEIGHT * 3 // 2, WIDTH), format="yuv420p")
            frame.pts = index
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def reel_frames(reel: Reel) -> Iterator[Planes]:
    """Yield the frames of a reel, with cross-fades between overlapping shots."""
    fading: list[Planes] = []
    fades_out = [shot.fade_frames for shot in reel.shots[1:]] + [0]
    for number, (shot, fade_out) in enumerate(zip(reel.shots, fades_out, strict=True)):
        overlap = fading
        fading = []
        rng = np.random.default_rng((*reel.seed, number))
        for index, frame in enumerate(shot_frames(shot, rng)):
            if index < len(overlap):
                frame = blend(overlap[index], frame, (index + 1) / (len(overlap) + 1))
            if index < shot.num_frames - fade_out:
                yield frame
            else:
                fading.append(frame)


def shot_frames(shot: Shot, rng: np.random.Generator) -> Iterator[Planes]:
    """Yield the frames of one shot, with one camera move.

    A clip that is shorter than the shot plays forwards and backwards in turn.
    """
    pictures = [to_planes(picture) for picture in load_pictures(shot.footage)]
    move = plan_move(pictures[0][0].size, shot.footage.subject, shot.footage.closest, rng)
    turn = max(1, 2 * (len(pictures) - 1))
    for index in range(shot.num_frames):
        step = (index // shot.footage.slow) % turn
        yield view(pictures[min(step, turn - step)], move.at(index / max(1, shot.num_frames - 1)))
