import numpy as np
import pytest
from PIL import Image

from tests.refusals import refused
from untrimmed.errors import VideoError
from untrimmed.video.reader import FrameReader, read_image


@pytest.mark.parametrize("suffix", [".png", ".webp", ".bmp"])
def test_a_lossless_picture_is_decoded_exactly(tmp_path, suffix):
    pixels = np.random.default_rng(0).integers(0, 256, (31, 42, 3), dtype=np.uint8)
    options = {"lossless": True} if suffix == ".webp" else {}
    Image.fromarray(pixels).save(tmp_path / f"picture{suffix}", **options)
    assert np.abs(read_image(tmp_path / f"picture{suffix}").astype(int) - pixels).max() <= 2  # WebP goes through YUV


def test_a_jpeg_is_decoded_closely(tmp_path):
    slope = np.linspace(0, 255, 64, dtype=np.uint8)
    pixels = np.stack([np.tile(slope, (48, 1)), np.tile(slope[:48, None], (1, 64)), np.full((48, 64), 90)], axis=-1)
    Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "photo.jpg", quality=95)
    assert np.abs(read_image(tmp_path / "photo.jpg").astype(int) - pixels).mean() < 4


@pytest.mark.parametrize("content", [b"", b"no picture", b"\x89PNG\r\n\x1a\n and no more"])
def test_a_file_without_a_picture_is_refused_in_one_line_and_the_decoder_survives(tmp_path, content):
    (tmp_path / "broken.png").write_bytes(content)
    with FrameReader() as reader:
        with refused(VideoError, "broken.png"):
            reader.read_image(tmp_path / "broken.png")
        assert reader.child_pid is not None
