"""A small encoder for tests: frames are their mean colour, and sentences the colours that they name."""

import numpy as np

from untrimmed.search.store.records import VideoRecord
from untrimmed.search.store.table import StoredVideo
from untrimmed.types import TextFeatures

COLOURS = {"red": (1, 0, 0), "green": (0, 1, 0), "blue": (0, 0, 1), "white": (1, 1, 1), "yellow": (1, 1, 0)}


class ToyEncoder:
    name = "toy"
    frame_dim = 4
    word_dim = 4
    short_side = 32

    def __init__(self, identity="toy:1"):
        self.identity = identity
        self.num_encoded = 0

    def encode_frames(self, frames):
        self.num_encoded += len(frames)
        colours = frames.reshape(len(frames), -1, 3).mean(axis=1) / 255
        return _unit(np.concatenate([colours, np.full((len(frames), 1), 0.1)], axis=1))

    def encode_texts(self, texts):
        return [self._text(text) for text in texts]

    def _text(self, text):
        tokens = tuple(text.lower().split())
        words = _unit(np.array([(*COLOURS.get(token, (0, 0, 0)), 0.1) for token in tokens]))
        return TextFeatures(text, _unit(words.sum(axis=0)), words, tokens)


class WideWordEncoder(ToyEncoder):
    """An encoder whose words are wider than its frames by 1, so that tests detect swapped widths."""

    word_dim = 5

    def _text(self, text):
        features = super()._text(text)
        words = np.pad(features.words, ((0, 0), (0, 1)), constant_values=0.3)
        return TextFeatures(text, features.sentence, words, features.tokens)


def _unit(vectors):
    return (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)).astype(np.float32)


def stored_video(video_id, features, encoded=b"", *, model="frames", path=None, indexed_at=1.0):
    """The stored form of a video whose file does not exist."""
    record = VideoRecord(
        video_id=video_id,
        path=path or f"/v/{video_id}.mp4",
        content_hash=f"hash-{video_id}",
        size=10,
        mtime_ns=20,
        duration_s=features.duration_s,
        width=320,
        height=180,
        num_frames=len(features.vectors),
        sampling="2 fps",
        encoder_identity="toy:1",
        model=model,
        indexed_at=indexed_at,
    )
    return StoredVideo(record, features, encoded)


def write_clip(path, colours, *, seconds_each=2.0, fps=10, size=(64, 48), format=None, codec="mpeg4", options=None):
    """Write a clip that shows one colour after another."""
    import av

    with av.open(str(path), "w", format=format) as container:
        stream = container.add_stream(codec, rate=fps)
        stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
        stream.bit_rate = 400_000
        stream.options = options or {}
        for colour in colours:
            picture = np.broadcast_to(np.array(COLOURS[colour], dtype=np.uint8) * 255, (size[1], size[0], 3))
            for _ in range(round(seconds_each * fps)):
                container.mux(stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")))
        container.mux(stream.encode())
    return path
