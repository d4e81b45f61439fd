"""Checks of a ParameterServer's arguments."""

from deltawire import _core
from deltawire.errors import invalid
from deltawire.torch.core import arguments

# What a worker overlaps with its computation (`ParameterServer`).
OVERLAPS = ("both", "push", "none")
# What happens when a worker is lost (`ParameterServer`).
LOSSES = ("end", "drop")


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


def options_of(
    codecs: dict[str, str], counts: dict[str, int], on_worker_loss: str, rules_of: str
) -> _core.ServerOptions:
    """The core's options, of arguments by their names in `ParameterServer`. Raises
    InvalidArgumentError for what fits no job; `ServerOptions.fitted_to`, for what does not fit this
    one."""
    for name, count in counts.items():
        arguments.check_count(name, count)
    if on_worker_loss not in LOSSES:
        raise invalid(
            f"on_worker_loss={on_worker_loss!r} is none of {', '.join(map(repr, LOSSES))}"
        )
    drops = on_worker_loss == "drop"
    return _core.ServerOptions(**codecs, drops_workers=drops, rules_of=rules_of, **counts)


def lasting_settings(
    sent: _core.ServerOptions, counts: dict[str, int], optimizer_spec: str
) -> dict[str, object]:
    """The settings that must not change when training resumes."""
    return {
        "push": sent.push,
        "pull": sent.pull,
        "servers": counts["servers"],
        "min_elements": counts["min_elements"],
        "optimizer": _core.NamedParameters(optimizer_spec, "optimizer").name,
    }


def codecs_of(spec: str) -> str:
    """The codecs of one direction, canonical. Raises InvalidArgumentError."""
    text = arguments.check_spec(arguments.named(spec, "ParameterServer"))
    return _core.Channel(text, 0, "exact", True, 0).spec
