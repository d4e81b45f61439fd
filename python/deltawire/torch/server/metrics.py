"""What a rank of a parameter server has done, as its metrics() say."""

from typing import Any

from deltawire import _core
from deltawire.torch.server.drops import Drops
from deltawire.torch.server.worker import ServedWorker

_BYTES_AN_ELEMENT = 4


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
    """See `ParameterServer.metrics`; `elements`: of the model."""
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
