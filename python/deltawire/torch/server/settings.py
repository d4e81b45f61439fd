"""Checks of a ParameterServer's arguments."""

from deltawire import _core
from deltawire.errors import invalid
from deltawire.torch.core import arguments

# What a worker overlaps with its computation (`ParameterServer`).
OVERLAPS = ("both", "push", "none")
# What happens when a worker is lost (`ParameterServer`).
LOSSES = ("end", "drop")


def checked_servers(servers: int, backup: int, world_size: int) -> int:
    """Returns the number of servers. Raises InvalidArgumentError."""
    servers = arguments.check_positive("servers", servers)
    arguments.check_count("backup", backup)
    if servers >= world_size:
        raise invalid(
            f"servers={servers} of {world_size} ranks leaves nobody to work; start more ranks"
        )
    if backup >= world_size - servers:
        raise invalid(
            f"backup={backup} of {world_size - servers} workers; the gradients of one at least "
            "must count"
        )
    return servers


def drops_workers(on_worker_loss: str, min_workers: int, workers: int) -> bool:
    """Returns whether a lost worker is dropped. Raises InvalidArgumentError."""
    if on_worker_loss not in LOSSES:
        raise invalid(
            f"on_worker_loss={on_worker_loss!r} is none of {', '.join(map(repr, LOSSES))}"
        )
    arguments.check_positive("min_workers", min_workers)
    if min_workers > workers:
        raise invalid(f"min_workers={min_workers} of {workers} workers; give so many or less")
    return on_worker_loss == "drop"


def check_overlap(overlap: str, backup: int, staleness: int) -> None:
    """Raises InvalidArgumentError for what is none of OVERLAPS, or can't be combined."""
    if overlap not in OVERLAPS:
        raise invalid(f"overlap={overlap!r} is none of {', '.join(map(repr, OVERLAPS))}")
    if overlap == "both" and (backup or staleness):
        what = f"backup={backup}" if backup else f"staleness={staleness}"
        raise invalid(
            f"overlap='both' can't go with {what}: a worker that is behind takes several "
            "steps at once, and may not begin a forward pass in between; use overlap='push'"
        )


def lasting_settings(
    codecs: list[str], servers: int, min_elements: int, optimizer_spec: str
) -> dict[str, object]:
    """The settings that must not change when training resumes."""
    return {
        "push": codecs[0],
        "pull": codecs[1],
        "servers": servers,
        "min_elements": min_elements,
        "optimizer": _core.NamedParameters(optimizer_spec, "optimizer").name,
    }


def codecs_of(spec: str) -> str:
    """The codecs of one direction, canonical. Raises InvalidArgumentError."""
    text = arguments.check_spec(arguments.named(spec, "ParameterServer"))
    return _core.Channel(text, 0, "exact", True, 0).spec
