"""Cost of `builtin`: start, time per sentence and per frame, and memory.

    python benchmarks/builtin_speed.py [--frames 64] [--height 224 --width 398]

Core milliseconds are the processor time of all threads of this process, which other programs affect less than wall
time. If `efficientnet-lite-pytorch` (not one of our requirements) is installed, its float32 network is timed too.
"""

import argparse
import importlib.util
import time
from collections.abc import Callable

import numpy as np
import psutil


def timed(name: str, run: Callable[[], object], divisor: int = 1) -> None:
    wall, core = time.perf_counter(), time.process_time()
    run()
    wall, core = time.perf_counter() - wall, time.process_time() - core
    print(f"{name:46s} {1e3 * wall / divisor:8.1f} ms  {1e3 * core / divisor:8.1f} core-ms")


def memory(name: str) -> None:
    print(f"{name:46s} {psutil.Process().memory_info().rss / 1e6:8.0f} MB resident")


def time_released(frames: np.ndarray, num_frames: int) -> None:
    import torch
    from efficientnet_lite_pytorch import EfficientNet

    network = EfficientNet.from_name("efficientnet-lite2").eval()
    pixels = torch.from_numpy(frames[:8]).permute(0, 3, 1, 2).float()
    with torch.inference_mode():
        network(pixels)
        timed(
            "the released network, float32: a frame",
            lambda: [network(pixels) for _ in range(num_frames // 8)],
            num_frames,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=64)
    parser.add_argument("--height", type=int, default=224)
    parser.add_argument("--width", type=int, default=398)
    options = parser.parse_args()
    num_frames = max(8, options.frames // 8 * 8)

    memory("python")
    timed("import torch", lambda: __import__("torch"))
    memory("with torch")
    from untrimmed.encoders.builtin import encoder as builtin

    encoders: list[builtin.BuiltinEncoder] = []
    timed("load for sentences", lambda: encoders.append(builtin.BuiltinEncoder()))
    encoder = encoders[0]
    timed("the first sentence", lambda: encoder.encode_texts(["a dog runs over a green meadow"]))
    timed("a further sentence", lambda: [encoder.encode_texts(["a boat on a lake"]) for _ in range(20)], 20)
    memory("with sentences")
    frames = np.random.default_rng(0).integers(0, 256, (num_frames, options.height, options.width, 3), np.uint8)
    timed("the first frame (builds the network)", lambda: encoder.encode_frames(frames[:1]))
    encoder.encode_frames(frames[:16])
    for batch in (1, 8, 16, 32):
        starts = range(0, num_frames - batch + 1, batch)
        done = len(starts) * batch
        timed(
            f"a frame, in batches of {batch}",
            lambda batch=batch, starts=starts: [encoder.encode_frames(frames[s : s + batch]) for s in starts],
            done,
        )
    timed("  of it colours", lambda: encoder._colours.describe(frames[:8]), 8)
    memory("with frames")
    if importlib.util.find_spec("efficientnet_lite_pytorch"):
        time_released(frames, num_frames)


if __name__ == "__main__":
    main()
