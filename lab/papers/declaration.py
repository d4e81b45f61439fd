"""What a paper's experiments are declared with: runs, the tables that show them, and scales.

A run measures one cell of a table or one curve of a figure, for one seed at one scale. A table
shows numbers that are computed from runs, next to the paper's.
"""

import dataclasses
import importlib
from collections.abc import Callable, Mapping
from typing import Any

Settings = Mapping[str, Any]
Metrics = dict[str, Any]  # what a run returns; JSON


@dataclasses.dataclass(frozen=True)
class Scale:
    """How much of the paper's experiments is run.

    Attributes:
        name: of the option and in results.
        settings: what runs of each kind read, by the kind's name.
    """

    name: str
    settings: Mapping[str, Settings]


@dataclasses.dataclass(frozen=True)
class Kind:
    """A way to measure, which many runs share.

    Attributes:
        measure: (the scale's settings of this kind, the run's settings, seed) to metrics.
        words: the scale's settings of this kind in words, for the page.
    """

    measure: Callable[[Settings, Settings, int], Metrics]
    words: Callable[[Settings], str]


def measured_by(module: str) -> Callable[[Settings, Settings, int], Metrics]:
    """`measure` of a module, which is imported when it is first called: PyTorch is slow to
    import."""

    def measure(scale: Settings, cell: Settings, seed: int) -> Metrics:
        return importlib.import_module(module).measure(scale, cell, seed)

    return measure


@dataclasses.dataclass(frozen=True)
class Run:
    """One measurement, for any seed and scale.

    Attributes:
        table: whose cell it is, e.g. "1"; other tables may show it, too.
        cell: its name, unique in the table.
        kind: in `Paper.kinds`.
        settings: in which it differs from other runs of the kind.
    """

    table: str
    cell: str
    kind: str
    settings: Settings

    @property
    def key(self) -> tuple[str, str]:
        """(table, cell)"""
        return self.table, self.cell


@dataclasses.dataclass(frozen=True)
class Number:
    """A cell: the paper's number, and how ours follows from runs.

    Attributes:
        run: the key of the run.
        metric: of the run.
        paper: the paper's number; None if it has none (or only in a plot).
        base: the key of the run that `how` compares with, of the same seed.
        how: "value"; "base/value" and "value/base", the quotients; "value-base"; or, of epochs,
            "time over base's" to the loss that both reach, "seconds to base's loss" and "MB to
            base's loss", within 1 %.
        better: "higher" or "lower"; None: there is no verdict.
        near: how far off counts as near: a share of the paper's number, or with "value-base" an
            absolute difference.
        form: a format of one number.
    """

    run: tuple[str, str]
    metric: str
    paper: float | None = None
    base: tuple[str, str] | None = None
    how: str = "value"
    better: str | None = None
    near: float = 0.1
    form: str = "{:.3g}"


@dataclasses.dataclass(frozen=True)
class Curve:
    """A curve of a plot: a metric that is a list of [x, y, ...], of the lowest seed that has
    it."""

    label: str
    run: tuple[str, str]
    metric: str = "curve"


@dataclasses.dataclass(frozen=True)
class Plot:
    """A figure."""

    name: str
    title: str
    x: str
    y: str
    curves: tuple[Curve, ...]
    log_x: bool = False


@dataclasses.dataclass(frozen=True)
class Reason:
    """Why numbers of a table are missed, as runs show.

    Attributes:
        rows, heads: labels of rows and heads of columns: of the numbers where they cross.
        words: what the runs show.
        runs: (table, cell, scale) of each; without them in the results the numbers are open.
    """

    rows: tuple[str, ...]
    heads: tuple[str, ...]
    words: str
    runs: tuple[tuple[str, str, str], ...]


@dataclasses.dataclass(frozen=True)
class Table:
    """A table or figure of the paper, or of runs of our own that show why we miss its numbers.

    Attributes:
        number: as options name it, e.g. "1" or "fig6".
        title: of the section.
        head: of the columns; the first is that of the labels.
        rows: a label and the cells; None where a cell has nothing.
        differs: how our setup differs from the paper's, beyond the scale's words.
        because: why numbers are not reached; those without a reason are open.
        plots: drawn below.
        ours: whether no paper has this table.
    """

    number: str
    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Number | None, ...]], ...]
    differs: str
    because: tuple[Reason, ...] = ()
    plots: tuple[Plot, ...] = ()
    ours: bool = False

    def run_keys(self) -> list[tuple[str, str]]:
        """The keys of all runs that it needs, each once, in order."""
        numbers = [number for _, row in self.rows for number in row if number is not None]
        keys = [key for number in numbers for key in (number.base, number.run) if key is not None]
        keys += [curve.run for plot in self.plots for curve in plot.curves]
        return list(dict.fromkeys(keys))


@dataclasses.dataclass(frozen=True)
class Paper:
    """All that is run again of a paper.

    Attributes:
        name: of the command.
        title, source: of the page.
        scales: from the smallest, of seconds, which tests use; the second is the default.
        left_out: tables, figures, networks or data of the paper that are not here, and why.
    """

    name: str
    title: str
    source: str
    scales: tuple[Scale, ...]
    kinds: Mapping[str, Kind]
    runs: tuple[Run, ...]
    tables: tuple[Table, ...]
    left_out: tuple[tuple[str, str], ...] = ()

    def chosen(self, numbers: list[str] | None) -> list[Run]:
        """The runs that these tables need (None: all tables), in the order of declaration."""
        tables = [table for table in self.tables if numbers is None or table.number in numbers]
        needed = {key for table in tables for key in table.run_keys()}
        return [run for run in self.runs if run.key in needed]
