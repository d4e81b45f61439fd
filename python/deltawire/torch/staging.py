"""Where a bucket lies while the core reads its gradients and writes its means: in place where that
is the CPU's memory, in a copy on the host where it is a GPU's. The one place that knows devices.
"""

import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable

import torch

from deltawire.errors import make_error

_POLL_SECONDS = 1e-4
_JOIN_SECONDS = 10.0


class Staging:
    """The memory of a hook's buckets, as the core sees it.

    A bucket on a GPU is copied to pinned memory on a stream of its own, once its gradients are
    there, while backward goes on. A thread waits for the copy and hands the bucket to the core; the
    means are copied back on the same stream, which DDP's Future waits for. Each bucket keeps its
    memory on the host: as many bytes as its gradients have.

    `DELTAWIRE_FORCE_STAGING=1` in the environment makes CPU tensors take the same way, for tests.

    Thread rule: `load` belongs to the thread of backward, `store` to the communication thread,
    after the bucket's `load`; `close` to any.

    Args:
        timeout: seconds that a copy may take.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._forced = os.environ.get("DELTAWIRE_FORCE_STAGING", "0") not in ("", "0")
        self._hosts: dict[int, torch.Tensor] = {}  # by bucket
        self._streams: dict[torch.device, torch.cuda.Stream] = {}
        self._jobs: queue.SimpleQueue = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def future(self, buffer: torch.Tensor) -> torch.futures.Future:
        """One that may hold a tensor on the buffer's device."""
        on_cpu = buffer.device.type == "cpu"
        return torch.futures.Future() if on_cpu else torch.futures.Future(devices=[buffer.device])

    def load(
        self,
        index: int,
        buffer: torch.Tensor,
        ready: Callable[[torch.Tensor], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """Calls ready(memory on the CPU with the bucket's gradients), in the order of calls: at
        once, or from a thread when they have been copied, or failed(what `ready` or the copy
        raised) there. What `ready` raises at once goes to the caller.

        Args:
            index: of the bucket.
            buffer: dense, of one dimension; a sparse one is handed on as it is.
        """
        if not self._is_staged(buffer):
            ready(buffer)
            return
        event, host = None, buffer
        if not buffer.is_sparse:
            host = self._host(index, buffer)
            event = self._copied(host, buffer)
        self._obtain_thread()
        self._jobs.put((event, lambda: ready(host), failed))

    def in_turn(self, ready: Callable[[], None], failed: Callable[[Exception], None]) -> None:
        """Calls `ready` after all that was loaded before, as `load` does; from any thread, after
        the last `load` of a step."""
        if self._thread is None:
            ready()
        else:
            self._jobs.put((None, ready, failed))

    def settle(self) -> None:
        """Waits until all that was loaded has been handed on, or has failed."""
        if self._thread is not None:
            settled = threading.Event()
            self.in_turn(settled.set, lambda cause: None)
            settled.wait(self._timeout + _JOIN_SECONDS)

    def returning(self, buffer: torch.Tensor) -> contextlib.AbstractContextManager:
        """Of the stream on which means go back to a buffer: a Future that is completed within lets
        DDP wait for them."""
        if buffer.device.type == "cpu":
            return contextlib.nullcontext()
        return torch.cuda.stream(self._stream(buffer.device))

    def store(self, index: int, buffer: torch.Tensor) -> None:
        """Sends a dense bucket's means back to the buffer."""
        if self._is_staged(buffer):
            buffer.copy_(self._hosts[index], non_blocking=True)

    def close(self) -> None:
        """Ends the thread after what it has been given; idempotent."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._jobs.put(None)
        if thread is not threading.current_thread():
            thread.join(_JOIN_SECONDS)

    def _is_staged(self, buffer: torch.Tensor) -> bool:
        return self._forced or buffer.device.type != "cpu"

    def _host(self, index: int, buffer: torch.Tensor) -> torch.Tensor:
        host = self._hosts.get(index)
        if host is None or host.numel() != buffer.numel() or host.dtype != buffer.dtype:
            pinned = buffer.device.type == "cuda"
            host = torch.empty(buffer.numel(), dtype=buffer.dtype, pin_memory=pinned)
            self._hosts[index] = host
        return host

    def _copied(self, host: torch.Tensor, buffer: torch.Tensor) -> torch.cuda.Event | None:
        """Starts the copy; what says that it is over, None where it is."""
        if buffer.device.type == "cpu":
            host.copy_(buffer)
            return None
        stream = self._stream(buffer.device)
        stream.wait_stream(torch.cuda.current_stream(buffer.device))  # the gradients' kernels
        with torch.cuda.stream(stream):
            host.copy_(buffer, non_blocking=True)
            event = torch.cuda.Event()
            event.record(stream)
        buffer.record_stream(stream)
        return event

    def _stream(self, device: torch.device) -> torch.cuda.Stream:
        if device not in self._streams:  # by one thread at a time: `load` comes first
            self._streams[device] = torch.cuda.Stream(device)
        return self._streams[device]

    def _obtain_thread(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="deltawire-staging", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            event, ready, failed = job
            try:
                self._await(event)
                ready()
            except Exception as cause:
                failed(cause)

    def _await(self, event: torch.cuda.Event | None) -> None:
        deadline = time.monotonic() + self._timeout
        while event is not None and not event.query():
            if time.monotonic() > deadline:
                raise make_error(
                    "Timeout",
                    f"a bucket of gradients was not on the host after {self._timeout:g} s: the GPU "
                    "is busy with something else, or hangs",
                )
            time.sleep(_POLL_SECONDS)
