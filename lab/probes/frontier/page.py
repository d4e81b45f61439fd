"""The page, from the rows alone."""

import functools
from collections.abc import Callable
from pathlib import Path

from matplotlib import pyplot

from lab.command.markdown import table, wrapped
from lab.figures.labels import label_points, use_log_axis
from lab.figures.legend import add_legend
from lab.figures.style import STYLE, WIDTH, look_of, to_svg
from lab.probes.frontier.results import Measured, Row, cheapest, frontier
from lab.probes.frontier.times import Line, Times
from lab.probes.local_rounds.methods import COMPARED, METHODS, STREAMING

_PLOT_HEIGHT = 5.5  # inches: many points have nearly the same cost
_TARGETS = (0.01, 0.03, 0.05, 0.1, 0.2)  # above the lowest loss of all
_WANTED = (*COMPARED, "ddp-3lc", "local-3lc", "muloco")
_TITLE = "# Results: the frontier of loss, bytes and time"
_PARAGRAPHS = (
    """Which way to train is best on a thin link: every step exchanged (DDP), or rounds of local
    steps, with which codec and how many steps a round? All rows of a table have seen the same
    tokens: a transformer predicts the next byte of WikiText-2, 4 workers, as in [methods of local
    steps](training/local-steps.md#methods-of-local-steps-at-half-a-million-parameters), with real
    codecs, residuals and bytes. The loss is that of held-out text, in nats a byte. The inner
    optimizer is AdamW; in rows with Muon and of MuLoCo it is Muon, so that their losses compare
    optimizers, too.""",
    """**Losses and bytes are measured; times are computed** by [the planner's
    model](../guides/planner.md#the-model) from the time of a step and the bits of messages, over a
    link that carries as much in both directions at the same time. DDP exchanges buckets while
    backward continues, and in fp32 by the native all-reduce. A round's exchange begins after its
    steps, so that training waits for all of it; Streaming DiLoCo waits only for what its 5 steps of
    overlap don't hide. Encoding and decoding are left out: with most codecs they take less than a
    nanosecond a value ([speed](speed.md)).""",
    """This page is made by `python -m lab.probes.frontier` from the files in
    `docs/results/frontier/`, whose rows `lab.probes.local_rounds` trained:""",
)
_WHOLE = ("diloco", "streaming-fp4")  # what the parts are compared with
_STREAMING = """What the parts of Streaming DiLoCo cost: fragments, the overlap of tau steps,
    what is kept of a worker's own weights where a result is applied (alpha; "on top": all that
    it has moved since), and `fp4`. kB are what a worker sends in one exchange, measured; "hides
    it" is the rate at which that takes exactly the steps of overlap, without latency; stalled
    are the steps that could be computed while training waits, in each round, computed as the
    times above."""
_COMMANDS = """\
    python -m lab.probes.local_rounds --rounds 300 --steps 5 --every 30 --methods ...
    python -m lab.probes.local_rounds --rounds 100 --steps 15 --every 10 --methods ...
    python -m lab.probes.local_rounds --rounds 30 --steps 50 --every 3 --methods ...
    python -m lab.probes.local_rounds --parameters 22m --batch 2 --bf16 --pretraining 800 \\
        --lr 0.00025 --every 25 --methods ...
    python -m lab.probes.frontier --add out/local-rounds/rows.json --step-ms 18 --step-words ..."""


class Page:
    """Writes frontier.md and its plots.

    Args:
        sizes: what was measured.
        lines: the links.
    """

    def __init__(self, sizes: list[Measured], lines: list[Line]) -> None:
        self._sizes, self._lines = sizes, lines
        self._plots: dict[str, str] = {}

    def write(self, path: Path) -> None:
        """The page at `path`, plots in the folder of its name next to it."""
        blocks = [_TITLE, *map(wrapped, _PARAGRAPHS), _COMMANDS]
        for size in self._sizes:
            for total, rows in size.of_equal_tokens().items():
                ordered = sorted(rows, key=lambda row: (list(METHODS).index(row.name), row.steps))
                blocks += self._section(size, total, ordered, path.stem)
        folder = path.with_suffix("")
        folder.mkdir(parents=True, exist_ok=True)
        for name, svg in self._plots.items():
            (folder / name).write_text(svg)
        path.write_text("\n\n".join(blocks) + "\n")

    def _section(self, size: Measured, total: int, given: list[Row], folder: str) -> list[str]:
        times = Times(size.size, size.step_seconds)
        rows = [row for row in given if not _is_part(row)]
        words = f"{size.parameters / 1e6:.1f} million parameters, {total:,} steps"
        lines = [f"{line.mbit:g} Mbit/s" for line in self._lines]
        costs: dict[str, _Cost] = {"bytes": lambda row, done, sent: sent}
        for name, line in zip(lines, self._lines, strict=True):
            costs[name] = functools.partial(_seconds, times, line)
        latency = f"{self._lines[0].latency_ms:g} ms one way"
        about = (
            f"A worker's step takes {1e3 * size.step_seconds:.3g} ms ({size.step_words}); latency "
            f"{latency}. {_seeds(rows)} In bold: no other row has a lower loss at that cost."
        )
        blocks = [f"## {words}", wrapped(about + _missing(rows)), _table(rows, costs)]
        blocks += [wrapped(_what_is_best(rows, costs)), _targets_table(rows, costs)]
        for name, cost in costs.items():
            file = f"{size.size}-{total}-{name.partition(' ')[0]}.svg"
            label = "bytes a worker" if name == "bytes" else f"seconds at {name}, computed"
            self._plots[file] = points(rows, functools.partial(_whole, cost), label)
            blocks.append(f"![loss against {label}]({folder}/{file})")
        if parts := streaming_table(given, times, self._lines):
            blocks += [f"### Streaming DiLoCo, {total:,} steps", wrapped(_STREAMING), parts]
        return blocks


_Cost = Callable[[Row, int, float], float]


def _seconds(times: Times, line: Line, row: Row, done: int, _: float) -> float:
    return times.after(row, done, line)


def _whole(cost: _Cost, row: Row) -> float:
    return cost(row, row.rounds, row.bytes)


def _seeds(rows: list[Row]) -> str:
    counts = {len(row.losses) for row in rows}
    if counts == {1}:
        return "One seed."
    return "Losses are medians of seeds, with each seed's in brackets."


def _missing(rows: list[Row]) -> str:
    """The methods that belong in the comparison and were not trained so long."""
    there = {row.name for row in rows}
    words = [f"{METHODS[n].words} `{METHODS[n].spec}`" for n in _WANTED if n not in there]
    return f" Not run: {', '.join(words)}." if words else ""


def _table(rows: list[Row], costs: dict[str, _Cost]) -> str:
    best = {name: frontier(rows, functools.partial(_whole, cost)) for name, cost in costs.items()}
    heads = ["MB a worker" if name == "bytes" else name for name in costs]
    lines = []
    for row in rows:
        steps = "-" if row.method.every_step else str(row.steps)
        seeds = ", ".join(f"{loss:.3f}" for loss in row.losses)
        loss = f"{row.loss:.3f} ({seeds})" if len(row.losses) > 1 else seeds
        cells = [row.method.words, f"`{row.method.spec}`", steps, loss]
        for name, cost in costs.items():
            text = _shown(name, _whole(cost, row))
            cells.append(f"**{text}**" if row in best[name] else text)
        lines.append(cells)
    return table(("method", "codec", "steps a round", "loss", *heads), lines, left=2)


def _targets_table(rows: list[Row], costs: dict[str, _Cost]) -> str:
    lowest = min(row.loss for row in rows)
    heads = ["fewest MB" if name == "bytes" else f"fastest at {name}" for name in costs]
    lines = []
    for share in _TARGETS:
        cells = [f"{lowest * (1 + share):.3f} (lowest + {share:.0%})"]
        for name, cost in costs.items():
            found = cheapest(rows, lowest * (1 + share), cost)
            cells.append(f"{found[0].words}: {_shown(name, found[1])}" if found else "-")
        lines.append(cells)
    return table(("to a loss of", *heads), lines)


def _what_is_best(rows: list[Row], costs: dict[str, _Cost]) -> str:
    """From the fastest to the lowest loss, for each link."""
    sentences = []
    for name, cost in costs.items():
        if name == "bytes":
            continue
        best = frontier(rows, functools.partial(_whole, cost))
        chain = "; ".join(
            f"{row.words} ({row.loss:.3f} in {_shown(name, _whole(cost, row))})" for row in best
        )
        sentences.append(f"**At {name}**, from the fastest to the lowest loss: {chain}.")
    return " ".join(sentences)


def _shown(name: str, value: float) -> str:
    if name == "bytes":
        return f"{value / 1e6:,.2f}" if value < 100e6 else f"{value / 1e6:,.0f}"
    if value < 100:
        return f"{value:.1f} s"
    return f"{value / 60:.1f} min" if value < 6000 else f"{value / 3600:.1f} h"


def _is_part(row: Row) -> bool:
    """Whether a row belongs in this table alone."""
    return row.name in STREAMING


def streaming_table(rows: list[Row], times: Times, lines: list[Line]) -> str | None:
    """Markdown; None without any of the parts."""
    if not any(map(_is_part, rows)):
        return None
    shown = [row for row in rows if _is_part(row) or row.name in _WHOLE]
    against = next((row.loss for row in shown if row.name == "diloco"), None)
    rates = [f"stalled at {line.mbit:g} Mbit/s" for line in lines]
    head = ("method", "codec", "steps a round", "loss", "to DiLoCo", "kB at once", "hides it")
    made: list[list[str]] = []
    for row in shown:
        at_once = row.bytes / (row.rounds * row.method.fragments)
        hides = times.hiding_mbit(row, at_once)
        cells = [
            row.method.words,
            f"`{row.method.spec}`",
            str(row.steps),
            f"{row.loss:.3f}",
            "-" if against is None else f"{100 * (row.loss / against - 1):+.1f} %",
            f"{at_once / 1e3:,.0f}",
            "-" if hides is None else f"{hides:.3g} Mbit/s",
            *(f"{times.stalled_steps(row, line):.1f}" for line in lines),
        ]
        made.append(cells)
    return table((*head, *rates), made, left=2)


def points(rows: list[Row], cost: Callable[[Row], float], label: str) -> str:
    """An SVG: loss against cost, on a logarithmic axis. Colours and markers are methods; the number
    at a point is its row's in the legend."""
    methods = list(dict.fromkeys(row.name for row in rows))
    with pyplot.rc_context(STYLE | {"legend.fontsize": 10}):
        figure, axes = pyplot.subplots(figsize=(WIDTH, _PLOT_HEIGHT))
        labels = []
        for number, row in enumerate(rows, 1):
            colour, marker = look_of(methods.index(row.name))
            at, name = (cost(row), row.loss), f"{number} {row.words}"
            axes.plot(*at, linestyle="", color=colour, marker=marker, label=name)
            labels.append((*at, str(number), colour))
        best = frontier(rows, cost)
        x, y = [cost(row) for row in best], [row.loss for row in best]
        axes.step(x, y, where="post", color="#555555", linewidth=1, zorder=0)
        axes.set(xlabel=label, ylabel="held-out loss, nats a byte")
        use_log_axis(axes)
        add_legend(figure)
        label_points(axes, labels)
        return to_svg(figure)
