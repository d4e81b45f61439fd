"""A worker of the demo: one rank, for all rows."""

from pathlib import Path

from lab.demo.settings import Settings
from lab.ranks.rank import Line, Place, process_group


def run(place: Place, line: Line, settings: Settings) -> None:
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
