"""Checkpoints of trainers that write rank 0's state alone."""

import torch.distributed as dist

from deltawire.errors import invalid
from deltawire.torch.ddp.hook import Hook
from deltawire.torch.participant import Participant


class AllRanks:
    """A hook whose `state_dict` and `load_state_dict` handle the states of all ranks: for trainers
    that write only rank 0's state, but ask every rank for it (Accelerate, Lightning)::

        accelerator.register_for_checkpointing(deltawire.torch.AllRanks(hook))

    While the state is alive every rank holds the residuals of all, each of the model's size. For
    torch.distributed.checkpoint, where each rank writes its own, pass the hook itself.

    The states travel through the process group, which is not encrypted.

    Thread rule: as for the hook; both calls between steps.
    """

    def __init__(self, hook: Hook) -> None:
        """Raises InvalidArgumentError for what is no hook, and for one with
        encryption="required"."""
        if not isinstance(hook, Participant):
            raise invalid(
                f"AllRanks takes the hook that register returned, not {type(hook).__name__}"
            )
        if hook.encryption == "required":
            raise invalid(
                'AllRanks and encryption="required" don\'t go together: it sends the residuals of '
                "all ranks through PyTorch's process group, which is not encrypted; let each rank "
                "save hook.state_dict() itself (torch.distributed.checkpoint does)"
            )
        self._hook = hook

    def state_dict(self) -> dict:
        """`ranks`: a list of `Hook.state_dict()` by rank. A collective on `hook.group`."""
        states: list = [None] * self._hook.world_size
        dist.all_gather_object(states, self._hook.state_dict(), group=self._hook.group)
        return {"ranks": states}

    def load_state_dict(self, state: dict) -> None:
        """Restores what `state_dict` returned, the same on every rank, also after a change of the
        number of ranks. Raises like `Hook.load_state_dict` with a list."""
        if not isinstance(state, dict) or not isinstance(state.get("ranks"), list):
            raise invalid("the state is not of all ranks; load what AllRanks.state_dict() gave")
        self._hook.load_state_dict(state["ranks"])
