"""Labels beside points and along axes, none on another."""

import itertools
import math

from matplotlib.axes import Axes
from matplotlib.legend import Legend
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from matplotlib.transforms import Bbox

Label = tuple[float, float, str, str]  # x, y, text, colour

_MARKER = 5.0  # points from a marker's centre to its edge, as all distances here
_RADII = (13, 20, 28, 38, 50, 64, 80, 98, 118, 140)
_ANGLES = [math.pi / 12 * turn for turn in sorted(range(-11, 13), key=abs)]  # to the right first


def use_log_axis(axes: Axes) -> None:
    """Makes the x axis logarithmic, with few enough numbers. To be called after all is drawn."""
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    if high < 100 * low:  # too few powers of ten
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 20 * low else (1, 3)))
    if high < 1e5:
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def label_points(axes: Axes, labels: list[Label]) -> None:
    """Writes each text at the nearest place that covers no point, no label and no legend; a thin
    line leads to one further off, or nearer to another point. To be called last: what changes the
    layout moves the points."""
    figure = axes.get_figure(root=True)
    figure.draw_without_rendering()
    to_points = 72 / figure.dpi
    room = Bbox.from_extents(axes.bbox.x0, axes.bbox.y0, figure.bbox.x1, axes.bbox.y1)
    centres = [axes.transData.transform((x, y)) * to_points for x, y, *_ in labels]
    taken = [Bbox([centre - _MARKER, centre + _MARKER]) for centre in centres]
    taken += [_scaled(each.get_window_extent(), to_points) for each in figure.findobj(Legend)]
    for (x, y, text, colour), centre in zip(labels, centres, strict=True):
        style = {"color": colour, "fontweight": "bold", "ha": "center", "va": "center"}
        place = {"xycoords": "data", "textcoords": "offset points"}
        note = axes.annotate(text, (x, y), xytext=(0, 0), **place, **style)
        note.set_path_effects([withStroke(linewidth=2.5, foreground="white")])
        note.set_in_layout(False)
        offset, box = _place(
            centre, _scaled(note.get_window_extent(), to_points), taken, _scaled(room, to_points)
        )
        note.set_position(offset)
        taken.append(box)
        nearest = min(math.dist(centre + offset, other) for other in centres)
        if math.hypot(*offset) > min(_RADII[1], nearest + 1e-6):
            line = {"arrowstyle": "-", "color": colour, "linewidth": 0.7, "shrinkB": _MARKER}
            lead = axes.annotate("", (x, y), xytext=offset, **place, arrowprops=line, zorder=1)
            lead.set_in_layout(False)


def _scaled(box: Bbox, factor: float) -> Bbox:
    return Bbox(box.get_points() * factor)


def _place(
    centre: list[float], box: Bbox, taken: list[Bbox], room: Bbox
) -> tuple[tuple[float, float], Bbox]:
    """The nearest offset from the centre at which the box touches nothing, and the box there;
    without any, the first."""
    choices = []
    for radius, angle in itertools.product(_RADII, _ANGLES):
        offset = radius * math.cos(angle), radius * math.sin(angle)
        x, y = centre[0] + offset[0], centre[1] + offset[1]
        there = Bbox.from_bounds(x - box.width / 2, y - box.height / 2, box.width, box.height)
        choices.append((offset, there))
        inside = room.x0 <= there.x0 and there.x1 <= room.x1
        inside = inside and room.y0 <= there.y0 and there.y1 <= room.y1
        if inside and not any(there.overlaps(each) for each in taken):
            return choices[-1]
    return choices[0]
