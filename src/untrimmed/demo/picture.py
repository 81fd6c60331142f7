"""Draw a search hit: its best frame, and the relevance of its video over time."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, UInt8

from untrimmed.files import whole_file
from untrimmed.types import Moment

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_INK = "#1f2430"
_MUTED = "#667085"
_GRID = "#e4e7ec"
_CURVE = "#2563a8"
_TRUTH = "#f2b84b"
_HIT = "#c2410c"
_SIZE_IN = (11.0, 3.7)
_DPI = 120


def draw_hit(
    path: Path,
    query: str,
    frame: UInt8[np.ndarray, "Y X 3"],
    frame_s: float,
    times_s: Float[np.ndarray, " T"],
    relevance: Float[np.ndarray, " T"],
    truth: Sequence[Moment],
    hit: Moment,
    *,
    video: str,
) -> Path:
    """Draw a hit as a PNG of 1320 x 444 pixels and return its path.

    The picture shows a frame of the hit and, beside it, the relevance curve with the correct moments and the hit.

    Args:
        frame: An RGB frame of the video at `frame_s` seconds.
        relevance: The relevance at each of `times_s` (seconds). Only differences have a meaning; higher is better.
        truth: The correct moments in this video. It may be empty.
        video: The displayed name of the video.
    """
    # pyplot would keep every figure in memory and load a GUI toolkit.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SIZE_IN, dpi=_DPI, facecolor="white")
    FigureCanvasAgg(figure)
    title = textwrap.shorten(query, width=96, placeholder=" ...")
    figure.text(0.025, 0.945, f"\N{LEFT DOUBLE QUOTATION MARK}{title}\N{RIGHT DOUBLE QUOTATION MARK}",
                fontsize=15, fontweight="bold", color=_INK, va="top")  # fmt: skip
    left = figure.add_axes((0.025, 0.13, 0.375, 0.68))
    left.imshow(frame, aspect="equal")
    left.set_anchor("W")
    left.set_axis_off()
    left.set_title(f"{video} at {frame_s:.1f} s", fontsize=10, color=_MUTED, loc="left", pad=5)
    right = figure.add_axes((0.475, 0.17, 0.505, 0.57))
    _draw_curve(right, times_s, relevance, truth, hit)
    right.plot(
        frame_s, np.interp(frame_s, times_s, relevance), "o", color=_CURVE, markersize=7, markeredgecolor="white"
    )
    with whole_file(path) as unfinished:
        figure.savefig(unfinished, format="png")
    return path


def _draw_curve(axes: Axes, times_s: np.ndarray, relevance: np.ndarray, truth: Sequence[Moment], hit: Moment) -> None:
    low = float(relevance.min())
    high = float(relevance.max())
    room = max(high - low, 1e-6)
    for number, moment in enumerate(truth):
        label = f"truth {moment.start_s:.1f} to {moment.end_s:.1f} s" if number == 0 else None
        axes.axvspan(moment.start_s, moment.end_s, color=_TRUTH, alpha=0.35, linewidth=0, label=label)
    if not truth:
        axes.plot([], [], " ", label="truth is in another video")
    axes.plot(times_s, relevance, color=_CURVE, linewidth=2, solid_joinstyle="round", label="relevance")
    bracket = high + 0.14 * room
    drop = 0.07 * room
    axes.plot(
        [hit.start_s, hit.start_s, hit.end_s, hit.end_s],
        [bracket - drop, bracket, bracket, bracket - drop],
        color=_HIT,
        linewidth=2.5,
        solid_capstyle="butt",
        solid_joinstyle="miter",
        label=f"hit {hit.start_s:.1f} to {hit.end_s:.1f} s",
    )
    axes.set_xlim(0, max(float(times_s[-1]), hit.end_s, *(moment.end_s for moment in truth)))
    axes.set_ylim(low - 0.08 * room, high + 0.26 * room)
    axes.set_xlabel("time (seconds)", fontsize=11, color=_INK)
    axes.set_ylabel("relevance", fontsize=11, color=_INK)
    axes.tick_params(colors=_MUTED, labelsize=9.5, length=3)
    axes.grid(axis="y", color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(_MUTED)
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        ncols=3,
        frameon=False,
        fontsize=10,
        labelcolor=_INK,
        borderaxespad=0.2,
    )
