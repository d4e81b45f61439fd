"""The demo's worker processes, one for each rank: what they do, and how they are used."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

from lab.demo.methods import Method
from lab.demo.settings import Settings
from lab.ranks.launcher import Launcher, RanksFailed
from lab.ranks.namespaces import Namespaces
from lab.ranks.rank import Line, Place, process_group

_START_SECONDS = 120.0  # importing PyTorch on a busy machine
_CAUSE_SECONDS = 0.5  # to find the rank that ended and so made others fail


class Workers(Launcher):
    """Starts one worker for each rank and gives them rows; starts them again after a failure."""

    def __init__(self, settings: Settings, namespaces: Namespaces | None) -> None:
        super().__init__(work, settings.ranks, namespaces)
        self._settings = settings

    def run_row(self, method: Method, seed: int, on_news: Callable[[dict], None]) -> list[dict]:
        """Every rank's report of one training. `on_news` gets rank 0's events.

        Raises:
            RanksFailed: the row failed or hangs, or a worker ended.
        """
        try:
            if not self.running:
                self.start(self._settings)
                self._collect("ready", _START_SECONDS, on_news)
            settings = dataclasses.replace(self._settings, seed=seed)
            self.send((method, settings))
            done = self._collect("done", 2 * self._settings.timeout + 10, on_news)
            return [news["report"] for news in done]
        except RanksFailed:
            self.stop()
            raise

    def _collect(self, awaited: str, silence: float, on_news: Callable[[dict], None]) -> list[dict]:
        """One `awaited` event of every rank, in rank order; at most `silence` seconds without any
        event."""
        found: dict[int, dict] = {}
        while len(found) < self._settings.ranks:
            rank, news = self.receive(silence)
            if news["event"] == awaited:
                found[rank] = news
            elif news["event"] == "failed":
                # A rank that ended is the cause; the others only lost it.
                raise RanksFailed(self.first_end(_CAUSE_SECONDS) or news["error"])
            else:
                on_news(news)
        return [found[rank] for rank in sorted(found)]


def work(place: Place, line: Line, settings: Settings) -> None:
    """Sends "ready", and answers each (method, settings with the seed) with "done" and a report, or
    with "failed" and one line. It never returns: the process ends when the launcher's line closes.
    """
    # Here: the controlling process, which imports this file, does without PyTorch.
    from lab.data.batches import Batches
    from lab.demo.training import Resources, RowFailed, run_row
    from lab.models.evaluate import Evaluator

    images = settings.workload.load_images(Path(settings.data))
    evaluator = Evaluator(images, place.rank, place.ranks)

    def tell(news: dict) -> None:
        if place.rank == 0:
            line.send(news)

    with process_group(place, settings.timeout):
        line.send({"event": "ready"})
        while True:
            method, own = line.receive()
            batches = Batches(
                images, seed=own.seed, batch=own.batch, place=(place.rank, place.ranks)
            )
            resources = Resources(own, batches, evaluator, place.address)
            try:
                line.send({"event": "done", "report": run_row(resources, method, tell)})
            except (RowFailed, RuntimeError, ValueError, TypeError) as cause:
                line.send({"event": "failed", "error": " ".join(str(cause).split())})
