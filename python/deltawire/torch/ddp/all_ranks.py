"""The states of all ranks as one, for checkpoints that only one rank writes."""

import torch.distributed as dist

from deltawire.torch.ddp.hook import Hook


class AllRanks:
    """A hook as an object with `state_dict` and `load_state_dict` whose state is that of all ranks:
    for trainers that write what rank 0 has (Accelerate, Lightning), as they ask all ranks for it::

        accelerator.register_for_checkpointing(deltawire.torch.AllRanks(hook))

    Every rank holds the residuals of all while the state is alive: the model's size for each. For
    torch.distributed.checkpoint, where each rank writes its own, give it the hook itself.

    Thread rule: as the hook's; both between steps.
    """

    def __init__(self, hook: Hook) -> None:
        self._hook = hook

    def state_dict(self) -> dict:
        """`ranks`: a list of `Hook.state_dict()` by rank. A collective on `hook.group`."""
        states: list = [None] * self._hook.world_size
        dist.all_gather_object(states, self._hook.state_dict(), group=self._hook.group)
        return {"ranks": states}

    def load_state_dict(self, state: dict) -> None:
        """Puts back what `state_dict` gave, the same on every rank; of other numbers of ranks, too.
        Raises as `Hook.load_state_dict` with a list."""
        self._hook.load_state_dict(state["ranks"])
