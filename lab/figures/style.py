"""The style of all figures, which are drawn for the width of a phone and written as SVG text."""

import io

import matplotlib

matplotlib.use("svg")  # no display needed; before pyplot chooses

import matplotlib.pyplot as plt  # noqa: E402

# Colours that people with colour blindness can tell apart: Okabe and Ito's, grey and brown.
_COLOURS = (
    "#8c8c8c",
    "#222222",
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
    "#8c564b",
)
# Their number has no common factor with the colours', so that no two of 90 curves look alike.
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p")
WIDTH = 5.0  # inches: in 320 pixels a letter of 13 points is as high as one of 12 pixels
PLOT_HEIGHT = 3.7
STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 13,
    "axes.titlesize": 15,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 12,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#777777",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "legend.frameon": False,
    "legend.fontsize": 12,
    "legend.handlelength": 1.5,
    "legend.handletextpad": 0.5,
    "legend.columnspacing": 0.9,
    "figure.constrained_layout.use": True,
    "svg.hashsalt": "deltawire",  # the same plot gives the same file
}


def look_of(index: int) -> tuple[str, str]:
    """Colour and marker of the curve with this index."""
    return _COLOURS[index % len(_COLOURS)], _MARKERS[index % len(_MARKERS)]


def to_svg(figure: plt.Figure) -> str:
    """The figure as text; closes it."""
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    plt.close(figure)
    return file.getvalue()
