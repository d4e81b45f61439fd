"""What hooks and trainers have in common in their states for checkpoints."""

import torch

from deltawire import _core
from deltawire.errors import make_error


def saved_residuals(session: _core.Session) -> torch.Tensor:
    """The session's residuals as a uint8 tensor, which every checkpoint format can carry."""
    return torch.frombuffer(bytearray(session.save()), dtype=torch.uint8)


def load_residuals(session: _core.Session, residuals: torch.Tensor) -> None:
    """Puts back what `saved_residuals` gave, or raises DeltawireError and changes nothing."""
    session.load(residuals.cpu().contiguous().numpy())


def check_state(
    state: dict, place: dict, counts: tuple[str, ...], owner: str, also: tuple[str, ...] = ()
) -> None:
    """Raises InvalidArgumentError where a state lacks a key, belongs elsewhere or is of a wrong
    type.

    Args:
        state: as loaded, with `residuals`.
        place: what it must say, as the owner's own state would.
        counts: its whole numbers, 0 or more.
        owner: "hook", "trainer": who it is for.
        also: further keys that it must have.
    """
    missing = [key for key in (*place, *counts, "residuals", *also) if key not in state]
    if missing:
        raise make_error("InvalidArgument", f"the state lacks {', '.join(missing)}")
    for key, value in place.items():
        if state[key] != value:
            raise make_error(
                "InvalidArgument",
                f"the state has {key} {state[key]}, but this {owner} has {value}; residuals can't "
                "be moved: load the state of the same job and rank, or start without",
            )
    for key in counts:
        count = state[key]
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            raise make_error(
                "InvalidArgument", f"the state's {key}={count!r} isn't a whole number, 0 or more"
            )
    residuals = state["residuals"]
    if not isinstance(residuals, torch.Tensor) or residuals.dtype != torch.uint8:
        kind = residuals.dtype if isinstance(residuals, torch.Tensor) else type(residuals).__name__
        raise make_error("InvalidArgument", f"the state's residuals are {kind}, not a uint8 tensor")
