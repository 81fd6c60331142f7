"""Camera moves over a still picture: a 16:9 window moves from one position to another."""

from dataclasses import dataclass

import numpy as np
from PIL import Image

from untrimmed.demo.sources import Box

WIDTH = 640
HEIGHT = 360
ASPECT = WIDTH / HEIGHT

Planes = tuple[Image.Image, Image.Image, Image.Image]
"""A picture as one luma and two colour-difference planes, the format of video encoders. It resizes faster than RGB."""


@dataclass(frozen=True)
class Window:
    """A 16:9 part of a picture, in pixels of that picture."""

    left: float
    top: float
    width: float

    @property
    def box(self) -> Box:
        """Left, top, right and bottom in pixels."""
        return (self.left, self.top, self.left + self.width, self.top + self.width / ASPECT)


@dataclass(frozen=True)
class Move:
    """A camera move between two windows."""

    start: Window
    end: Window

    def at(self, progress: float) -> Window:
        """Return the window at a progress in [0, 1], with a soft start and end (smoothstep)."""
        t = progress * progress * (3 - 2 * progress)
        a = self.start
        b = self.end
        return Window(a.left + t * (b.left - a.left), a.top + t * (b.top - a.top), a.width + t * (b.width - a.width))


def plan_move(size: tuple[int, int], subject: Box | None, closest: float, rng: np.random.Generator) -> Move:
    """Return a random zoom in, zoom out or pan over a picture.

    The whole subject is visible throughout: the start and the end window contain it, and the windows between them are
    weighted means of the two.

    Args:
        size: Width and height of the picture in pixels.
        closest: The smallest allowed width of a window, as a share of the largest that fits into the picture.
    """
    picture_width, picture_height = size
    largest = min(float(picture_width), picture_height * ASPECT)
    keep = None
    smallest = closest * largest
    if subject is not None:
        left, top, right, bottom = subject
        keep = (left * picture_width, top * picture_height, right * picture_width, bottom * picture_height)
        smallest = min(largest, max(smallest, keep[2] - keep[0], (keep[3] - keep[1]) * ASPECT))
    kind = rng.choice(["zoom in", "zoom out", "pan"])
    if kind == "pan":
        width = float(rng.uniform(smallest, (smallest + largest) / 2))
        widths = (width, width)
    else:
        widths = (largest, smallest) if kind == "zoom in" else (smallest, largest)
    # Start near one side and end near the other, on both axes, so that a pan is visible.
    sides = rng.uniform(0.0, 0.35, size=2)
    sides = np.where(rng.random(2) < 0.5, sides, 1 - sides)
    start = _place(widths[0], size, keep, sides)
    return Move(start, _place(widths[1], size, keep, 1 - sides))


def _place(width: float, size: tuple[int, int], keep: Box | None, sides: np.ndarray) -> Window:
    """Return a window of this width, in pixels, that contains the box `keep`.

    `sides` (2,) are the window's x and y positions in the possible range: 0 is leftmost or topmost, 1 is rightmost or
    lowest.
    """
    corner = []
    for axis, extent in enumerate((width, width / ASPECT)):
        low = 0.0
        high = size[axis] - extent
        if keep is not None:
            low = max(low, keep[axis + 2] - extent)
            high = min(high, keep[axis])
        corner.append(low + float(sides[axis]) * max(0.0, high - low))
    return Window(corner[0], corner[1], width)


def to_planes(picture: Image.Image) -> Planes:
    """Convert an RGB picture to a luma plane of its size and colour planes of half its size (BT.601, limited range)."""
    import av

    y, u, v = av.VideoFrame.from_image(picture).reformat(format="yuv444p").to_ndarray()
    return Image.fromarray(y), Image.fromarray(u).reduce(2), Image.fromarray(v).reduce(2)


def view(planes: Planes, window: Window) -> Planes:
    """Return the part of a picture in a window, scaled to WIDTH x HEIGHT pixels. Colour planes have half that size."""
    y, u, v = planes
    left, top, right, bottom = window.box
    inside = (max(0.0, left), max(0.0, top), min(y.width, right), min(y.height, bottom))  # clips rounding errors
    half_size = (WIDTH // 2, HEIGHT // 2)
    half = (inside[0] / 2, inside[1] / 2, inside[2] / 2, inside[3] / 2)
    return (
        y.resize((WIDTH, HEIGHT), Image.Resampling.BILINEAR, box=inside),
        u.resize(half_size, Image.Resampling.BILINEAR, box=half),
        v.resize(half_size, Image.Resampling.BILINEAR, box=half),
    )


def blend(first: Planes, second: Planes, weight: float) -> Planes:
    """Return one frame of a cross-fade. `weight`, in [0, 1], is the share of the second picture."""
    (y0, u0, v0) = first
    (y1, u1, v1) = second
    return Image.blend(y0, y1, weight), Image.blend(u0, u1, weight), Image.blend(v0, v1, weight)
