"""Vectors of the colours in frames and in sentences. They are needed because ImageNet classes contain no colours.

The first eleven components are the basic colour terms (Berlin & Kay 1969). A pixel gets the term of the nearest web
colour (CSS) in CIELAB, where lightness counts less than hue. The twelfth component marks pictures without colour.
"""

from __future__ import annotations

import re
from functools import cached_property

import numpy as np
from jaxtyping import Float, UInt8

_PROTOTYPES = {
    "black": "000000 141414 1e1e1e",
    "grey": "c0c0c0 a9a9a9 808080 696969 778899 708090",
    "white": "ffffff fffafa f5f5f5",
    "red": "ff0000 dc143c b22222 8b0000 cd5c5c",
    "orange": "ffa500 ff8c00 ff7f50 ff6347 ff4500",
    "yellow": "ffff00 ffd700 f0e68c bdb76b",
    "brown": "a52a2a 8b4513 a0522d d2691e cd853f 800000",
    "green": "008000 006400 228b22 2e8b57 32cd32 00ff00 7cfc00 9acd32 6b8e23 556b2f 3cb371 00ff7f 90ee90 8fbc8f 808000",
    "blue": "0000ff 0000cd 00008b 000080 4169e1 4682b4 1e90ff 00bfff 6495ed 87ceeb 87cefa 40e0d0 00ced1 5f9ea0",
    "purple": "800080 4b0082 8b008b 9400d3 8a2be2 9932cc ff00ff da70d6 9370db 6a5acd 663399",
    "pink": "ffc0cb ffb6c1 ff69b4 ff1493 db7093 c71585",
}
_OTHER_NAMES = {
    "blond": "yellow",
    "blonde": "yellow",
    "crimson": "red",
    "gold": "yellow",
    "golden": "yellow",
    "gray": "grey",
    "navy": "blue",
    "scarlet": "red",
    "silver": "grey",
    "turquoise": "blue",
    "violet": "purple",
}
_NAMES = tuple(_PROTOTYPES)
# 'a black and white dog' has two colours; 'in black and white' and 'a black and white film' have none
_COLOURLESS = re.compile(
    r"\bin black and white\b"
    r"|\bblack[ -]and[ -]white (\w+ )?(film|movie|video|footage|picture|photo|photograph|image|scene)\b"
)
_LIGHTNESS_WEIGHT = 0.6
_SMALL_SHARE = 0.01  # people hardly notice a colour that covers a smaller share of a frame
# Limits for the mean over a frame's pixels of max(R, G, B) - min(R, G, B). Below the first limit, the frame has no
# colour, only film grain. Above the second, it is coloured.
_GREY_SPREAD, _COLOURED_SPREAD = 8.0, 16.0
_LEVELS = 32
DIM = len(_NAMES) + 1
MAX_NORM = np.sqrt(DIM) / 2


def _lab(rgb: Float[np.ndarray, "*rows 3"]) -> Float[np.ndarray, "*rows 3"]:
    """Return CIELAB values (D65) of sRGB values in [0, 255]. The lightness is multiplied by `_LIGHTNESS_WEIGHT`."""
    linear = np.where(rgb <= 10.31, rgb / 255 / 12.92, ((rgb / 255 + 0.055) / 1.055) ** 2.4)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = linear @ to_xyz.T / np.array([0.9505, 1.0, 1.089])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    x, y, z = np.moveaxis(f, -1, 0)
    return np.stack([_LIGHTNESS_WEIGHT * (116 * y - 16), 500 * (x - y), 200 * (y - z)], axis=-1)


class ColourNames:
    """Describes frames and sentences by vectors with one component per colour name, and one for no colour."""

    @cached_property
    def _nearest(self) -> UInt8[np.ndarray, " N"]:
        """The index of the nearest colour name for each cell of a coarse RGB grid, computed at the first access."""
        prototypes = [(i, bytes.fromhex(code)) for i, name in enumerate(_NAMES) for code in _PROTOTYPES[name].split()]
        names = np.array([i for i, _ in prototypes], np.uint8)
        places = _lab(np.array([list(code) for _, code in prototypes], float))
        levels = (np.arange(_LEVELS) + 0.5) * 256 / _LEVELS
        cube = _lab(np.stack(np.meshgrid(levels, levels, levels, indexing="ij"), axis=-1).reshape(-1, 3))
        # |a - b|^2 without |a|^2, which is equal for all prototypes b
        return names[np.argmin((places**2).sum(axis=1) - 2 * cube @ places.T, axis=1)]

    def describe(self, frames: UInt8[np.ndarray, "T Y X 3"]) -> Float[np.ndarray, "T 12"]:
        """Return a vector for each frame, with components in [-1/2, 1/2].

        The first eleven are the shares of the colours on a logarithmic scale, relative to equal shares. The last one
        is 1/2 for a picture without colour and -1/2 for a coloured one.
        """
        pixels = frames[:, ::2, ::2].reshape(len(frames), -1, 3)
        red, green, blue = np.moveaxis((pixels // (256 // _LEVELS)).astype(np.int32), -1, 0)
        names = self._nearest[(red * _LEVELS + green) * _LEVELS + blue]
        shares = np.stack([np.bincount(row, minlength=len(_NAMES)) for row in names]) / names.shape[1]
        evidence = np.log((shares + _SMALL_SHARE) / (1 / len(_NAMES) + _SMALL_SHARE)) / -np.log(_SMALL_SHARE)
        spread = (pixels.max(axis=2) - pixels.min(axis=2)).mean(axis=1)
        greyness = (_COLOURED_SPREAD + _GREY_SPREAD) / 2 - spread
        greyness = np.clip(greyness / (_COLOURED_SPREAD - _GREY_SPREAD), -0.5, 0.5)
        return np.concatenate([np.clip(evidence, -0.5, 0.5), greyness[:, None]], axis=1).astype(np.float32)

    def mentioned(self, text: str) -> Float[np.ndarray, 12]:
        """Return a unit vector of the colours that a sentence names, or zeros if it names none.

        The last component is 2 if the sentence asks for a picture in black and white, else 0. It is not part of the
        unit length.
        """
        remainder, num_colourless = _COLOURLESS.subn(" ", text.lower())
        vector = np.zeros(DIM, np.float32)
        for word in re.findall(r"[a-z]+", remainder):
            name = _OTHER_NAMES.get(word, word)
            if name in _PROTOTYPES:
                vector[_NAMES.index(name)] = 1
        vector /= max(float(np.linalg.norm(vector)), 1.0)
        vector[-1] = 2.0 if num_colourless else 0.0
        return vector
