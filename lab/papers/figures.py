"""Plots as SVG text."""

import matplotlib.pyplot as plt

from lab.figures.labels import use_log_axis
from lab.figures.legend import add_legend
from lab.figures.style import PLOT_HEIGHT, STYLE, WIDTH, look_of, to_svg

Series = dict[str, tuple[list[float], list[float]]]


def lines(title: str, axes_names: tuple[str, str], series: Series, log_x: bool = False) -> str:
    """A plot with a line for each name, of x and y values."""
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(WIDTH, PLOT_HEIGHT))
        for index, (name, (x, y)) in enumerate(series.items()):
            colour, marker = look_of(index)
            axes.plot(x, y, color=colour, marker=marker, markersize=5, linewidth=2, label=name)
        if log_x:
            use_log_axis(axes)
        axes.set_xlabel(axes_names[0])
        axes.set_ylabel(axes_names[1])
        axes.set_title(title)
        add_legend(figure)
        return to_svg(figure)
