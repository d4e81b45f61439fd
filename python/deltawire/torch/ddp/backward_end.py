"""How a backward pass ends: typed, where a step of it has failed.

What fails in DDP's Future comes from backward() as torch's own RuntimeError, whose text is a
Python traceback: C++ keeps no more of it. What a callback of autograd raises comes as it is. So
the Futures of a step that is exchanged in a backward pass end well, and a callback after DDP's own
raises.
"""

from collections.abc import Callable

import torch
from torch.autograd import Variable

from deltawire.torch.ddp.under_way import UnderWay


def after_backward(call: Callable[[], None]) -> None:
    """Within a backward pass: has `call` called at its end, after what was asked for before."""
    Variable._execution_engine.queue_callback(call)


def in_backward() -> bool:
    """Whether this thread is in one; DDP's join() calls hooks outside."""
    return torch._C._current_graph_task_id() != -1


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
