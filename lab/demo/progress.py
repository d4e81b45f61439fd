"""Progress of the demo: bars on a terminal, a line now and then elsewhere."""

import sys

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class BarProgress:
    """Bars for all trainings and for the current one, with accuracy, ms per step and time left."""

    def __init__(self, steps: int, count: int) -> None:
        self._steps = steps
        self._bars = Progress(
            TextColumn("{task.description:<14}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(compact=True),
            console=Console(stderr=True),
        )
        self._all = self._bars.add_task("all rows", total=count * steps, note="")
        self._row = self._bars.add_task("", total=steps, note="", visible=False)
        self._label = ""
        self._ended = 0
        self._accuracy = 0.0
        self._ms_per_step = 0.0

    def __enter__(self) -> "BarProgress":
        self._bars.start()
        return self

    def __exit__(self, *unused) -> None:
        self._bars.stop()

    def started(self, label: str) -> None:
        """A training begins."""
        self._label = label
        note = "starting the workers" if self._ended == 0 else "warming up"
        self._bars.reset(self._row, description=label, visible=True, note=note)

    def news(self, news: dict) -> None:
        """An event of rank 0: "step" or "point"."""
        self._accuracy = news.get("accuracy", self._accuracy)
        self._ms_per_step = news.get("ms_per_step", self._ms_per_step)
        note = f"accuracy {self._accuracy:.3f}  {self._ms_per_step:5.0f} ms/step"
        self._bars.update(self._row, completed=news["step"], note=note)
        self._bars.update(self._all, completed=self._ended * self._steps + news["step"])

    def ended(self, repeat: dict) -> None:
        """A training, done or failed."""
        self._ended += 1
        self._bars.update(self._all, completed=self._ended * self._steps)
        style = "red" if repeat["failed"] else None
        self._bars.console.print(_summary(self._label, repeat), style=style)


class LineProgress:
    """The same as plain lines, for logs."""

    def __init__(self, steps: int, count: int) -> None:
        self._steps = steps
        self._count = count
        self._label = ""
        self._number = 0
        self._ms_per_step = 0.0

    def __enter__(self) -> "LineProgress":
        return self

    def __exit__(self, *unused) -> None:
        pass

    def started(self, label: str) -> None:
        """A training begins."""
        self._number += 1
        self._label = label
        self._ms_per_step = 0.0
        self._say(f"{label}: starting")

    def news(self, news: dict) -> None:
        """An event of rank 0: "step" or "point"."""
        self._ms_per_step = news.get("ms_per_step", self._ms_per_step)
        if news["event"] == "point":
            self._say(
                f"{self._label}: step {news['step']}/{self._steps}, "
                f"accuracy {news['accuracy']:.3f}, {self._ms_per_step:.0f} ms/step"
            )

    def ended(self, repeat: dict) -> None:
        """A training, done or failed."""
        self._say(_summary(self._label, repeat))

    def _say(self, text: str) -> None:
        print(f"[{self._number}/{self._count}] {text}", file=sys.stderr, flush=True)


def make_progress(steps: int, count: int) -> BarProgress | LineProgress:
    """For `count` trainings of so many steps; bars where stderr is a terminal."""
    kind = BarProgress if sys.stderr.isatty() else LineProgress
    return kind(steps, count)


def _summary(label: str, repeat: dict) -> str:
    """One line on a training that has ended."""
    if repeat["failed"] is not None:
        return f"{label}: failed: {repeat['failed']}"
    return (
        f"{label}: accuracy {repeat['accuracy']:.4f}, {repeat['ms_per_step']:.1f} ms/step, "
        f"{repeat['wire_mb_per_rank']:.1f} MB sent per rank"
    )
