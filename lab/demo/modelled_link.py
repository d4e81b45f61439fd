"""DDP's own all-reduce over a modelled link: deltawire can't slow down gloo's sockets.

(No `from __future__ import annotations` here: DDP inspects the hook's signature and refuses
annotations that are strings.)"""

import queue
import threading
import time

import torch
import torch.distributed as dist

from lab.ranks.links import ring_bytes


class ModelledLink:
    """A communication hook that runs the native all-reduce and completes it no earlier than the
    link would.

    Buckets share the link in order: each starts once it is ready and the one before has finished,
    and takes ring_bytes / bytes_per_second seconds at least. Without a rate it only measures the
    time.

    Thread rule: DDP calls `native_hook` from the thread of backward; `take_exchange_ms` and `close`
    belong to the training loop."""

    def __init__(self, world_size: int, bytes_per_second: float | None) -> None:
        self._world_size = world_size
        self._rate = bytes_per_second
        self._free_at = 0.0  # when the buckets so far have left the link
        self._busy_until = 0.0  # when the last one was complete
        self._busy_seconds = 0.0
        self._queue: queue.SimpleQueue = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="modelled-link", daemon=True)
        self._thread.start()

    def native_hook(
        self, state: object, bucket: dist.GradBucket
    ) -> torch.futures.Future[torch.Tensor]:
        """DDP's communication hook: the mean of the bucket over all ranks, in place."""
        buffer = bucket.buffer().div_(self._world_size)
        started = time.monotonic()
        due = started
        if self._rate is not None:
            tensor_bytes = buffer.numel() * buffer.element_size()
            due = (
                max(started, self._free_at)
                + ring_bytes(tensor_bytes, self._world_size) / self._rate
            )
            self._free_at = due
        work = dist.all_reduce(buffer, async_op=True)
        complete = torch.futures.Future()
        self._queue.put((work, started, due, complete))

        def check(future):
            error = future.value()
            if error is not None:
                raise RuntimeError(f"all-reduce failed: {error}")
            return buffer

        return complete.then(check)

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            work, started, due, complete = item
            error = None
            try:
                work.wait()
            except Exception as cause:  # noqa: BLE001
                error = str(cause)  # the training loop must hear of it through the Future
            while error is None and (left := due - time.monotonic()) > 0:
                time.sleep(left)
            now = time.monotonic()
            self._busy_seconds += now - max(started, self._busy_until)
            self._busy_until = now
            complete.set_result(error)

    def take_exchange_ms(self) -> float:
        """Milliseconds since the last call during which a bucket was in flight."""
        taken, self._busy_seconds = self._busy_seconds, 0.0
        return 1e3 * taken

    def close(self) -> None:
        """Ends the thread once all exchanges are complete."""
        self._queue.put(None)
        self._thread.join()
