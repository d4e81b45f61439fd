"""The process group's own all-reduce in the hook of `register(model, "auto")`."""

import queue
import threading
import weakref

import torch
import torch.distributed as dist

from deltawire import _core
from deltawire.torch.auto.measuring import Measuring
from deltawire.torch.core.device.staging import future_of

NATIVE = "native"
HALVED = "native(bf16)"  # of float32 values that travel, and are added up, as bfloat16


class NativeExchange:
    """Takes the place of a session while the process group's own all-reduce carries the gradients.
    It reaches other ranks only through a running measurement.

    A thread waits for each all-reduce and completes its Future. torch's own hook does that by a
    callback on a thread of Gloo's, which holds up the next bucket's bytes for as long as another
    thread holds the GIL. On a device a stream of the thread's own waits, not the one of backward.

    Thread rule: `all_reduce` belongs to the backward pass; all else as `Participant`.

    Args:
        measuring: this rank's.
        group: the model's process group.
    """

    spec = NATIVE

    def __init__(self, measuring: Measuring, group: dist.ProcessGroup) -> None:
        self.closed = False
        self._measuring = measuring
        self._group = group
        self._begun: queue.SimpleQueue | None = None
        self._stream: torch.cuda.Stream | None = None

    def all_reduce(
        self, bucket: dist.GradBucket, halved: bool = False
    ) -> torch.futures.Future[torch.Tensor]:
        """A Future of the bucket's mean over all ranks, in place, or of the error: DDP doesn't
        survive an exception from a hook. The group's timeout bounds the wait. `halved`: see
        `HALVED`."""
        gradients = bucket.buffer()
        exchanged = future_of(gradients)
        try:
            gradients.div_(self._group.size())
            sent = gradients.bfloat16() if halved else gradients
            work = dist.all_reduce(sent, group=self._group, async_op=True)
        except Exception as cause:
            exchanged.set_exception(cause)
            return exchanged
        if self._begun is None:
            self._begun = queue.SimpleQueue()
            name = "deltawire native"
            if gradients.device.type == "cuda":
                self._stream = torch.cuda.Stream(gradients.device)
            args = self._begun, self._stream
            threading.Thread(target=_complete, args=args, name=name, daemon=True).start()
            weakref.finalize(self, self._begun.put, None)  # ends it where a model is dropped
        if halved and self._stream is not None:
            sent.record_stream(self._stream)
        self._begun.put((work, sent, gradients, exchanged))
        return exchanged

    def traffic(self) -> tuple[int, int]:
        """Bytes sent and received: deltawire sends none."""
        return 0, 0

    def memory(self) -> _core.Memory:
        """All zeros: deltawire holds none."""
        return _core.Memory()

    def abort(self, reason: str) -> None:
        """Fails a measurement under way on every rank."""
        self._measuring.abort(reason)

    def close(self) -> None:
        """Ends the measurement, and the thread after the buckets under way; idempotent. A later
        all-reduce starts another thread."""
        self.closed = True
        self._measuring.end()
        begun, self._begun = self._begun, None
        if begun is not None:
            begun.put(None)


def _complete(begun: queue.SimpleQueue, stream: torch.cuda.Stream | None) -> None:
    """Waits for all-reduces in their order, and completes their Futures. On a device `stream`
    waits, and then whoever takes a result."""
    with torch.cuda.stream(stream):
        while (each := begun.get()) is not None:
            work, sent, gradients, exchanged = each
            try:
                work.wait()
                if sent is not gradients:
                    gradients.copy_(sent)
            except Exception as cause:
                exchanged.set_exception(cause)
            else:
                exchanged.set_result(gradients)
            del each, work, sent, gradients, exchanged  # or they would live until the next bucket
