"""How many moments contain a sliver of a neighbouring shot, before and after their edges move to the shot changes?

    python benchmarks/edges.py FOLDER [--encoder builtin]

FOLDER is that of benchmarks/reels.py. Reels of random pieces of the clips (2 to 6 s) have cuts at known times. The
moments are the first three of each reel for each of the clips' sentences. A sliver is at most half a second of a
neighbouring shot.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import av
import numpy as np

import untrimmed
from untrimmed.demo.reels import ENCODERS
from untrimmed.types import Moment
from untrimmed.video.reader import FrameReader, Sampling, VideoReader
from untrimmed.video.shot_changes import exact_edge_s

WIDTH, HEIGHT, FRAME_RATE = 192, 108, 25
CLIP_S = 8.0
REELS, PIECES = 10, 15
SLIVER_S = 0.5
FRAME_S = 1 / FRAME_RATE


def read_clip(path: Path, reader: VideoReader) -> list[np.ndarray]:
    """The first seconds of a clip, scaled to the size of the reels."""
    frames: list[np.ndarray] = []
    for batch in reader.read(path):
        for pixels in batch.frames:
            picture = av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format="rgb24")
            frames.append(picture.reformat(WIDTH, HEIGHT, "rgb24").to_ndarray())
        if len(frames) >= CLIP_S * FRAME_RATE:
            break
    return frames[: int(CLIP_S * FRAME_RATE)]


def render(path: Path, clips: list[list[np.ndarray]], rng: np.random.Generator) -> list[float]:
    """Write a reel of random pieces, never twice the same clip in a row; return the times of its cuts."""
    codec = next(name for name in ENCODERS if name in av.codecs_available)
    cuts_s = []
    num_frames = 0
    clip = -1
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream(codec, rate=FRAME_RATE, options=ENCODERS[codec])
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for _ in range(PIECES):
            clip = int(rng.choice([number for number in range(len(clips)) if number != clip]))
            length = min(len(clips[clip]), int(rng.uniform(2.0, 6.0) * FRAME_RATE))
            start = int(rng.integers(0, len(clips[clip]) - length + 1))
            for pixels in clips[clip][start : start + length]:
                container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
            num_frames += length
            cuts_s.append(num_frames * FRAME_S)
        container.mux(stream.encode())
    return cuts_s[:-1]


def has_sliver(moment: Moment, cuts_s: list[float]) -> bool:
    """Whether a moment begins shortly before a cut, or ends shortly after one."""
    starts = any(FRAME_S / 2 < cut_s - moment.start_s <= SLIVER_S for cut_s in cuts_s)
    return starts or any(FRAME_S / 2 < moment.end_s - cut_s <= SLIVER_S for cut_s in cuts_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--encoder", default="builtin")
    options = parser.parse_args()

    rng = np.random.default_rng(0)
    lines = (options.folder / "manifest.jsonl").read_text(encoding="utf-8").splitlines()
    plans = [json.loads(line) for line in lines]
    sentences = [query["query"] for plan in plans for query in plan["queries"]]
    with tempfile.TemporaryDirectory() as place, FrameReader() as frame_reader:
        folder = Path(place) / "reels"
        folder.mkdir()
        with VideoReader(sampling=Sampling(FRAME_RATE), short_side=HEIGHT) as reader:
            clips = [read_clip(options.folder / plan["file"], reader) for plan in plans]
        cuts_s = {f"reel_{n:02d}.mp4": render(folder / f"reel_{n:02d}.mp4", clips, rng) for n in range(REELS)}
        library = untrimmed.open(Path(place) / "library")
        library.index(folder, encoder=options.encoder)
        hits = [hit for sentence in sentences for hit in library.search(sentence, limit=REELS)]
        moments = sorted({(hit.video, m.start_s, m.end_s) for hit in hits for m in hit.moments})
        before = after = moved = 0
        started = time.perf_counter()
        for video, start_s, end_s in moments:
            exact = [exact_edge_s(frame_reader, video, edge_s) for edge_s in (start_s, end_s)]
            moved += exact != [start_s, end_s]
            before += has_sliver(Moment(start_s, end_s), cuts_s[video.name])
            after += has_sliver(Moment(*exact), cuts_s[video.name])
        took_s = (time.perf_counter() - started) / len(moments)
    num_cuts = sum(map(len, cuts_s.values()))
    print(
        f"{num_cuts} cuts; {len(moments)} moments, {moved} with a moved edge; slivers: {before} before, {after} after"
    )
    print(f"{1000 * took_s:.0f} ms for each moment")


if __name__ == "__main__":
    main()
