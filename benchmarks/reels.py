"""Accuracy of moment search in reels: real clips one after another, re-encoded to one size.

    python benchmarks/reels.py FOLDER [--encoder builtin]

FOLDER contains the clips, `manifest.jsonl` (a line per clip: `file`, `duration`, `queries` of `query`, `start`, `end`)
and `reels.jsonl` (one line per reel: `clips` of `file`, in order). The benchmark also measures reels of five clips in
random order: of the clips at even positions by name, which were used to choose settings of moments, and of those at odd
positions, which were not. The last row uses the vectors of the single clips one after another, without re-encoding.
"""

import argparse
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import av
import numpy as np

import untrimmed
from untrimmed.demo.reels import ENCODERS
from untrimmed.search.labelled import LabelledQuery, LibraryQuality, evaluate_library
from untrimmed.search.store.table import StoredVideo, VideoIndex
from untrimmed.types import FrameFeatures, Moment
from untrimmed.video.reader import Sampling, VideoReader

WIDTH, HEIGHT, FRAME_RATE = 640, 360, 10
CLIPS_EACH = 5
SEED = 0
SHOWN = ("R@1", "R@5", "mean IoU", "R1@IoU=0.3", "R1@IoU=0.5", "R1@IoU=0.7")


def fitted(pixels: np.ndarray) -> np.ndarray:
    """Return the picture scaled to the frame, with black borders."""
    scale = min(WIDTH / pixels.shape[1], HEIGHT / pixels.shape[0])
    width, height = round(scale * pixels.shape[1]), round(scale * pixels.shape[0])
    frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format="rgb24")
    picture = np.zeros((HEIGHT, WIDTH, 3), dtype=np.uint8)
    left, top = (WIDTH - width) // 2, (HEIGHT - height) // 2
    picture[top : top + height, left : left + width] = frame.reformat(width, height, "rgb24").to_ndarray()
    return picture


def render(clips: list[dict[str, Any]], folder: Path, path: Path, reader: VideoReader) -> list[LabelledQuery]:
    """Write the clips one after another as one video; return their sentences with times in it."""
    codec = next(name for name in ENCODERS if name in av.codecs_available)
    queries, num_frames = [], 0
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream(codec, rate=FRAME_RATE, options=ENCODERS[codec])
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for clip in clips:
            offset_s = num_frames / FRAME_RATE
            for batch in reader.read(folder / clip["file"]):
                for pixels in batch.frames:
                    container.mux(stream.encode(av.VideoFrame.from_ndarray(fitted(pixels), format="rgb24")))
                    num_frames += 1
            end_s = num_frames / FRAME_RATE
            for query in clip["queries"]:
                moment = Moment(offset_s + query["start"], min(offset_s + query["end"], end_s))
                queries.append(LabelledQuery(query["query"], path.name, (moment,)))
        container.mux(stream.encode())
    return queries


def measure(reels: list[list[dict[str, Any]]], folder: Path, encoder: str) -> tuple[LibraryQuality, float]:
    """Return the accuracy of search in a library of these reels, and their total duration in seconds."""
    with (
        tempfile.TemporaryDirectory() as place,
        VideoReader(sampling=Sampling(FRAME_RATE), short_side=HEIGHT) as reader,
    ):
        videos = Path(place) / "reels"
        videos.mkdir()
        queries = []
        for number, clips in enumerate(reels):
            queries += render(clips, folder, videos / f"reel_{number:02d}.mp4", reader)
        library = untrimmed.open(Path(place) / "library")
        report = library.index(videos, encoder=encoder)
        return evaluate_library(library, queries), report.timings.video_s


def joined(clips: list[dict[str, Any]], stored: dict[str, StoredVideo], name: str) -> tuple[StoredVideo, list]:
    """Return one video made of the clips' vectors, and its sentences with times in it."""
    offset_s, times_s, queries = 0.0, [], []
    videos = [stored[clip["file"]] for clip in clips]
    for clip, video in zip(clips, videos, strict=True):
        times_s.append(video.features.times_s + offset_s)
        for query in clip["queries"]:
            moment = Moment(offset_s + query["start"], offset_s + min(query["end"], video.features.duration_s))
            queries.append(LabelledQuery(query["query"], name, (moment,)))
        offset_s += video.features.duration_s
    vectors = np.concatenate([np.asarray(video.features.vectors) for video in videos])
    features = FrameFeatures(vectors, np.concatenate(times_s), offset_s)
    record = replace(videos[0].record, video_id=name, path=f"/{name}", duration_s=offset_s, num_frames=len(vectors))
    return StoredVideo(record, features), queries


def measure_joined(reels: list[list[dict[str, Any]]], folder: Path, encoder: str) -> tuple[LibraryQuality, float]:
    """Like `measure`, for reels made of vectors."""
    with tempfile.TemporaryDirectory() as place:
        library = untrimmed.open(place)
        report = library.index([folder / clip["file"] for clips in reels for clip in clips], encoder=encoder)
        queries = []
        with VideoIndex(Path(place)) as index:
            ids = [record.video_id for record in index.scan()]
            stored = {Path(video.record.path).name: video for video in index.read(ids)}
            for number, clips in enumerate(reels):
                reel, of_reel = joined(clips, stored, f"reel_{number:02d}.mp4")
                index.put(reel)
                queries += of_reel
            index.remove(ids)
        return evaluate_library(library, queries), report.timings.video_s


def read_plans(folder: Path) -> tuple[list[dict[str, Any]], list[list[dict[str, Any]]]]:
    """Return the clips of a folder in the order of their names, and the clips of each planned reel."""
    lines = (folder / "manifest.jsonl").read_text(encoding="utf-8").splitlines()
    clips = sorted((json.loads(line) for line in lines), key=lambda clip: Path(clip["file"]).stem)
    by_file = {clip["file"]: clip for clip in clips}
    plans = (folder / "reels.jsonl").read_text(encoding="utf-8").splitlines()
    return clips, [[by_file[clip["file"]] for clip in json.loads(plan)["clips"]] for plan in plans]


def in_other_orders(clips: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return reels of five clips each, in random order."""
    order = np.random.default_rng(SEED).permutation(len(clips))
    return [[clips[i] for i in order[start : start + CLIPS_EACH]] for start in range(0, len(clips), CLIPS_EACH)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--encoder", default="builtin")
    options = parser.parse_args()

    clips, planned = read_plans(options.folder)
    print("| reels of | reels | length | sentences | " + " | ".join(SHOWN) + " |")
    print("| --- | --- | --- | --- | " + " | ".join("---" for _ in SHOWN) + " |", flush=True)
    for name, reels, measure_them in (
        ("`reels.jsonl`: all clips", planned, measure),
        ("the half used for choosing, random order", in_other_orders(clips[::2]), measure),
        ("the other half, random order", in_other_orders(clips[1::2]), measure),
        ("`reels.jsonl`, vectors joined", planned, measure_joined),
    ):
        quality, video_s = measure_them(reels, options.folder, options.encoder)
        values = " | ".join(f"{quality.figures[key]:.1f}" for key in SHOWN)
        print(f"| {name} | {len(reels)} | {video_s:.0f} s | {len(quality.outcomes)} | {values} |", flush=True)


if __name__ == "__main__":
    main()
