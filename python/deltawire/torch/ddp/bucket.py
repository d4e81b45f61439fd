"""A bucket of gradients on its way, and the Future that DDP has of it."""

import torch
import torch.distributed as dist

from deltawire.torch.core.backward_pass import after_backward, in_backward
from deltawire.torch.ddp.sparse_gradient import SparseGradient
from deltawire.torch.ddp.staging import Staging


class UnderWay:
    """A bucket between DDP's call and its Future's end. DDP's bucket is asked once for each of
    these: every answer lets go of Python's lock.

    Attributes:
        index, last: its place in the step.
        parameters: whose gradients it has.
        buffer: DDP's memory, kept until the exchange is over.
        exchanged: a Future that gets a tensor, whatever has happened: the mean, where it went well.
        sparse: the gradient, where it is sparse.
        error: why there is no mean.
        raises: the Future that DDP has tells of it; see `BackwardEnd`.
    """

    def __init__(self, staging: Staging, bucket: dist.GradBucket) -> None:
        self.index, self.last = bucket.index(), bucket.is_last()
        self.parameters, self.buffer = bucket.parameters(), bucket.buffer()
        self.exchanged = staging.future(self.buffer)
        self.sparse: SparseGradient | None = None
        self._staging = staging
        self._mean = self.buffer
        self.error: BaseException | None = None
        self.raises = True

    def store(self) -> None:
        """Brings the mean, which the core has formed, to where DDP expects it."""
        with self._staging.returning(self.buffer):
            if self.sparse is not None:
                self._mean = self.sparse.mean()
            else:
                self._staging.store(self.index, self.buffer)

    def end(self, error: BaseException | None) -> None:
        """Completes the Future, after `store` or with the error; once."""
        if self.exchanged.done():
            return
        self.error = error
        with self._staging.returning(self.buffer):
            self.exchanged.set_result(self._mean)

    def mean(self, exchanged: torch.futures.Future) -> torch.Tensor:
        """Of the Future, for DDP; where that has to tell of the error, raises it. Otherwise a
        bucket that has failed is what it was."""
        if self.error is not None and self.raises:
            raise self.error
        return exchanged.value()


class BackwardEnd:
    """The buckets of a DDP model's step, until its backward pass is over.

    Thread rule: the thread of backward.

    Attributes:
        looks_first: DDP ends a pass with a collective of its own, which a failed rank may never
            join (find_unused_parameters): what has failed is raised before. It costs the overlap of
            DDP's copies with the last exchange, and so isn't done where there is none.
    """

    def __init__(self) -> None:
        self.looks_first = True
        self._buckets: list[UnderWay] = []

    def add(self, bucket: UnderWay) -> None:
        """Before its exchange begins. Sets `raises`: whether its Future has to tell of a failure,
        because nobody else can."""
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
        for each in reversed(buckets):  # with the last one the others are mostly over
            if not each.exchanged.done():
                each.exchanged.wait()  # it ends by the exchange's deadline, and never raises
        for each in buckets:
            if each.error is not None:
                raise each.error
