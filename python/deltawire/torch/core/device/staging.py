"""The memory in which the core reads a bucket's values and writes its means: the bucket itself on
the CPU, a host copy for a GPU. DDP's and FSDP2's buckets are gradients, those of local steps
changes of weights.
"""

import contextlib
import os
import queue
import threading
import weakref
from collections.abc import Callable, Iterable

import torch

from deltawire.errors import invalid
from deltawire.torch.core.device.memory import until
from deltawire.torch.core.device.parts import DeviceParts, refuse_capture

_JOIN_SECONDS = 10.0
_GAP = 64  # bytes; buckets begin at multiples
_BUCKETS = 256  # whose gaps the block has room for


def is_forced() -> bool:
    """Whether DELTAWIRE_FORCE_STAGING, "on" or "off", sends CPU tensors the way of a GPU's, for
    tests."""
    setting = os.environ.get("DELTAWIRE_FORCE_STAGING") or "off"
    if setting not in ("on", "off"):
        raise invalid(f'DELTAWIRE_FORCE_STAGING="{setting}" is neither "on" nor "off"')
    return setting == "on"


def future_of(buffer: torch.Tensor) -> torch.futures.Future:
    """One that may hold a tensor on the buffer's device."""
    on_cpu = buffer.device.type == "cpu"
    return torch.futures.Future() if on_cpu else torch.futures.Future(devices=[buffer.device])


class Staging:
    """Gives the core the memory of buckets.

    A bucket on a GPU is copied to pinned memory, on a separate stream that waits for the device's
    current one. A thread waits for the copy and hands the bucket to the core; the means are copied
    back on the same stream, for which DDP's Future waits, and other callers by `follow`. All
    buckets of a step share one block of pinned memory,
    even after DDP has rebuilt them: as many bytes as the values, which torch rounds up to a power
    of two. Buckets of one step may be on several devices.

    Where the device codes its buckets itself, they are not copied: `load` only waits for the
    gradients.

    Thread rule: `load` belongs to the thread of backward or of the training loop, as do `follow`
    and `wait`; `store` to the session's thread that completes buckets, after the bucket's `load`;
    `close` to any.

    Args:
        timeout: seconds that a copy may take.
        host_bytes: size of all values of a step.
        rank: this one, whom the error of such a copy names.
        parts: codes buckets on their device; None: the CPU codes them.
        values: a word for a bucket's contents, for messages.
    """

    def __init__(
        self,
        timeout: float,
        host_bytes: int = 0,
        rank: int | None = None,
        parts: DeviceParts | None = None,
        values: str = "gradients",
    ) -> None:
        self._timeout = timeout
        self._parts = parts
        self._awaited = f"a bucket of {values} was not {'complete' if parts else 'on the host'}"
        self._rank = rank
        self._host_bytes = host_bytes
        self._block: torch.Tensor | None = None
        self._latest, self._next = -1, 0  # bucket's index, and where the next one's part begins
        self._forced = is_forced()
        self._hosts: dict[int, torch.Tensor] = {}  # by bucket
        self._places: dict[int, tuple] = {}  # of these: device of the bucket, address, shape, dtype
        self._streams: dict[torch.device, torch.cuda.Stream] = {}
        if parts is not None and parts.stream is not None:
            self._streams[parts.device] = parts.stream
        self._jobs: queue.SimpleQueue = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def stages(self, model: torch.nn.Module) -> bool:
        """Whether a model's buckets go through this memory."""
        return self._forced or next(model.parameters()).device.type != "cpu"

    def load(
        self,
        index: int,
        buffer: torch.Tensor,
        ready: Callable[[torch.Tensor], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """Calls ready(memory on the CPU with the bucket's values), in the order of calls: at once,
        or from a thread when they have been copied, or failed(what `ready` or the copy raised)
        there. What `ready` raises at once goes to the caller. Raises DeltawireError ("State") while
        a CUDA graph is being captured.

        Args:
            index: of the bucket.
            buffer: dense, of one dimension; a sparse one is handed on as it is.
        """
        refuse_capture(buffer.device)
        if index <= self._latest:  # another step; its first bucket may be one of the CPU
            self._next = 0
        self._latest = index
        event, host = None, buffer
        if self._parts is not None:
            event = self._parts.adopt(buffer)
        staged = self._is_staged(buffer)
        if event is None and not staged and self._thread is None:
            ready(buffer)
            return
        if staged and not buffer.is_sparse:
            host = self._host(index, buffer)
            event = self._copied(host, buffer)
        self._obtain_thread()
        self._jobs.put((event, lambda: ready(host), failed))

    def settle(self) -> None:
        """Waits until every loaded bucket has been handed on or has failed."""
        if self._thread is not None:
            settled = threading.Event()
            self._jobs.put((None, settled.set, lambda cause: None))
            settled.wait(self._timeout + _JOIN_SECONDS)

    def returning(self, buffer: torch.Tensor) -> contextlib.AbstractContextManager:
        """The stream on which means return to the buffer, as a context: DDP waits for them if its
        Future is completed within it."""
        if buffer.device.type == "cpu":
            return contextlib.nullcontext()
        return torch.cuda.stream(self._stream(buffer.device))

    def coded_on(self, buffer: torch.Tensor) -> torch.device:
        """Where a bucket is encoded."""
        return torch.device("cpu") if self._parts is None else buffer.device

    def aside(self, buffer: torch.Tensor) -> contextlib.AbstractContextManager:
        """A stream that waits for the current one, as a context: for values that the next `load`
        brings to the coder in addition to the bucket. It is the stream of copies; where the device
        codes it is the current one, as the coder's stream goes on with older buckets."""
        if self._parts is not None:
            return contextlib.nullcontext()
        if buffer.device.type != "cpu":
            stream = self._stream(buffer.device)
            stream.wait_stream(torch.cuda.current_stream(buffer.device))
        return self.returning(buffer)

    def lend(self, memory: torch.Tensor) -> None:
        """Lends a device that codes the values computed `aside`, until their `release`."""
        if self._parts is not None:
            self._parts.adopt(memory)

    def store(self, index: int, buffer: torch.Tensor) -> None:
        """Starts to copy a dense bucket's means back to the buffer, where they are unless it was
        copied."""
        if self._parts is not None:
            self._parts.check()
        elif self._is_staged(buffer):
            with self.returning(buffer):
                buffer.copy_(self._hosts[index], non_blocking=True)

    def follow(self) -> None:
        """Makes each device's current stream wait for the means that were stored."""
        for device, stream in self._streams.items():
            torch.cuda.current_stream(device).wait_stream(stream)

    def wait(self, devices: Iterable[torch.device]) -> None:
        """Waits until these devices have done all work in their current streams, so that a value
        may be read. Raises DeltawireError ("Timeout") like a copy."""
        for device in devices:
            if device.type != "cpu":
                event = torch.cuda.current_stream(device).record_event()
                until(event, self._timeout, self._rank, f"{device} was not done with its work")

    def release(self, buffer: torch.Tensor) -> None:
        """The core is done with a bucket, or never got it; or with what was lent."""
        if self._parts is not None:
            self._parts.forget(buffer)

    def close(self) -> None:
        """Ends the thread once its queue is empty; idempotent."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._jobs.put(None)
        if thread is not threading.current_thread():
            thread.join(_JOIN_SECONDS)

    def _is_staged(self, buffer: torch.Tensor) -> bool:
        if self._parts is not None:
            return False
        return self._forced or buffer.device.type != "cpu"

    def _host(self, index: int, buffer: torch.Tensor) -> torch.Tensor:
        """The bucket's part of the block. Means of the step before may still be on their way from
        there: on the stream of the same device, which the next copy comes after."""
        first = self._next
        end = first + buffer.numel() * buffer.element_size()
        if self._block is None or end > self._block.numel():  # sparse gradients weren't counted
            size = max(end, self._host_bytes + _GAP * (index + _BUCKETS))
            pinned = buffer.device.type == "cuda"
            self._block = torch.empty(size, dtype=torch.uint8, device="cpu", pin_memory=pinned)
        self._next = -(-end // _GAP) * _GAP
        host = self._block[first:end].view(buffer.dtype)
        place = buffer.device, host.data_ptr(), host.shape, host.dtype
        if self._places.get(index) != place:
            if len(self._streams) > 1:  # what lay there may be on its way to another device
                for stream in self._streams.values():
                    until(stream.record_event(), self._timeout, self._rank, self._awaited)
            self._places[index], self._hosts[index] = place, host
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
            self._thread = threading.Thread(
                target=_hand_on,
                args=(self._jobs, self._timeout, self._rank, self._awaited),
                name="deltawire-staging",
                daemon=True,
            )
            self._thread.start()
            weakref.finalize(self, self._jobs.put, None)


def _hand_on(jobs: queue.SimpleQueue, timeout: float, rank: int | None, awaited: str) -> None:
    """The thread of a `Staging`, until it finds None. Between jobs it refers to nothing: a dropped
    model takes its hook along, which ends the thread."""
    while (job := jobs.get()) is not None:
        event, ready, failed = job
        try:
            until(event, timeout, rank, awaited)
            ready()
        except Exception as cause:
            failed(cause)
        del job, event, ready, failed
