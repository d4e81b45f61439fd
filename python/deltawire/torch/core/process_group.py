"""A process group that works again after torchrun has restarted the ranks.

torchrun keeps one store for all attempts. Gloo stores each rank's address under a key that is the
same in every attempt, so that ranks may find addresses of dead processes, and fail or hang. Here
the ranks first agree on a name for this attempt, and meet under it.
"""

import datetime
import json
import secrets
import time

import torch.distributed as dist

from deltawire import foreign_json
from deltawire.errors import invalid, make_error

_PREFIX = "deltawire/attempt"
_POLL_SECONDS = 0.01
_TIMEOUT = datetime.timedelta(minutes=30)  # torch's own


def init_process_group(
    backend: str | None = None, *, timeout: datetime.timedelta = _TIMEOUT, **options
) -> None:
    """Like `torch.distributed.init_process_group`, but reliable after a restart. Call it once on
    every rank.

    It works under torchrun, Slurm, and whatever else sets RANK, WORLD_SIZE, MASTER_ADDR and
    MASTER_PORT. The ranks agree on an attempt over the store that these name, whatever earlier
    attempts have left in it, even if agents count attempts differently or the number of ranks has
    changed.

    Args:
        backend, options: as torch's, without init_method, store, rank and world_size.
        timeout: as torch's; also limits the agreement.

    Raises:
        InvalidArgumentError (a ValueError): an option that says where to meet.
        DeltawireError: "Timeout": a rank did not arrive.
        ValueError: from torch, if the environment lacks a variable.
    """
    for name in ("init_method", "store", "rank", "world_size"):
        if name in options:
            raise invalid(
                f"{name}= can't be given: the environment says where the ranks meet (RANK, "
                "WORLD_SIZE, MASTER_ADDR, MASTER_PORT); with a store of your own call "
                "torch.distributed.init_process_group"
            )
    store, rank, world_size = next(dist.rendezvous("env://", timeout=timeout))
    store.set_timeout(timeout)
    store = dist.PrefixStore(agree_on_attempt(store, rank, world_size, timeout), store)
    dist.init_process_group(
        backend, store=store, rank=rank, world_size=world_size, timeout=timeout, **options
    )


def agree_on_attempt(
    store: dist.Store, rank: int, world_size: int, timeout: datetime.timedelta
) -> str:
    """Returns a prefix for keys that is the same on all of these processes, and theirs alone.

    Each rank publishes a random number of its process. Rank 0 proposes an attempt made of the
    numbers that it sees; a rank accepts an attempt that has its own number; when all have accepted,
    rank 0 confirms. A dead process never accepts, and rank 0 proposes another attempt as soon as
    the number of its successor appears. Raises DeltawireError ("Timeout"), naming a missing rank.
    """
    store = dist.PrefixStore(_PREFIX, store)
    own = secrets.token_hex(16)
    deadline = time.monotonic() + timeout.total_seconds()
    store.set(f"here/{rank}", own)
    lead = _Lead(store, world_size, deadline) if rank == 0 else None
    agreed_to = ""
    while True:
        if lead is not None:
            lead.move()
        attempt, numbers = _attempt_in(store)
        if len(numbers) == world_size and numbers[rank] == own:
            if attempt != agreed_to:
                store.set(f"yes/{attempt}/{rank}", b"")
                agreed_to = attempt
            if store.check([f"go/{attempt}"]):
                return f"{_PREFIX}/{attempt}"
        _wait(deadline, "rank 0, or another one that it waits for, did not come")


def _attempt_in(store: dist.Store) -> tuple[str, list[str]]:
    if not store.check(["attempt"]):
        return "", []
    try:
        attempt, numbers = foreign_json.parse(store.get("attempt"))
        return str(attempt), list(numbers)
    except foreign_json.UNFIT:
        return "", []  # none of rank 0's, which will propose one


def _wait(deadline: float, why: str) -> None:
    if time.monotonic() > deadline:
        raise make_error("Timeout", f"the ranks did not meet in time: {why}")
    time.sleep(_POLL_SECONDS)


class _Lead:
    """Rank 0's part of the agreement."""

    def __init__(self, store: dist.Store, world_size: int, deadline: float) -> None:
        self._store = store
        self._ranks = range(world_size)
        self._deadline = deadline
        self._attempt, self._numbers = "", []

    def move(self) -> None:
        """Proposes an attempt when a number is new; confirms the last one when all accept it."""
        for rank in self._ranks:
            while not self._store.check([f"here/{rank}"]):
                _wait(self._deadline, f"rank {rank} did not come")
        numbers = [self._store.get(f"here/{rank}").decode() for rank in self._ranks]
        if numbers != self._numbers:
            self._attempt, self._numbers = secrets.token_hex(16), numbers
            self._store.set("attempt", json.dumps([self._attempt, numbers]))
        elif self._store.check([f"yes/{self._attempt}/{rank}" for rank in self._ranks]):
            self._store.set(f"go/{self._attempt}", b"")
