"""The two plots: held-out loss against rounds, and against bytes."""

from pathlib import Path

from matplotlib import pyplot

from lab.figures.style import STYLE, look_of, to_svg
from lab.probes.local_rounds.methods import METHODS


def draw_curves(rows: list[dict], folder: Path) -> None:
    """Writes loss-rounds.svg and loss-bytes.svg, with the first seed of each method."""
    seed = rows[0]["seed"]
    first = [row for row in rows if row["seed"] == seed]
    for column, name, label in ((0, "loss-rounds", "rounds"), (1, "loss-bytes", "bytes a worker")):
        with pyplot.rc_context(STYLE):
            figure, axes = pyplot.subplots(figsize=(8, 5))
            for index, row in enumerate(first):
                colour, marker = look_of(index)
                x, loss = zip(*[(point[column], point[2]) for point in row["curve"]], strict=True)
                text = f"{METHODS[row['method']].words}, {row['spec']}"
                axes.plot(x, loss, color=colour, marker=marker, markersize=4, label=text)
            axes.set(xlabel=label, ylabel="held-out loss, nats a byte")
            if column:
                axes.set_xscale("log")
            axes.legend(fontsize=8)
            (folder / f"{name}.svg").write_text(to_svg(figure))
