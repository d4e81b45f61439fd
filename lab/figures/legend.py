"""Legends that cover nothing, on plots as narrow as a phone."""

import re
import textwrap

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.transforms import Bbox

_LETTERS = 42  # of 12 points, in a line that fits beside a handle
_TALLER = 0.9  # inches that a plot grows in height for a legend inside


def add_legend(figure: plt.Figure) -> None:
    """Places the legend in a corner of a slightly taller plot where no curve crosses it, or else
    below the plot."""
    handles, labels = figure.axes[0].get_legend_handles_labels()
    if labels and not _legend_inside(figure, handles, labels):
        _legend_below(figure, handles, labels)


def _wrapped(label: str, letters: int) -> str:
    """A label in lines, cut at spaces and behind commas: a codec's parameters have no spaces."""
    wrapper = textwrap.TextWrapper(width=letters)
    wrapper.wordsep_re = re.compile(r"(\s+|(?<=,)(?=\S))")
    return "\n".join(wrapper.wrap(label))


def _legend_inside(figure: plt.Figure, handles: list, labels: list[str]) -> bool:
    """Whether there was room."""
    axes, height = figure.axes[0], figure.get_figheight()
    figure.set_figheight(height + _TALLER)
    wrapped = [_wrapped(label, 26) for label in labels]
    for corner in ("lower right", "upper left"):
        legend = axes.legend(handles, wrapped, loc=corner, labelspacing=0.35)
        legend.set_in_layout(False)  # or a large one would shrink the axes to nothing
        figure.draw_without_rendering()
        extent = legend.get_window_extent()
        legend.remove()
        is_inside = axes.bbox.contains(*extent.min) and axes.bbox.contains(*extent.max)
        if is_inside and not _is_crossed(axes, extent):
            axes.add_artist(legend)
            return True
    figure.set_figheight(height)
    return False


def _is_crossed(axes: Axes, extent: Bbox) -> bool:
    """Whether anything is drawn in this part of the figure."""
    paths = [line.get_transform().transform_path(line.get_path()) for line in axes.lines]
    for band in axes.collections:
        paths += [band.get_transform().transform_path(path) for path in band.get_paths()]
    things = [*axes.texts, *axes.patches]
    return any(path.intersects_bbox(extent, filled=False) for path in paths) or any(
        thing.get_window_extent().overlaps(extent) for thing in things
    )


def _legend_below(figure: plt.Figure, handles: list, labels: list[str]) -> None:
    """Places the legend below, in as many columns as fit; the figure grows by its height."""
    letters = int(_LETTERS * 12 / plt.rcParams["legend.fontsize"])
    wrapped = [_wrapped(label, letters) for label in labels]
    for columns in (3, 2, 1):
        trial = figure.legend(handles, wrapped, loc="lower left", ncols=columns)
        figure.draw_without_rendering()
        extent = trial.get_window_extent()
        trial.remove()
        if extent.x1 <= figure.bbox.x1:
            break
    figure.set_figheight(figure.get_figheight() + extent.height / figure.dpi)
    figure.legend(handles, wrapped, loc="outside lower left", ncols=columns)
