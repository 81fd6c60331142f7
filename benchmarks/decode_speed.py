"""How fast videos are decoded and where the time goes, in processor milliseconds per second of video.

    python benchmarks/decode_speed.py [VIDEO ...]

Without arguments it creates one synthetic clip of 720p H.264. The stages are measured separately in this process:
  demux     reading packets only
  all       decoding every frame with one thread: the cost of sampling without a plan
  planned   decoding the frames that sampling needs (the sampled frames are equal)
  scaled    planned, and scaled to RGB with 288 pixels on the short side
  key       key frames only, scaled
Then `child` measures everything through the child process and the pipe, in wall time.
"""

import argparse
import resource
import tempfile
import time
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from av.video.reformatter import VideoReformatter

from untrimmed.video.decode import open_video
from untrimmed.video.decode_worker import to_rgb
from untrimmed.video.reader import Limits, Sampling, VideoReader
from untrimmed.video.sampling import FrameSampler
from untrimmed.video.timeline import SampleGrid

SHORT_SIDE = 288


def cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def write_synthetic(path: Path, duration_s: int = 20, fps: int = 30) -> Path:
    """Coarse noise that drifts under fine noise: hard to predict, so hard to decode."""
    rng = np.random.default_rng(0)
    backdrop = np.kron(rng.integers(0, 255, (90, 160, 3), dtype=np.uint8), np.ones((16, 16, 1), np.uint8))
    with av.open(str(path), "w") as out:
        track = out.add_stream("libx264", rate=fps, options={"preset": "veryfast", "crf": "26"})
        track.width, track.height, track.pix_fmt = 1280, 720, "yuv420p"
        for number in range(duration_s * fps):
            picture = backdrop[
                number % 700 : number % 700 + 720, (2 * number) % 1200 : (2 * number) % 1200 + 1280
            ].copy()
            picture[::2, ::2] ^= rng.integers(0, 32, (360, 640, 3), dtype=np.uint8)
            frame = av.VideoFrame.from_ndarray(picture)
            frame.pts, frame.time_base = number, Fraction(1, fps)
            out.mux(track.encode(frame))
        out.mux(track.encode(None))
    return path


def measure_stage(path: Path, stage: str, fps: float) -> float:
    """Processor seconds of one stage."""
    start = cpu_s()
    with open_video(str(path), max_pixels=Limits().max_pixels, error_log=str) as video:
        if stage == "demux":
            for _ in video.container.demux(video.stream):
                pass
        elif stage == "all":
            for _ in video.container.decode(video.stream):
                pass
        else:
            sampler, scaler = FrameSampler(video, lambda _: None), VideoReformatter()
            samples = sampler.sample_keyframes(fps) if stage == "key" else sampler.sample(SampleGrid(fps))
            for sample in samples:
                if stage != "planned":
                    to_rgb(scaler, sample.frame, video, SHORT_SIDE)
    return cpu_s() - start


def measure_child(reader: VideoReader, path: Path) -> tuple[float, float, float]:
    """Wall seconds, the child's processor seconds, and the length of the video."""
    start = time.perf_counter()
    stream = reader.read(path)
    for _ in stream:
        pass
    return time.perf_counter() - start, stream.decode_cpu_s, stream.duration_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("videos", nargs="*", type=Path)
    parser.add_argument("--fps", type=float, default=2.0)
    parser.add_argument("--repeats", type=int, default=3, help="the fastest of so many runs counts")
    options = parser.parse_args()
    stages = ("demux", "all", "planned", "scaled", "key")
    print(f"{'':28}" + "".join(f"{stage:>9}" for stage in stages) + "   child wall   key wall    (ms/s; x real time)")
    with tempfile.TemporaryDirectory() as folder:
        videos = options.videos or [write_synthetic(Path(folder) / "synthetic.mp4")]
        sampled = VideoReader(sampling=Sampling(fps=options.fps), short_side=SHORT_SIDE)
        keyed = VideoReader(sampling=Sampling(fps=options.fps, keyframes_only=True), short_side=SHORT_SIDE)
        with sampled, keyed:
            total_s, wall_s, key_wall_s = 0.0, 0.0, 0.0
            for path in videos:
                runs = [measure_child(sampled, path) for _ in range(options.repeats)]
                key_runs = [measure_child(keyed, path) for _ in range(options.repeats)]
                (wall, _, length_s), key_wall = min(runs), min(key_runs)[0]
                costs = [min(measure_stage(path, s, options.fps) for _ in range(options.repeats)) for s in stages]
                row = "".join(f"{1000 * cost / length_s:9.1f}" for cost in costs)
                print(f"{path.name[:27]:28}{row}{length_s / wall:12.1f}x{length_s / key_wall:10.1f}x")
                total_s, wall_s, key_wall_s = total_s + length_s, wall_s + wall, key_wall_s + key_wall
    print(f"{'together':28}{'':45}{total_s / wall_s:12.1f}x{total_s / key_wall_s:10.1f}x")


if __name__ == "__main__":
    main()
