"""The plots of the report, as SVG text, drawn for the width of a phone.

A curve has a colour, a marker and a number, which stands beside its end and in the legend.
"""

import math
import textwrap

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from lab.figures.labels import label_points, use_log_axis
from lab.figures.legend import add_legend
from lab.figures.style import PLOT_HEIGHT, STYLE, WIDTH, look_of, to_svg

_STEP_PARTS = (("computing alone", "#9db4c8"), ("rest of the step", "#5a6b7a"))
_EXCHANGE_PARTS = (
    ("encode_ms", "encoding", "#e69f00"),
    ("exchange_ms", "waiting for the link", "#d55e00"),
    ("decode_ms", "decoding", "#009e73"),
)
_TRAINED_SHARE = 0.25  # of the steps; the accuracy axis must cover the curves after it


def draw_plots(rows: list[dict]) -> dict[str, str]:
    """File name (without suffix) -> SVG, for the rows of results.json that did not fail; those with
    times unless the machine was busy."""
    alive = [row for row in rows if row["failed"] is None]
    drawn = {"accuracy-bytes": _accuracy_bytes}
    if all(row["ms_per_step"] is not None for row in alive):
        drawn = {"accuracy-time": _accuracy_time, **drawn, "step-parts": _step_parts}
    with plt.rc_context(STYLE):
        return {name: draw(alive) for name, draw in drawn.items()}


def _accuracy_time(rows: list[dict]) -> str:
    figure, axes = _draw_curves(rows, "seconds", first_point=0)
    axes.set_xlim(left=0)
    axes.set_xlabel("seconds of training")
    axes.set_title("Accuracy against time")
    return _finish(figure, rows, "seconds")


def _accuracy_bytes(rows: list[dict]) -> str:
    # At the first point nothing has been sent, which a log axis can't show.
    figure, axes = _draw_curves(rows, "wire_mb", first_point=1)
    use_log_axis(axes)
    axes.set_xlabel("megabytes sent per rank (log scale)")
    axes.set_title("Accuracy against bytes")
    return _finish(figure, rows, "wire_mb")


def _draw_curves(rows: list[dict], x_key: str, first_point: int) -> tuple[plt.Figure, Axes]:
    """A curve for each row; if it has several trainings, with a band from the least to the most
    accurate."""
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
            label=f"{index + 1} {row['detail']['label']}",
            linewidth=2.2,
            linestyle=(0, (5, 2)) if is_plain else "-",
            marker=marker,
            markersize=7,
            markerfacecolor="white" if is_plain else colour,
            markeredgecolor=colour if is_plain else "white",
            markeredgewidth=1.5 if is_plain else 0.6,
            zorder=3 if is_plain else 2,
        )
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f} %"))
    axes.set_ylabel("test accuracy")
    axes.set_ylim(*accuracy_limits(rows))
    return figure, axes


def accuracy_limits(rows: list[dict]) -> tuple[float, float]:
    """The range of the accuracy axis: that of the curves after their first quarter. Before that
    they rise steeply, from below the axis; shown whole, they would end too close to each other."""
    seen = []
    for row in rows:
        curve = row["detail"]["curve"]
        for point in curve[math.ceil(_TRAINED_SHARE * (len(curve) - 1)) :]:
            seen += point["accuracy_range"]
    if not seen:
        return 0.0, 1.0
    low, high = min(seen), max(seen)
    margin = max(0.01, 0.08 * (high - low))
    return max(0.0, math.floor(20 * (low - margin)) / 20), min(1.0, high + margin)


def _finish(figure: plt.Figure, rows: list[dict], x_key: str) -> str:
    """Adds the legend, and each curve's number beside its end."""
    add_legend(figure)
    ends = [(index, row["detail"]["curve"]) for index, row in enumerate(rows)]
    label_points(
        figure.axes[0],
        [
            (curve[-1][x_key], curve[-1]["accuracy"], str(index + 1), look_of(index)[0])
            for index, curve in ends
            if curve
        ],
    )
    return to_svg(figure)


def step_parts(row: dict) -> tuple[float, float]:
    """Milliseconds of computing alone and of the rest, which add up to the step.

    A step that happens to be faster than computing alone counts as all computing.
    """
    compute = min(row["compute_ms"], row["ms_per_step"])
    return compute, row["ms_per_step"] - compute


def _step_parts(rows: list[dict]) -> str:
    figure, axes = plt.subplots(figsize=(WIDTH, 1.6 + 0.72 * max(1, len(rows))))
    places = range(len(rows))
    left = [0.0] * len(rows)
    for (label, colour), widths in zip(
        _STEP_PARTS, zip(*map(step_parts, rows), strict=True), strict=False
    ):
        axes.barh(places, widths, left=left, color=colour, label=label, height=0.28)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    _draw_exchanges(axes, rows)
    for place, row in enumerate(rows):
        _mark_step(axes, place, row)
    axes.set_yticks([])
    axes.set_ylim(len(rows) - 0.5, -0.6)
    axes.set_xlim(left=0)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel(
        "milliseconds per step; narrow bars: work of the\n"
        "exchange, hidden where it lies below computing"
    )
    axes.set_title("Where a step's time goes")
    add_legend(figure)
    return to_svg(figure)


def _draw_exchanges(axes: Axes, rows: list[dict]) -> None:
    """A narrow bar below each step: the work of its exchange, which ends with the step."""
    places = [place + 0.23 for place in range(len(rows))]
    work = [sum(row[key] for key, _, _ in _EXCHANGE_PARTS) for row in rows]
    left = [max(0.0, row["ms_per_step"] - ms) for row, ms in zip(rows, work, strict=True)]
    for key, label, colour in _EXCHANGE_PARTS:
        widths = [row[key] for row in rows]
        axes.barh(places, widths, left=left, color=colour, label=label, height=0.12)
        left = [start + width for start, width in zip(left, widths, strict=True)]


def _mark_step(axes: Axes, place: int, row: dict) -> None:
    """The row's name above its bar, and the spread of several trainings."""
    measured = row["ms_per_step"]
    spread = ""
    if len(row["detail"]["repeats"]) > 1:
        low, high = row["ms_per_step_range"]
        spread = f" ({low:.0f}-{high:.0f})"
        axes.errorbar(
            [measured],
            [place],
            xerr=[[measured - low], [high - measured]],
            color="#111111",
            capsize=4,
            linewidth=1.5,
            linestyle="",
            label="fastest to slowest training" if place == 0 else None,
        )
    name = textwrap.shorten(row["detail"]["label"], 34, placeholder="...")
    axes.annotate(
        f"{name}: {measured:.0f} ms{spread}",
        (0, place - 0.17),
        xytext=(2, 0),
        textcoords="offset points",
        va="bottom",
    )
