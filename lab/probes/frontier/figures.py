"""The plots: one point for each training, and the line of those that none beats."""

from collections.abc import Callable

from matplotlib import pyplot

from lab.figures.style import STYLE, look_of, to_svg
from lab.probes.frontier.best import frontier
from lab.probes.frontier.results import Row


def points(rows: list[Row], cost: Callable[[Row], float], label: str) -> str:
    """An SVG: loss against cost, on a logarithmic axis. Colours are methods; the number at a point
    is the length of its round."""
    methods = list(dict.fromkeys(row.name for row in rows))
    with pyplot.rc_context(STYLE):
        figure, axes = pyplot.subplots(figsize=(7, 6))
        for index, name in enumerate(methods):
            own = [row for row in rows if row.name == name]
            colour, marker = look_of(index)
            axes.plot(
                [cost(row) for row in own],
                [row.loss for row in own],
                linestyle="",
                color=colour,
                marker=marker,
                label=f"{own[0].method.words} {own[0].method.spec}",
            )
            for row in own:
                if not row.method.every_step:
                    at = (cost(row), row.loss)
                    offset = {"textcoords": "offset points", "xytext": (4, 4)}
                    axes.annotate(str(row.steps), at, fontsize=9, color=colour, **offset)
        best = frontier(rows, cost)
        x, y = [cost(row) for row in best], [row.loss for row in best]
        axes.step(x, y, where="post", color="#555555", linewidth=1, zorder=0)
        axes.set(xscale="log", xlabel=label, ylabel="held-out loss, nats a byte")
        figure.legend(loc="outside lower center", ncols=1, fontsize=9)
        return to_svg(figure)
