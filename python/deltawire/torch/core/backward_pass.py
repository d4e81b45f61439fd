"""The backward pass under way: whether there is one, and what is called at its end."""

from collections.abc import Callable

import torch
from torch.autograd import Variable


def after_backward(call: Callable[[], None]) -> None:
    """Within a backward pass: has `call` called at its end, after what was asked for before."""
    Variable._execution_engine.queue_callback(call)


def in_backward() -> bool:
    """Whether this thread is in one; DDP's join() calls hooks outside."""
    return torch._C._current_graph_task_id() != -1
