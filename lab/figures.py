"""The figures of the report, as SVG text."""

import io
import math

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
_WIDE = (9, 5)  # inches; the legend stands beside it
_STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 12,
    "axes.titlesize": 15,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 14,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#777777",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "legend.frameon": False,
    "svg.hashsalt": "deltawire",  # the same figure gives the same file
}


def draw_figures(rows: list[dict]) -> dict[str, str]:
    """File name (without suffix) -> SVG, for the rows of results.json that did not fail."""
    with plt.rc_context(_STYLE):
        return {
            "accuracy-time": _accuracy_time(rows),
            "accuracy-bytes": _accuracy_bytes(rows),
            "step-parts": _step_parts(rows),
        }


def _accuracy_time(rows: list[dict]) -> str:
    figure, axes = plt.subplots(figsize=_WIDE)
    _draw_curves(axes, rows, "seconds", first_point=0)
    axes.set_xlim(left=0)
    axes.set_xlabel("seconds of training (evaluation not counted)")
    axes.set_title("Accuracy against time")
    return _to_svg(figure)


def _accuracy_bytes(rows: list[dict]) -> str:
    figure, axes = plt.subplots(figsize=_WIDE)
    _draw_curves(axes, rows, "wire_mb", first_point=1)  # nothing sent has no place on a log axis
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel("megabytes sent per rank (log scale)")
    axes.set_title("Accuracy against bytes")
    return _to_svg(figure)


def _draw_curves(axes: Axes, rows: list[dict], x_key: str, first_point: int) -> None:
    for index, (row, colour) in enumerate(coloured(rows)):
        points = row["detail"]["curve"][first_point:]
        is_plain = row["method"] == "plain"
        axes.plot(
            [point[x_key] for point in points],
            [point["accuracy"] for point in points],
            color=colour,
            label=f"{row['detail']['label']}:  {100 * row['accuracy']:.1f} %",
            linewidth=2.2,
            linestyle=(0, (5, 2)) if is_plain else "-",
            marker=marker_of(index),
            markersize=5.5,
            markerfacecolor="white" if is_plain else colour,
            zorder=3 if is_plain else 2,
        )
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f} %"))
    axes.set_ylabel("test accuracy")
    axes.set_ylim(bottom=_floor(rows))
    if axes.lines:
        axes.legend(
            title="at the end", loc="upper left", bbox_to_anchor=(1.01, 1.0), alignment="left"
        )


def _floor(rows: list[dict]) -> float:
    """Where the accuracy axis begins: a round number below all points of trained networks."""
    trained = [
        point["accuracy"] for row, _ in coloured(rows) for point in row["detail"]["curve"][1:]
    ]
    return math.floor(10 * min(trained, default=0)) / 10


def _step_parts(rows: list[dict]) -> str:
    alive = [row for row, _ in coloured(rows)]
    figure, axes = plt.subplots(figsize=(9, 1.6 + 0.62 * max(1, len(alive))))
    places = range(len(alive))
    left = [0.0] * len(alive)
    for key, label, colour in _PARTS:
        widths = [row[key] for row in alive]
        axes.barh(places, widths, left=left, color=colour, label=label, height=0.62)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    for place, row, end in zip(places, alive, left, strict=True):
        measured = row["ms_per_step"]
        label = "whole step, measured" if place == 0 else None
        axes.plot([measured] * 2, [place - 0.4, place + 0.4], color="#222222", lw=2.5, label=label)
        axes.annotate(
            f"{measured:.0f} ms",
            (max(end, measured), place),
            xytext=(7, 0),
            textcoords="offset points",
            va="center",
        )
    axes.set_yticks(places, [row["detail"]["label"] for row in alive])
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.1)
    axes.set_xlabel(
        "milliseconds per step (parts overlap, so they may add up to more than the step)"
    )
    axes.set_title("Where a step's time goes", pad=38)
    if alive:
        whole, *parts = axes.get_legend_handles_labels()[0]
        axes.legend(
            handles=[*parts, whole],
            loc="lower left",
            bbox_to_anchor=(-0.01, 1.0),
            ncols=5,
            columnspacing=1.2,
        )
    return _to_svg(figure)


def coloured(rows: list[dict]) -> list[tuple[dict, str]]:
    """Rows with numbers, each with its own colour."""
    alive = [row for row in rows if row["failed"] is None]
    return [(row, _COLOURS[index % len(_COLOURS)]) for index, row in enumerate(alive)]


def marker_of(index: int) -> str:
    """The marker of the curve that stands in this place."""
    return _MARKERS[index % len(_MARKERS)]


def _to_svg(figure: plt.Figure) -> str:
    file = io.StringIO()
    figure.savefig(file, format="svg", bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)
    return file.getvalue()
