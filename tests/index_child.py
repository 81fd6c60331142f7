"""Indexes a folder with the toy encoder and prints each finished file. Arguments: LIBRARY VIDEOS."""

import sys
import time
from pathlib import Path

import untrimmed
from tests.toy import ToyEncoder
from untrimmed.encoders.registry import LoadedEncoder
from untrimmed.search import library as library_module


class SlowEncoder(ToyEncoder):
    """An encoder slow enough for a test to kill the process while it decodes, encodes or commits."""

    def encode_frames(self, frames):
        time.sleep(0.005)
        return super().encode_frames(frames)

    def encode_texts(self, texts):
        time.sleep(0.01)
        return super().encode_texts(texts)


def tell(step):
    if step.state in ("done", "failed", "passages"):
        print(step.state, step.path.name, flush=True)


if __name__ == "__main__":
    library_module.load_encoder = lambda *_, **__: LoadedEncoder(SlowEncoder(), None)
    print("ready", flush=True)
    untrimmed.open(sys.argv[1]).index(Path(sys.argv[2]), progress=tell)
    print("end", flush=True)
