"""A paper's page, made from its declaration and its results alone."""

import dataclasses
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lab.command import markdown
from lab.command.markdown import wrapped
from lab.papers.declaration import Number, Paper, Plot, Reason, Scale, Table
from lab.papers.results import Results


def _reach(epochs: list[list[float]], loss: float, column: int) -> float | None:
    """A column of the first of some epochs whose loss is at most `loss`."""
    return next((epoch[column] for epoch in epochs if epoch[1] <= loss), None)


def _lowest(epochs: list[list[float]]) -> float:
    return min(epoch[1] for epoch in epochs)


def _time_over(base: list[list[float]], value: list[list[float]]) -> float | None:
    both = max(_lowest(base), _lowest(value))
    ours, theirs = _reach(value, both, 0), _reach(base, both, 0)
    return None if ours is None or not theirs else ours / theirs


# How a number follows from the metric of its base and of its run. Epochs are [seconds, loss, MB].
_HOW: dict[str, Callable[[Any, Any], float | None]] = {
    "value": lambda _, value: value,
    "base/value": lambda base, value: base / value if value else None,
    "value/base": lambda base, value: value / base if base else None,
    "value-base": lambda base, value: value - base,
    "time over base's": _time_over,
    "seconds to base's loss": lambda base, value: _reach(value, 1.01 * _lowest(base), 0),
    "MB to base's loss": lambda base, value: _reach(value, 1.01 * _lowest(base), 2),
}


@dataclasses.dataclass
class Verdict:
    """Of a table: how many of the paper's numbers are reached, near, and not.

    Attributes:
        shown: numbers of the paper, with or without a direction that is better.
        count: those with a direction, which are judged.
        absent: those of them that have no number of ours.
        explained, open: how far off the others are, by the label of their row: those with a reason
            that runs show, and those without.
    """

    shown: int = 0
    count: int = 0
    reached: int = 0
    near: int = 0
    absent: int = 0
    explained: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    open: dict[str, list[str]] = dataclasses.field(default_factory=dict)

    def add(
        self, number: Number, values: list[float], label: str, head: str, reason: Reason | None
    ) -> None:
        """Counts a number of the paper and ours, of each seed, in the column `head`."""
        self.shown += 1
        if number.better is None:
            return
        self.count += 1
        if not values:
            self.absent += 1
        elif is_reached(number, values):
            self.reached += 1
        elif is_near(number, values):
            self.near += 1
        else:
            missed = self.open if reason is None else self.explained
            missed.setdefault(label, []).append(f"{head} {_distance(number, values)}")

    def counts(self) -> tuple[int, ...]:
        """All that are judged; then the reached, near, explained, open, and absent ones."""
        missed = (sum(map(len, each.values())) for each in (self.explained, self.open))
        return (self.count, self.reached, self.near, *missed, self.absent)

    def in_words(self) -> str:
        """A paragraph."""
        if self.count == 0 and self.shown > 0:
            return "No verdict: the scales differ too much."
        if self.count == 0:
            return "The paper has no numbers for these cells in its text, so there is no verdict."
        text = f"**Verdict**: {self.reached} of {self.count} numbers are reached, "
        text += f"{self.near} are near."
        if self.explained:
            text += f" Missed, and runs show why: {_in_rows(self.explained)}."
        if self.open:
            text += f" **Open**, as no run shows why: {_in_rows(self.open)}."
        return text + (f" Without a number of ours: {self.absent}." if self.absent else "")


def _runs_in_words(reason: Reason) -> str:
    cells: dict[tuple[str, str], list[str]] = {}
    for table, cell, scale in reason.runs:
        cells.setdefault((table, scale), []).append(f"*{cell}*")
    parts = (f"{', '.join(of)} of table `{n}` at `{scale}`" for (n, scale), of in cells.items())
    return f"Runs: {'; '.join(parts)}"


def _in_rows(missed: dict[str, list[str]]) -> str:
    return "; ".join(f"{label}: {', '.join(parts)}" for label, parts in missed.items())


def is_reached(number: Number, values: list[float]) -> bool:
    """Whether the median is at least as good as the paper's number, or that is inside the
    spread."""
    assert number.paper is not None
    median = statistics.median(values)
    better = median >= number.paper if number.better == "higher" else median <= number.paper
    return better or min(values) <= number.paper <= max(values)


def is_near(number: Number, values: list[float]) -> bool:
    """Whether the median is no further from the paper's number than what counts as near."""
    assert number.paper is not None
    off = abs(statistics.median(values) - number.paper)
    return off <= number.near * (1 if number.how == "value-base" else abs(number.paper))


def _distance(number: Number, values: list[float]) -> str:
    median, paper = statistics.median(values), number.paper
    assert paper is not None
    if number.how == "value-base" or median <= 0 or paper <= 0:
        return f"off by {median - paper:+.3g}"
    times, way = max(median / paper, paper / median), "lower" if median < paper else "higher"
    return f"{times:.3g} times {way}" if times < 100 else f"{times:,.0f} times {way}"


class Page:
    """The Markdown and the figures of a paper.

    Attributes:
        paper: its declaration.
    """

    def __init__(self, paper: Paper, results: Results) -> None:
        self.paper, self._results = paper, results
        self._scales = self._chosen_scales()

    def write(self, folder: Path) -> Path:
        """Writes NAME.md and NAME-PLOT.svg; returns the page's path."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, svg in self.figures().items():
            (folder / name).write_text(svg)
        path = folder / f"{self.paper.name}.md"
        path.write_text(self.text())
        return path

    def text(self) -> str:
        """The Markdown."""
        paper = self.paper
        blocks = [
            f"# {paper.title}",
            wrapped(
                f"{paper.source} This page is made by `python -m lab.papers page {paper.name}` "
                f"from `{paper.name}.json`, which is next to it and which `python -m lab.papers "
                f"{paper.name}` wrote ([how to run it, and how to read it](../papers.md)). "
                f"{self._where()}"
            ),
        ]
        for table in paper.tables:
            blocks += [f"## {table.title}"]
            blocks += self._section(table) if self.is_run(table) else ["Not run yet."]
        if paper.left_out:
            blocks += ["## Left out", markdown.table(("of the paper", "why"), paper.left_out, 2)]
        return "\n\n".join(blocks) + "\n"

    def figures(self) -> dict[str, str]:
        """File names and SVG texts of the plots that have curves."""
        from lab.papers.figures import lines  # matplotlib is slow to import

        found = {}
        for table in self.paper.tables:
            for plot in table.plots:
                series = self._series(plot)
                if series:
                    found[self._file(plot)] = lines(
                        plot.title, (plot.x, plot.y), series, plot.log_x
                    )
        return found

    def _where(self) -> str:
        entries = self._results.all()
        if not entries:
            return ""
        loads = statistics.median(entry["load"] for entry in entries)
        return (
            f"Machine: {self._results.machine}, with a median load average of {loads:.1f}. Where "
            "that is above the number of processes of a run, other programs took part of the "
            "machine, and times say little."
        )

    def _section(self, table: Table) -> Iterator[str]:
        yield wrapped(f"**Here** {self._scales_in_words(table)}. {table.differs}")
        if table.rows:
            yield self._table(table)
        if table.rows and not table.ours:
            yield wrapped(self.verdict(table).in_words())
        for reason in table.because:
            if not self.lacks(reason):
                yield wrapped(f"{reason.words} ({_runs_in_words(reason)}.)")
        for plot in table.plots:
            if self._series(plot):
                yield f"![{plot.title}: {plot.y} against {plot.x}]({self._file(plot)})"

    def _scales_in_words(self, table: Table) -> str:
        """Each scale with its numbers of seeds and its settings."""
        kinds = {run.key: run.kind for run in self.paper.runs}
        words: dict[str, dict[str, None]] = {}  # by scale, of kinds in the order of their runs
        for key in table.run_keys():
            if self._seeds(key):
                scale = self._scales[key]
                about = self.paper.kinds[kinds[key]].words(scale.settings[kinds[key]])
                words.setdefault(scale.name, {})[about] = None
        counts = self.scales(table)
        return "; ".join(
            f"(`{name}`, {seeds_in_words(counts[name])}): {'; '.join(own)}"
            for name, own in words.items()
        )

    def _table(self, table: Table) -> str:
        rows = (
            [label, *("" if n is None else self._cell(n) for n in numbers)]
            for label, numbers in table.rows
        )
        return markdown.table(table.head, rows)

    def _cell(self, number: Number) -> str:
        values = self.values(number)
        ours = "-"
        if values:
            ours = number.form.format(statistics.median(values))
            if len(values) > 1:
                low, high = (number.form.format(each) for each in (min(values), max(values)))
                ours += f" ({low} to {high})"
        return ours if number.paper is None else f"{number.form.format(number.paper)}; {ours}"

    def values(self, number: Number) -> list[float]:
        """Ours, for each seed that has all runs at one scale, in ascending order."""
        scale, found = self._scales.get(number.run), []
        for seed in self._seeds(number.run):
            value = self._metric(number.run, number.metric, seed, scale)
            base = None
            if number.base is not None:
                base = self._metric(number.base, number.metric, seed, scale)
            if value is not None and (number.base is None or base is not None):
                found.append(_HOW[number.how](base, value))
        return sorted(each for each in found if each is not None)

    def _seeds(self, key: tuple[str, str]) -> list[int]:
        scale = self._scales.get(key)
        return [] if scale is None else self._results.seeds(key, scale.name)

    def _metric(self, key: tuple[str, str], metric: str, seed: int, scale: Scale | None) -> Any:
        entry = None if scale is None else self._results.of(key, seed, scale.name)
        return None if entry is None else entry["metrics"].get(metric)

    def verdict(self, table: Table) -> Verdict:
        """How ours compare with the numbers that the paper's text has of a table."""
        found, known = Verdict(), [each for each in table.because if not self.lacks(each)]
        for label, numbers in table.rows:
            for head, number in zip(table.head[1:], numbers, strict=True):
                if number is not None and number.paper is not None:
                    at = (each for each in known if label in each.rows and head in each.heads)
                    found.add(number, self.values(number), label, head, next(at, None))
        return found

    def lacks(self, reason: Reason) -> list[tuple[str, str, str]]:
        """The runs of a reason that were not made."""
        return [run for run in reason.runs if not self._results.seeds(run[:2], run[2])]

    def is_run(self, table: Table) -> bool:
        """Whether any run of a table was made."""
        return any(self._seeds(key) for key in table.run_keys())

    def scales(self, table: Table) -> dict[str, set[int]]:
        """The numbers of seeds of a table's runs, by the name of their scale."""
        counts: dict[str, set[int]] = {}
        for key in table.run_keys():
            if seeds := self._seeds(key):
                counts.setdefault(self._scales[key].name, set()).add(len(seeds))
        return counts

    def _chosen_scales(self) -> dict[tuple[str, str], Scale]:
        """Of each run that its page shows: the scale with the most of its table's runs of its kind,
        the largest of several. So one network of a table may be further than the others."""
        alike: dict[tuple[str, str], list[tuple[str, str]]] = {}
        for run in self.paper.runs:
            alike.setdefault((run.table, run.kind), []).append(run.key)
        chosen = {}
        for keys in alike.values():
            counts = [
                sum(bool(self._results.seeds(key, scale.name)) for key in keys)
                for scale in self.paper.scales
            ]
            if most := max(counts):
                last = len(counts) - 1 - counts[::-1].index(most)
                chosen.update(dict.fromkeys(keys, self.paper.scales[last]))
        return chosen

    def _series(self, plot: Plot) -> dict[str, tuple[list[float], list[float]]]:
        series = {}
        for curve in plot.curves:
            if seeds := self._seeds(curve.run):
                scale = self._scales[curve.run]
                points = self._metric(curve.run, curve.metric, seeds[0], scale)
                if points:
                    series[curve.label] = ([p[0] for p in points], [p[1] for p in points])
        return series

    def _file(self, plot: Plot) -> str:
        return f"{self.paper.name}-{plot.name}.svg"


def seeds_in_words(counts: set[int]) -> str:
    """Numbers of seeds as "one seed" or "2 to 3 seeds"."""
    seeds = " to ".join(map(str, sorted({min(counts), max(counts)})))
    return "one seed" if seeds == "1" else f"{seeds} seeds"
