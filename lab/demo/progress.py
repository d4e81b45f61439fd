"""What the user sees while the demo works: bars on a terminal, a line now and then elsewhere."""

import sys

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from lab.demo.settings import Settings


class BarProgress:
    """Bars for all rows and for the one under way, with accuracy, ms per step and time to go."""

    def __init__(self, settings: Settings, row_count: int) -> None:
        self._steps = settings.steps
        self._bars = Progress(
            TextColumn("{task.description:<14}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(compact=True),
            console=Console(stderr=True),
        )
        self._all = self._bars.add_task("all rows", total=row_count * settings.steps, note="")
        self._row = self._bars.add_task("", total=settings.steps, note="", visible=False)
        self._ended_rows = 0
        self._accuracy = 0.0
        self._ms_per_step = 0.0

    def __enter__(self) -> "BarProgress":
        self._bars.start()
        return self

    def __exit__(self, *unused) -> None:
        self._bars.stop()

    def row_started(self, label: str) -> None:
        """A row begins."""
        note = "starting the workers" if self._ended_rows == 0 else "warming up"
        self._bars.reset(self._row, description=label, visible=True, note=note)

    def news(self, news: dict) -> None:
        """An event of rank 0: "step" or "point"."""
        self._accuracy = news.get("accuracy", self._accuracy)
        self._ms_per_step = news.get("ms_per_step", self._ms_per_step)
        note = f"accuracy {self._accuracy:.3f}  {self._ms_per_step:5.0f} ms/step"
        self._bars.update(self._row, completed=news["step"], note=note)
        self._bars.update(self._all, completed=self._ended_rows * self._steps + news["step"])

    def row_ended(self, row: dict) -> None:
        """A row of results.json, ready or failed."""
        self._ended_rows += 1
        self._bars.update(self._all, completed=self._ended_rows * self._steps)
        self._bars.console.print(summary_of(row), style="red" if row["failed"] else None)


class LineProgress:
    """The same as plain lines, for logs."""

    def __init__(self, settings: Settings, row_count: int) -> None:
        self._steps = settings.steps
        self._row_count = row_count
        self._label = ""
        self._ended_rows = 0
        self._ms_per_step = 0.0

    def __enter__(self) -> "LineProgress":
        return self

    def __exit__(self, *unused) -> None:
        pass

    def row_started(self, label: str) -> None:
        """A row begins."""
        self._label = label
        self._ms_per_step = 0.0
        _say(f"[{self._ended_rows + 1}/{self._row_count}] {label}: starting")

    def news(self, news: dict) -> None:
        """An event of rank 0: "step" or "point"."""
        self._ms_per_step = news.get("ms_per_step", self._ms_per_step)
        if news["event"] == "point":
            _say(
                f"[{self._ended_rows + 1}/{self._row_count}] {self._label}: step {news['step']}/"
                f"{self._steps}, accuracy {news['accuracy']:.3f}, {self._ms_per_step:.0f} ms/step"
            )

    def row_ended(self, row: dict) -> None:
        """A row of results.json, ready or failed."""
        self._ended_rows += 1
        _say(f"[{self._ended_rows}/{self._row_count}] {summary_of(row)}")


def make_progress(settings: Settings, row_count: int) -> BarProgress | LineProgress:
    """Bars where stderr is a terminal."""
    kind = BarProgress if sys.stderr.isatty() else LineProgress
    return kind(settings, row_count)


def summary_of(row: dict) -> str:
    """One line on a row that has ended."""
    label = row["detail"]["label"]
    if row["failed"] is not None:
        return f"{label}: failed: {row['failed']}"
    return (
        f"{label}: accuracy {row['accuracy']:.4f}, {row['ms_per_step']:.1f} ms/step, "
        f"{row['wire_mb_per_rank']:.1f} MB sent per rank"
    )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
