"""carrier="group": a torch process group moves the bytes of messages."""

import contextlib
import datetime
import logging
from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist

from deltawire.session.leaving import problem_of
from deltawire.torch.core import arguments

logger = logging.getLogger("deltawire")


class GroupCarrier:
    """What `_core.Mesh.set_carrier` takes. It sends through groups of its own, of the backend that
    `group` has: DDP's collectives are on the model's group at the same time, in no common order.

    There are two, for messages to higher and to lower ranks: NCCL makes the calls of a pair of
    ranks one after the other, and both might first send.

    A collective: made on all ranks of the group. Thread rule: for each peer one thread sends and
    one receives, all at the same time.
    """

    def __init__(
        self, group: dist.ProcessGroup, near: torch.device | None, limit: datetime.timedelta
    ) -> None:
        """`near`: the model's device; `limit`: what the backend allows a call."""
        self._ranks = dist.get_process_group_ranks(group)
        self._rank = dist.get_rank(group)
        self._device = _device(group, near)
        backend = group._get_backend(self._device).name()
        # Others than the group's ranks don't come here.
        alone = len(self._ranks) < dist.get_world_size()
        self._up, self._down = (
            dist.new_group(self._ranks, limit, backend, use_local_synchronization=alone)
            for _ in range(2)
        )

    def send(self, peer: int, memory: memoryview) -> bool:
        """Sends all of it; False: the group can't, as the log says."""

        def move(here: torch.Tensor) -> None:
            group = self._up if peer > self._rank else self._down
            dist.isend(here.to(self._device), self._ranks[peer], group).wait()

        return self._moved("send to", peer, memory, move)

    def receive(self, peer: int, memory: memoryview) -> bool:
        """Fills it; False: the group can't, as the log says."""

        def move(here: torch.Tensor) -> None:
            group = self._down if peer > self._rank else self._up
            on_cpu = self._device.type == "cpu"
            there = here if on_cpu else torch.empty_like(here, device=self._device)
            dist.irecv(there, self._ranks[peer], group).wait()
            here.copy_(there)  # nothing, where it is the same

        return self._moved("receive from", peer, memory, move)

    def close(self) -> None:
        """Gives the groups up."""
        for group in (self._up, self._down):
            with contextlib.suppress(Exception):  # destroy_process_group() has taken all of them
                dist.destroy_process_group(group)

    def _moved(
        self, what: str, peer: int, memory: memoryview, move: Callable[[torch.Tensor], None]
    ) -> bool:
        try:
            with self._beside():
                move(torch.frombuffer(memory, dtype=torch.uint8))
        except Exception as cause:  # whatever the backend raises
            logger.warning(
                "rank %d could not %s rank %d through the process group: %s",
                *(self._rank, what, peer, problem_of(cause)),
            )
            return False
        return True

    @contextlib.contextmanager
    def _beside(self) -> Iterator[None]:
        """On a GPU: beside the model's work, and done at the end of the block."""
        if self._device.type != "cuda":
            yield
            return
        stream = torch.cuda.Stream(self._device)
        with torch.cuda.stream(stream):
            yield
        stream.synchronize()


def _device(group: dist.ProcessGroup, near: torch.device | None) -> torch.device:
    """Where the group takes bytes: the model's GPU, where NCCL has it; Gloo sends none of its."""
    kinds = {each.type for each in group._device_types}
    if near is not None and near.type in kinds and group._get_backend(near).name() == "nccl":
        return near
    return arguments.device_of(group, near)
