"""The backward pass under way: whether there is one, its end, and an end that comes too soon."""

from collections.abc import Callable

import torch
from torch.autograd import Variable

from deltawire.errors import DeltawireError, make_error


def after_backward(call: Callable[[], None]) -> None:
    """Calls `call` at the end of the backward pass under way, after earlier callbacks."""
    Variable._execution_engine.queue_callback(call)


def in_backward() -> bool:
    """Whether this thread runs a backward pass. DDP's join() calls hooks outside of one."""
    return torch._C._current_graph_task_id() != -1


def cut_short(rank: int, step: int, who: str | None = None) -> DeltawireError:
    """Of a backward pass of this rank that has ended in the middle of a step. `who`: the rank's
    name, by default "rank 3"."""
    return make_error(
        "State",
        f"the backward pass of {who or f'rank {rank}'} ended in the middle of step {step}: an "
        "exception cut it short, or parameters got no gradient (DDP allows that with "
        "find_unused_parameters=True); save hook.state_dict(), which has the steps before, and "
        "register a new model",
        rank,
    )
