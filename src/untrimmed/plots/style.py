"""Style, layout and saving of pictures. A picture is as wide as a column of a paper.

The colours are those of Okabe and Ito, which colour-blind readers can distinguish. Lines also have different markers,
and bars have different hatching, so that a picture can be read in grey. The smallest text has 7 points.
"""

import textwrap
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from jaxtyping import Float

from untrimmed.errors import ConfigError, install_advice
from untrimmed.files import whole_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure as Figure
else:  # matplotlib is optional, so it is imported only when a picture is drawn
    Axes = Figure = Any

D = TypeVar("D", bound=Callable[..., Any])

COLUMN_IN = 3.5
CHARACTERS = 60  # characters that fit into a column at 7.5 points
DPI = 300
SUFFIXES = (".png", ".svg")
BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK = COLOURS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000",
)  # fmt: skip
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
HATCHES = ("", "/////", ".....", "xxxxx", "|||||", "-----", "\\\\\\\\\\")
GREY = "#595959"
HEAT = "Blues"  # from light to dark, so that the picture is readable in grey
_SETTINGS: Any = {
    "font.size": 7.5,
    "axes.titlesize": 7.5,
    "axes.labelsize": 7.5,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "legend.handlelength": 1.6,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "#d9d9d9",
    "grid.linewidth": 0.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "hatch.linewidth": 0.6,
    "lines.linewidth": 1.3,
    "lines.markersize": 4,
    "text.parse_math": False,  # dollar signs in a caption do not begin a formula
    "svg.hashsalt": "untrimmed",
    "savefig.facecolor": "white",
}


def styled(draw: D) -> D:
    """Return a function that draws in our style; it raises ConfigError if matplotlib is not installed."""

    @wraps(draw)
    def in_style(*args: Any, **settings: Any) -> Any:
        try:
            from matplotlib import rc_context
        except ImportError as error:
            raise ConfigError(f"plots need matplotlib ({error}); {install_advice('plot')}") from error
        with rc_context(_SETTINGS):
            return draw(*args, **settings)

    return in_style  # type: ignore[return-value]


def new_figure(height_in: float) -> Figure:
    """Return an empty figure as wide as a column."""
    # pyplot would keep figures in memory and could open windows
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(COLUMN_IN, height_in), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def new_panels(
    count: int, *, rest_in: float, beside_in: float, alone_in: float, sharey: bool = True
) -> tuple[Figure, list[Axes]]:
    """Return a figure with panels in rows of two, or with a single panel.

    Heights are in inches. `beside_in` is the height of a row of two panels, `alone_in` the height of a single panel,
    and `rest_in` the height of everything else.
    """
    num_columns = min(2, count)
    num_rows = -(-count // num_columns)
    figure = new_figure(rest_in + (beside_in if num_columns == 2 else alone_in) * num_rows)
    panels = figure.subplots(num_rows, num_columns, squeeze=False, sharey=sharey).flatten().tolist()
    for axes in panels[count:]:
        axes.set_visible(False)
    return figure, panels[:count]


def require_suffix(path: Path) -> None:
    """Raise a ConfigError if the path does not end in .png or .svg."""
    if path.suffix.lower() not in SUFFIXES:
        ending = f"ends in {path.suffix!r}" if path.suffix else "has no suffix"
        raise ConfigError(f"-o {path}: {ending}, expected .png or .svg; use e.g. {path.with_suffix('.png').name}")


@styled
def save(figure: Figure, path: Path) -> None:
    """Write the picture atomically. Equal data produce equal bytes.

    Raises: ConfigError for a suffix that is neither .png nor .svg.
    """
    require_suffix(path)
    kind = path.suffix.lower()[1:]
    with whole_file(path) as temporary:
        figure.savefig(temporary, format=kind, metadata={"Date": None} if kind == "svg" else {"Software": None})


def plot_band(
    axes: Axes,
    x: Sequence[float],
    mean: Float[np.ndarray, " N"],
    deviation: Float[np.ndarray, " N"] | None,
    **look: Any,
) -> None:
    """Draw a line. If `deviation` is given, also draw an area of one deviation above and below the line."""
    if deviation is not None:
        axes.fill_between(x, mean - deviation, mean + deviation, color=look["color"], alpha=0.15, linewidth=0)
    axes.plot(x, mean, **look)


def mark_moments(axes: Axes, spans_s: Sequence[tuple[float, float]], bottom: float, height: float) -> None:
    """Draw dotted frames around annotated moments, from `bottom` to `bottom + height` on the vertical axis."""
    from matplotlib.patches import Rectangle

    look = {"fill": False, "edgecolor": BLACK, "linewidth": 1.2, "linestyle": ":", "clip_on": False}
    for start_s, end_s in spans_s:
        axes.add_patch(Rectangle((start_s, bottom), end_s - start_s, height, **look))  # type: ignore[arg-type]


def legend_over(figure: Figure, axes: Axes) -> None:
    """Draw the legend of the axes above all panels of the figure."""
    handles, names = axes.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper left", ncols=columns_for(names), columnspacing=1.2)


def legend_above(axes: Axes, *, gap: float = 1.0) -> None:
    """Draw the legend of the axes above the axes, where it hides no data.

    `gap` is the vertical position of the legend's lower edge, as a multiple of the axes' height.
    """
    names = axes.get_legend_handles_labels()[1]
    axes.legend(
        loc="lower left", bbox_to_anchor=(0, gap), ncols=columns_for(names), borderaxespad=0.3, columnspacing=1.2
    )


def columns_for(names: Sequence[str]) -> int:
    """Return the number of legend columns with these names that fit into the width of a picture.

    >>> columns_for(["proto", "ral"]), columns_for(["gmmformer_v2+ral, two thirds of the data"])
    (3, 1)
    """
    return max(1, min(3, CHARACTERS // (max(map(len, names)) + 6)))


def short(text: str, width: int) -> str:
    """Return the text as one line, shortened to at most `width` characters.

    >>> short("a man sits down on a chair", 16)
    'a man sits …'
    """
    return textwrap.shorten(text, width, placeholder=" …") if " " in text else text[:width]
