"""A state that all ranks load, or none."""

from collections.abc import Callable

import torch.distributed as dist

from deltawire import _core
from deltawire.errors import make_error
from deltawire.torch.core import bootstrap


def collective_load(
    group: dist.ProcessGroup, session: _core.Session, load: Callable[[], str]
) -> None:
    """Calls `load` on every rank; a collective on the group.

    Args:
        group: all of it calls this.
        session: whose residuals `load` changes as the last thing that it does; where a rank fails
            they are put back.
        load: checks and loads; returns what all ranks must have alike.

    Raises:
        what `load` raised here; DeltawireError where another rank could not load ("Aborted"), or
        the ranks' states don't fit together ("Mismatch").
    """
    before = session.save()
    problem, loaded = None, False
    offer = bootstrap.Offer()
    try:
        offer.settings = load()
        loaded = True
    except Exception as cause:
        problem, offer.problem = cause, bootstrap.problem_of(cause)
    try:
        offers = bootstrap.swap(offer, group)
        if problem is None:
            _check_states(offers)
    except BaseException as cause:
        problem = problem or cause
    if problem is not None:
        if loaded:
            session.load(memoryview(before))
        raise problem


def _check_states(offers: list[bootstrap.Offer]) -> None:
    """Raises, alike on every rank, where a rank could not load, or states don't fit together."""
    for rank, offer in enumerate(offers):
        if offer.problem is not None:
            raise make_error("Aborted", f"rank {rank} can't load: {offer.problem}", rank)
    for rank, offer in enumerate(offers):
        if offer.settings != offers[0].settings:
            raise make_error(
                "Mismatch",
                f"rank {rank}'s state is of {offer.settings}, rank 0's of {offers[0].settings}; "
                "load states that were saved between the same two rounds",
                rank,
            )
