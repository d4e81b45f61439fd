"""The metrics of a ParameterServer's ranks."""

import logging
from typing import Any

from deltawire import _core
from deltawire.torch.server.worker import ServedWorker

logger = logging.getLogger("deltawire")

_BYTES_AN_ELEMENT = 4


class Drops:
    """The workers that a server has dropped. Each drop is logged once (logger "deltawire",
    WARNING).

    Attributes:
        all: in order, the worker's `rank`, the server's `step` from which it is missing, `time` (as
            from time.time()), `code` and `why`.
    """

    def __init__(self, rank: int, workers: int) -> None:
        self.all: list[dict[str, Any]] = []
        self._rank = rank
        self._workers = workers

    def tell(self, server: _core.ParameterServer) -> None:
        """Logs new drops after a step. For the thread that makes the steps."""
        for each in server.dropped[len(self.all) :]:
            names = ("rank", "step", "time", "code", "why")
            self.all.append({name: getattr(each, name) for name in names})
            logger.warning(
                "rank %d: worker rank %d is dropped in step %d, and what waited there to be sent "
                "is lost; %d of %d workers go on: %s",
                self._rank,
                each.rank,
                each.step,
                self._workers - len(self.all),
                self._workers,
                each.why,
            )


def of_server(
    server: _core.ParameterServer, drops: Drops, link: _core.Connection
) -> dict[str, Any]:
    """See `ParameterServer.metrics`."""
    counts = server.counts
    return {
        "step": server.steps,
        **_counted(counts, link),
        "encodes": counts.encodes,
        "encodes_per_step": counts.encodes / counts.steps if counts.steps else None,
        "dropped": list(drops.all),
    }


def of_worker(worker: ServedWorker, elements: int, link: _core.Connection) -> dict[str, Any]:
    """See `ParameterServer.metrics`; `elements` is the model's number of elements."""
    counts = worker.core.counts
    raw = _BYTES_AN_ELEMENT * elements * counts.steps
    pulled = counts.pull_bytes - worker.model_bytes
    return {
        "step": worker.steps,
        **_counted(counts, link),
        "push_ratio": raw / counts.push_bytes if raw and counts.push_bytes else None,
        "pull_ratio": raw / pulled if raw and pulled else None,
        "skipped_steps": counts.skipped_steps,
        "push_ms": 1e3 * worker.push_seconds,
        "wait_ms": 1e3 * worker.wait_seconds,
    }


def _counted(counts: _core.ServerCounts, link: _core.Connection) -> dict[str, Any]:
    sent, received = link.traffic()
    return {
        "steps": counts.steps,
        "push_bytes": counts.push_bytes,
        "pull_bytes": counts.pull_bytes,
        "late_pushes": counts.late_pushes,
        "traffic_bytes_sent": sent,
        "traffic_bytes_received": received,
    }
