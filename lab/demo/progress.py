"""Progress of the demo on standard error: a line for each news, on a terminal in its place."""

import sys
import time


class Progress:
    """What is trained, with accuracy, milliseconds a step and the time left.

    Args:
        steps: of a training.
        count: of all trainings.
    """

    def __init__(self, steps: int, count: int) -> None:
        self._steps, self._count = steps, count
        self._live = sys.stderr.isatty()
        self._began = time.monotonic()
        self._label, self._number = "", 0
        self._accuracy = self._ms_per_step = 0.0

    def started(self, label: str) -> None:
        """A training begins."""
        self._number += 1
        self._label, self._ms_per_step = label, 0.0
        self._say("starting", stays=not self._live)

    def news(self, news: dict) -> None:
        """An event of rank 0: "step" or "point"."""
        self._accuracy = news.get("accuracy", self._accuracy)
        self._ms_per_step = news.get("ms_per_step", self._ms_per_step)
        if self._live or news["event"] == "point":
            done = (self._number - 1 + news["step"] / self._steps) / self._count
            left = (time.monotonic() - self._began) * (1 / done - 1) / 60 if done else 0.0
            self._say(
                f"step {news['step']}/{self._steps}, accuracy {self._accuracy:.3f}, "
                f"{self._ms_per_step:.0f} ms/step, about {left:.0f} min left",
                stays=not self._live,
            )

    def ended(self, repeat: dict) -> None:
        """A training, done or failed."""
        if repeat["failed"] is not None:
            self._say(f"failed: {repeat['failed']}")
            return
        self._say(
            f"accuracy {repeat['accuracy']:.4f}, {repeat['ms_per_step']:.1f} ms/step, "
            f"{repeat['wire_mb_per_rank']:.1f} MB sent per rank"
        )

    def _say(self, text: str, stays: bool = True) -> None:
        text = f"[{self._number}/{self._count}] {self._label}: {text}"
        if self._live:
            text = f"\r\x1b[K{text}"
        print(text, end="\n" if stays else "", file=sys.stderr, flush=True)
