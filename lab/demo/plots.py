"""The plots of the report, as SVG text. They are drawn for the width of a phone, legends below or
beside what they name, and stay small elsewhere.
"""

import io
import math
import textwrap

import matplotlib

matplotlib.use("svg")  # no display needed; before pyplot chooses

import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.ticker import FuncFormatter  # noqa: E402

# Colours that people with colour blindness can tell apart (Okabe and Ito's, grey and brown); the
# markers tell rows apart where colours don't, on paper or beyond nine rows.
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
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")  # as many as have no common factor with the colours
_PARTS = (
    ("compute_ms", "compute", "#9db4c8"),
    ("encode_ms", "encode", "#e69f00"),
    ("exchange_ms", "exchange", "#d55e00"),
    ("decode_ms", "decode", "#009e73"),
)
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


def draw_plots(rows: list[dict]) -> dict[str, str]:
    """File name (without suffix) -> SVG, for the rows of results.json that did not fail."""
    alive = [row for row in rows if row["failed"] is None]
    with plt.rc_context(STYLE):
        return {
            "accuracy-time": _accuracy_time(alive),
            "accuracy-bytes": _accuracy_bytes(alive),
            "step-parts": _step_parts(alive),
        }


def _accuracy_time(rows: list[dict]) -> str:
    figure, axes = _draw_curves(rows, "seconds", first_point=0)
    axes.set_xlim(left=0)
    axes.set_xlabel("seconds of training")
    axes.set_title("Accuracy against time")
    return to_svg(figure)


def _accuracy_bytes(rows: list[dict]) -> str:
    # What sent nothing yet has no place on a log axis.
    figure, axes = _draw_curves(rows, "wire_mb", first_point=1)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel("megabytes sent per rank (log scale)")
    axes.set_title("Accuracy against bytes")
    return to_svg(figure)


def _draw_curves(rows: list[dict], x_key: str, first_point: int) -> tuple[plt.Figure, Axes]:
    """A line for each row; around it, where it has several trainings, the band from the least to
    the most accurate.
    """
    figure, axes = plt.subplots(figsize=(WIDTH, PLOT_HEIGHT))
    for index, row in enumerate(rows):
        points = row["detail"]["curve"][first_point:]
        colour, marker = look_of(index)
        is_plain = row["method"] == "plain"
        x = [point[x_key] for point in points]
        if points:
            low, high = zip(*(point["accuracy_range"] for point in points), strict=True)
            axes.fill_between(x, low, high, color=colour, alpha=0.18, linewidth=0)
        axes.plot(
            x,
            [point["accuracy"] for point in points],
            color=colour,
            label="\n".join(textwrap.wrap(row["detail"]["label"], 40)),
            linewidth=2.2,
            linestyle=(0, (5, 2)) if is_plain else "-",
            marker=marker,
            markersize=6,
            markerfacecolor="white" if is_plain else colour,
            zorder=3 if is_plain else 2,
        )
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f} %"))
    axes.set_ylabel("test accuracy")
    axes.set_ylim(bottom=_floor(rows))
    add_legend(figure)
    return figure, axes


def add_legend(figure: plt.Figure) -> None:
    """Below the plot, in as many columns as fit; the figure grows by its height."""
    if not figure.axes[0].get_legend_handles_labels()[1]:
        return
    for columns in (3, 2, 1):
        trial = figure.legend(loc="lower left", ncols=columns)
        figure.draw_without_rendering()
        extent = trial.get_window_extent()
        trial.remove()
        if extent.x1 <= figure.bbox.x1:
            break
    figure.set_figheight(figure.get_figheight() + extent.height / figure.dpi)
    figure.legend(loc="outside lower left", ncols=columns)


def _floor(rows: list[dict]) -> float:
    """Where the accuracy axis begins: a round number below all points of trained networks."""
    trained = [point["accuracy_range"][0] for row in rows for point in row["detail"]["curve"][1:]]
    return math.floor(10 * min(trained, default=0)) / 10


def _step_parts(rows: list[dict]) -> str:
    figure, axes = plt.subplots(figsize=(WIDTH, 1.6 + 0.62 * max(1, len(rows))))
    places = range(len(rows))
    left = [0.0] * len(rows)
    for key, label, colour in _PARTS:
        widths = [row[key] for row in rows]
        axes.barh(places, widths, left=left, color=colour, label=label, height=0.42)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    for place, row in enumerate(rows):
        _mark_step(axes, place, row)
    axes.set_yticks([])
    axes.set_ylim(len(rows) - 0.5, -0.8)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("milliseconds per step; parts overlap,\nand may add up to more than the step")
    axes.set_title("Where a step's time goes")
    add_legend(figure)
    return to_svg(figure)


def _mark_step(axes: Axes, place: int, row: dict) -> None:
    """The whole step, its spread over several trainings, and above the bar its name."""
    measured = row["ms_per_step"]
    low, high = row["ms_per_step_range"]
    axes.errorbar(
        [measured],
        [place],
        xerr=[[measured - low], [high - measured]],
        color="#222222",
        capsize=4,
        linewidth=1.5,
        marker="|",
        markersize=18,
        markeredgewidth=2.5,
        linestyle="",
        label="whole step" if place == 0 else None,
    )
    spread = f" ({low:.0f}-{high:.0f})" if len(row["detail"]["repeats"]) > 1 else ""
    name = textwrap.shorten(row["detail"]["label"], 34, placeholder="...")
    axes.annotate(
        f"{name}: {measured:.0f} ms{spread}",
        (0, place - 0.27),
        xytext=(2, 0),
        textcoords="offset points",
        va="bottom",
    )


def look_of(index: int) -> tuple[str, str]:
    """Colour and marker of the curve that stands in this place."""
    return _COLOURS[index % len(_COLOURS)], _MARKERS[index % len(_MARKERS)]


def to_svg(figure: plt.Figure) -> str:
    """The figure as text, and it is closed."""
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    plt.close(figure)
    return file.getvalue()
