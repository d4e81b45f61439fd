"""The backward pass under way: whether there is one, and what is called at its end."""

from collections.abc import Callable

import torch
from torch.autograd import Variable


def after_backward(call: Callable[[], None]) -> None:
    """Calls `call` at the end of the backward pass under way, after earlier callbacks."""
    Variable._execution_engine.queue_callback(call)


def in_backward() -> bool:
    """Whether this thread runs a backward pass. DDP's join() calls hooks outside of one."""
    return torch._C._current_graph_task_id() != -1
