"""timeline(): the last step of all ranks as a Chrome trace, which Perfetto opens."""

import json
import os
import time
from pathlib import Path

import torch.distributed as dist

from deltawire import new_file
from deltawire.errors import make_error, wrong_state
from deltawire.session.base_session import BaseSession
from deltawire.session.history import BucketRecord


def timeline(hook: BaseSession, path: str | os.PathLike[str]) -> Path:
    """Writes a timeline of the last step: when each bucket was ready, encoded, exchanged and
    decoded on every rank. The trace-event format opens in https://ui.perfetto.dev and
    chrome://tracing.

    A collective on the ranks of the hook (`hook.group`), under that group's timeout: call it on all
    of them, between steps. Rank 0 writes the file. Each rank is a process of the trace, each bucket
    a thread with a slice from its gradients to its means; slices inside show its phases, gaps
    between them are time spent on other buckets. A `ShardedHook` shows the ranks with the same
    rows: give each such group a file of its own, f"step-{hook.replicas[0]}.json".

    Times are from the ranks' clocks (CLOCK_REALTIME): equal on one machine, and between machines as
    well synchronized as the clocks.

    Args:
        hook: from `register`, or a `LocalSteps` (shows its last exchange).
        path: the file, which is replaced atomically.

    Returns:
        The path.

    Raises:
        DeltawireError ("State"): a rank has finished no step yet; "Io": it can't be written. Both
            on every rank.
    """
    path = Path(path)
    # Both are monotonic_ns() of one moment, but for the time between the two calls.
    to_real = time.time_ns() - time.monotonic_ns()
    own = _events(hook.rank, hook._history.buckets, to_real)
    gathered: list = [None] * hook.world_size
    dist.all_gather_object(gathered, own, group=hook.group)
    for rank, events in enumerate(gathered):
        if not events:
            raise wrong_state(f"rank {rank} has finished no step yet; train one first")
    problem = [_write(path, gathered) if hook.rank == 0 else None]
    everybody: list = [None] * hook.world_size
    dist.all_gather_object(everybody, problem[0], group=hook.group)
    if everybody[0] is not None:
        raise make_error("Io", f"rank 0 can't write {path}: {everybody[0]}; give another path")
    return path


def _write(path: Path, gathered: list[list[dict]]) -> str | None:
    """Writes the file; returns what went wrong, or None."""
    events = [event for events in gathered for event in events]
    start = min(event["ts"] for event in events if event["ph"] != "M")
    for event in events:
        if event["ph"] != "M":
            event["ts"] -= start
    text = json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})
    try:
        new_file.replace(path, [text.encode()])
    except OSError as cause:
        return cause.strerror or type(cause).__name__
    return None


def _events(rank: int, buckets: tuple[BucketRecord, ...], to_real: int) -> list[dict]:
    """The trace events of one rank's step; `ts` and `dur` are in microseconds."""
    if not buckets:
        return []
    events = [_name("process_name", rank, 0, f"rank {rank}")]
    for index, bucket in enumerate(buckets):
        events.append(_name("thread_name", rank, index, f"bucket {index}"))
        report = bucket.report
        place = {"pid": rank, "tid": index, "cat": "deltawire"}
        ready = 1e-3 * (bucket.ready_ns + to_real)
        events.append({"name": "ready", "ph": "i", "s": "t", "ts": ready, **place})
        args = {
            "tensors": list(bucket.names),
            "elements": report.element_count,
            "bytes_sent": report.bytes_sent,
            "raw_bytes": report.raw_bytes,
        }
        for name, begin, end, more in [
            (f"bucket {index}", bucket.ready_ns, bucket.over_ns, {"args": args}),
            *((*span, {}) for span in report.spans),
        ]:
            times = {"ts": 1e-3 * (begin + to_real), "dur": 1e-3 * (end - begin)}
            events.append({"name": name, "ph": "X", **times, **place, **more})
    return events


def _name(kind: str, rank: int, thread: int, name: str) -> dict:
    return {"name": kind, "ph": "M", "pid": rank, "tid": thread, "args": {"name": name}}
