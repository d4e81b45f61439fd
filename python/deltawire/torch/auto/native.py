"""The process group's own all-reduce instead of an exchange."""

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

from deltawire import _core
from deltawire.torch.auto.measuring import Measuring

NATIVE = "native"


class NativeExchange:
    """Takes the place of a session while the process group's own all-reduce carries the gradients.
    It reaches other ranks only through a running measurement."""

    spec = NATIVE

    def __init__(self, measuring: Measuring) -> None:
        self.closed = False
        self._measuring = measuring

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
        """Ends the measurement; idempotent."""
        self.closed = True
        self._measuring.end()


def all_reduce(group: dist.ProcessGroup, bucket: dist.GradBucket) -> torch.futures.Future:
    """torch's own hook: the mean, in place. Always returns a Future, of the error if there is one:
    DDP doesn't survive an exception from a hook."""
    try:
        return default_hooks.allreduce_hook(group, bucket)
    except Exception as cause:
        failed = torch.futures.Future()
        failed.set_exception(cause)
        return failed
