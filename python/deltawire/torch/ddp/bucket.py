"""Buckets of gradients that are being exchanged, and the Futures that DDP waits for."""

import torch
import torch.distributed as dist

from deltawire.torch.core.backward_pass import after_backward, in_backward
from deltawire.torch.core.device.staging import Staging, future_of
from deltawire.torch.ddp.sparse_gradient import SparseGradient


class PendingBucket:
    """A bucket from DDP's call of the hook until its Future completes. Each property of DDP's
    bucket is read only once, because every call into it releases the GIL.

    Attributes:
        index, last: its place in the step.
        parameters: the parameters whose gradients it holds.
        buffer: DDP's memory, kept alive until the exchange is over.
        exchanged: a Future that always gets a tensor: the mean, if the exchange succeeds.
        sparse: the gradient, if it is sparse.
        error: why there is no mean.
        raises: whether the Future that DDP waits for raises the error; see `BackwardEnd`.
    """

    def __init__(self, staging: Staging, bucket: dist.GradBucket) -> None:
        self.index, self.last = bucket.index(), bucket.is_last()
        self.parameters = bucket.parameters()
        self.buffer = bucket.buffer()
        self.exchanged = future_of(self.buffer)
        self.sparse: SparseGradient | None = None
        self._staging = staging
        self._mean = self.buffer
        self.error: BaseException | None = None
        self.raises = True

    def store(self) -> None:
        """Moves the mean, which the core has computed, to where DDP expects it."""
        with self._staging.returning(self.buffer):
            if self.sparse is not None:
                self._mean = self.sparse.mean()
            else:
                self._staging.store(self.index, self.buffer)

    def end(self, error: BaseException | None) -> None:
        """Completes the Future, after `store` or with an error. Later calls do nothing."""
        if self.exchanged.done():
            return
        self.error = error
        self._staging.release(self.buffer)
        with self._staging.returning(self.buffer):
            self.exchanged.set_result(self._mean)

    def mean(self, exchanged: torch.futures.Future) -> torch.Tensor:
        """The result of the Future, for DDP. Raises the error if `raises` is set; otherwise a
        failed bucket keeps its gradients."""
        if self.error is not None and self.raises:
            raise self.error
        return exchanged.value()


class BackwardEnd:
    """Raises the typed error of a failed bucket at the end of the backward pass.

    An error in DDP's Future leaves backward() as torch's own RuntimeError, whose text is a Python
    traceback: C++ keeps no more of it. An exception in a callback of autograd comes out as it is.
    So Futures of a step that is exchanged in a backward pass complete without error, and a callback
    after DDP's own raises.

    Thread rule: the thread of backward.

    Attributes:
        looks_first: raise before DDP's own last collective (find_unused_parameters), which a failed
            rank may never join. It costs the overlap of DDP's copies with the last exchange, and is
            off where DDP has no such collective.
    """

    def __init__(self) -> None:
        self.looks_first = True
        self._buckets: list[PendingBucket] = []

    def add(self, bucket: PendingBucket) -> None:
        """Registers a bucket before its exchange begins, and sets its `raises`: outside a backward
        pass only the Future can report a failure."""
        within = in_backward()
        bucket.raises = self.looks_first or not within
        if bucket.index == 0:
            self._buckets = []
        self._buckets.append(bucket)
        if bucket.last and within:
            after_backward(self._before_ddp)

    def _before_ddp(self) -> None:
        if self.looks_first:
            self._raise_failed()
        else:
            after_backward(self._raise_failed)

    def _raise_failed(self) -> None:
        buckets, self._buckets = self._buckets, []
        for each in reversed(buckets):  # when it is over, the others mostly are
            if not each.exchanged.done():
                each.exchanged.wait()  # it ends by the exchange's deadline, and never raises
        for each in buckets:
            if each.error is not None:
                raise each.error
