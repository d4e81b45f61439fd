"""Checks of what a ParameterServer is asked for."""

import os

from deltawire import _core
from deltawire.errors import make_error
from deltawire.policy import Policy, spec_of
from deltawire.torch import arguments

# Of a worker's computing with what travels (`ParameterServer`).
OVERLAPS = ("both", "push", "none")


def checked_servers(servers: int, backup: int, world_size: int) -> int:
    """How many serve; raises InvalidArgumentError."""
    arguments.check_positive("servers", servers)
    arguments.check_count("backup", backup)
    if servers >= world_size:
        raise make_error(
            "InvalidArgument",
            f"servers={servers} of {world_size} ranks leaves nobody to work; start more ranks",
        )
    if backup >= world_size - servers:
        raise make_error(
            "InvalidArgument",
            f"backup={backup} of {world_size - servers} workers; the gradients of one at least "
            "must count",
        )
    return servers


def check_overlap(overlap: str, backup: int, staleness: int) -> None:
    """Raises InvalidArgumentError for anything but one of OVERLAPS, or one that can't be."""
    if overlap not in OVERLAPS:
        raise make_error(
            "InvalidArgument", f"overlap={overlap!r} is none of {', '.join(map(repr, OVERLAPS))}"
        )
    if overlap == "both" and (backup or staleness):
        what = f"backup={backup}" if backup else f"staleness={staleness}"
        raise make_error(
            "InvalidArgument",
            f"overlap='both' can't go with {what}: a worker that is behind takes several "
            "steps at once, and may not begin a forward pass in between; use overlap='push'",
        )


def check_staleness(staleness: int, snapshot: str | os.PathLike | None) -> None:
    """Raises InvalidArgumentError for what is no number of steps, or can't be."""
    arguments.check_count("staleness", staleness)
    if staleness and snapshot is not None:
        raise make_error(
            "InvalidArgument",
            f"staleness={staleness} can't go with snapshot=: between two steps some gradients are "
            "on their way, and a worker's snapshot would have them twice or not at all",
        )


def codecs_of(policy: Policy) -> str:
    """Of one direction, canonical; raises InvalidArgumentError."""
    text = spec_of(arguments.named(policy, "ParameterServer"))
    return _core.Channel(text, 0, "fold", True, 0).spec
