"""How every picture looks, and how it is written: column width of a paper, the same bytes for the same data.

Colours are Okabe and Ito's, which stay apart for colour-blind readers; lines differ in their markers too and bars in
their hatching, so that they stay apart in grey. No text is smaller than 7 points at the width of a column.
"""

import textwrap
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from untrimmed.errors import ConfigError
from untrimmed.files import whole_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure as Figure
else:  # matplotlib is optional, and drawing functions import it when they run
    Axes = Figure = Any

D = TypeVar("D", bound=Callable[..., Any])

COLUMN_IN = 3.5
CHARACTERS = 60  # of 7.5 points in a column
DPI = 300
SUFFIXES = (".png", ".svg")
BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK = COLOURS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000",
)  # fmt: skip
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
HATCHES = ("", "/////", ".....", "xxxxx", "|||||", "-----", "\\\\\\\\\\")
GREY = "#595959"
HEAT = "Blues"  # light to dark, so that it survives a grey printer
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
    "text.parse_math": False,  # a caption may hold dollar signs
    "svg.hashsalt": "untrimmed",
    "savefig.facecolor": "white",
}


def styled(draw: D) -> D:
    """A function that draws, with the style in force while it runs.

    Raises: ConfigError when matplotlib is not installed.
    """

    @wraps(draw)
    def in_style(*args: Any, **settings: Any) -> Any:
        try:
            from matplotlib import rc_context
        except ImportError as error:
            raise ConfigError(f"plots need matplotlib ({error}); run: pip install 'untrimmed[plot]'") from error
        with rc_context(_SETTINGS):
            return draw(*args, **settings)

    return in_style  # type: ignore[return-value]


def new_figure(height_in: float) -> Figure:
    """An empty figure as wide as a column."""
    # No pyplot: it keeps figures alive and picks a window system.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(COLUMN_IN, height_in), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def new_panels(
    count: int, *, rest_in: float, beside_in: float, alone_in: float, sharey: bool = True
) -> tuple[Figure, list[Axes]]:
    """A figure of panels in rows of two: how high one is beside another and alone, and all that is no panel."""
    num_columns = min(2, count)
    num_rows = -(-count // num_columns)
    figure = new_figure(rest_in + (beside_in if num_columns == 2 else alone_in) * num_rows)
    panels = figure.subplots(num_rows, num_columns, squeeze=False, sharey=sharey).flatten().tolist()
    for axes in panels[count:]:
        axes.set_visible(False)
    return figure, panels[:count]


def require_suffix(path: Path) -> None:
    """Raise a ConfigError if the name does not say which of the formats to write."""
    if path.suffix.lower() not in SUFFIXES:
        found = f"ends in {path.suffix!r}" if path.suffix else "has no suffix"
        raise ConfigError(f"-o {path}: {found}, wanted .png or .svg; rename it, e.g. {path.with_suffix('.png').name}")


@styled
def save(figure: Figure, path: Path) -> None:
    """Write the picture whole or not at all; the same data give the same bytes.

    Raises: ConfigError for a suffix that is neither .png nor .svg.
    """
    require_suffix(path)
    kind = path.suffix.lower()[1:]
    with whole_file(path) as temporary:
        figure.savefig(temporary, format=kind, metadata={"Date": None} if kind == "svg" else {"Software": None})


def mark_moments(axes: Axes, spans_s: Sequence[tuple[float, float]], bottom: float, height: float) -> None:
    """Dotted frames around annotated moments, over that range of the vertical axis."""
    from matplotlib.patches import Rectangle

    look = {"fill": False, "edgecolor": BLACK, "linewidth": 1.2, "linestyle": ":", "clip_on": False}
    for start_s, end_s in spans_s:
        axes.add_patch(Rectangle((start_s, bottom), end_s - start_s, height, **look))  # type: ignore[arg-type]


def legend_over(figure: Figure, axes: Axes) -> None:
    """A legend of the axes above all panels of the figure."""
    handles, names = axes.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper left", ncols=columns_for(names), columnspacing=1.2)


def legend_above(axes: Axes, *, gap: float = 1.0) -> None:
    """A legend in lines above the axes, where it hides no data; it begins at `gap` of their height."""
    names = axes.get_legend_handles_labels()[1]
    axes.legend(
        loc="lower left", bbox_to_anchor=(0, gap), ncols=columns_for(names), borderaxespad=0.3, columnspacing=1.2
    )


def columns_for(names: Sequence[str]) -> int:
    """How many columns a legend may have so that it is not wider than the picture.

    >>> columns_for(["proto", "ral"]), columns_for(["gmmformer_v2+ral, two thirds of the data"])
    (3, 1)
    """
    return max(1, min(3, CHARACTERS // (max(map(len, names)) + 6)))


def short(text: str, width: int) -> str:
    """The text on one line of at most so many characters.

    >>> short("a man sits down on a chair", 16)
    'a man sits …'
    """
    return textwrap.shorten(text, width, placeholder=" …") if " " in text else text[:width]
