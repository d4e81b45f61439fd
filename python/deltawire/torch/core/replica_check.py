"""Compares what should be equal on all ranks, by sums of its bits: the replicas' parameters every
so many steps."""

import datetime
import hashlib
import json
from collections.abc import Iterable, Sequence

import torch
import torch.distributed as dist

from deltawire import foreign_json
from deltawire.errors import DeltawireError, changed, with_advice

EVERY = 100  # steps
_OTHERS = datetime.timedelta(seconds=5)  # for the sums of the other ranks, once all have failed
_ELEMENTS = 1 << 18  # at a time, so that temporary memory stays in the caches
_WORDS = {2: torch.int16, 4: torch.int32}


class ReplicaCheck:
    """A digest of this rank's parameters, every so many steps, for the vote that ends the step: it
    takes no message and no wait of its own. If parameters differ, the step counts on no rank, and
    the error names the first of them.

    Thread rule: `agreed` belongs to the thread of backward, `explained` to the one that ends steps.

    Args:
        every: steps; equal on all ranks.
        group: the ranks that have the same parameters.
    """

    _made: dict[str, int] = {}  # by group: all of its ranks make the same calls

    def __init__(self, every: int, group: dist.ProcessGroup) -> None:
        self._every = every
        ranks = dist.get_process_group_ranks(group)
        self._rank, self._ranks = dist.get_rank(group), range(len(ranks))
        number = self._made[str(ranks)] = self._made.get(str(ranks), 0) + 1
        self._key = f"deltawire/replicas/{ranks}/{number}"
        self._names: list[str] = []
        self._sums: list[int] = []  # of the step under way, if it compares

    def is_due(self, step: int) -> bool:
        """Whether this step compares."""
        return step % self._every == 0

    def agreed(self, step: int, named: Iterable[tuple[str, torch.Tensor]]) -> int:
        """For `_core.Step`. `named`: in the same order on all ranks."""
        self._names, self._sums = [], []
        if not self.is_due(step):
            return 0
        named = list(named)
        self._names = [name for name, _ in named]
        self._sums = sums_of(tensor for _, tensor in named)
        return digest_of_sums(self._sums)

    def explained(self, error: DeltawireError) -> DeltawireError:
        """The error of a failed step; if that is a difference in parameters, with the name of the
        first. The ranks tell each other their sums in the process group's store, because the
        exchange has ended; without a store nothing is named."""
        if error.code != "Mismatch" or not self._sums or (name := self._first_apart()) is None:
            return error
        apart = changed(
            error,
            message=f"{error.message}; parameter '{name}' is the first that differs: something "
            "else than the exchanged gradients has changed it (docs/guides/troubleshooting.md)",
            tensor=name,
        )
        return with_advice(apart, "compare_every=None leaves this comparison out")

    def _first_apart(self) -> str | None:
        try:
            store = dist.distributed_c10d._get_default_store()
            store = getattr(store, "clone", lambda: store)()  # PyTorch 2.6 has none
            store.set(f"{self._key}/{self._rank}", json.dumps(self._sums))
            keys = [f"{self._key}/{rank}" for rank in self._ranks]
            store.wait(keys, _OTHERS)
            told = [foreign_json.parse(store.get(key)) for key in keys]
        except Exception:  # a rank, or the store, is gone
            return None
        rows = zip(self._names, *told, strict=True)
        return next((name for name, *sums in rows if len(set(sums)) > 1), None)


@torch.no_grad()
def sums_of(weights: Iterable[torch.Tensor]) -> list[int]:
    """The sum of each tensor's bits as integers: exact in any order. Of tensors of 16 or 32 bits;
    waits for their devices."""
    words = (each.detach().view(_WORDS[each.element_size()]).reshape(-1) for each in weights)
    return [
        int(sum(part.sum(dtype=torch.int64) for part in each.split(_ELEMENTS))) for each in words
    ]


def digest_of_sums(sums: Sequence[int]) -> int:
    """64 bits for `_core.Step.agreed`."""
    return int.from_bytes(hashlib.sha256(repr(list(sums)).encode()).digest()[:8], "little")
