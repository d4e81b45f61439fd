"""What hooks and trainers have in common in their states for checkpoints."""

import numpy as np
import torch

from deltawire import _core
from deltawire.errors import make_error


def saved_residuals(session: _core.Session) -> torch.Tensor:
    """The session's residuals as a uint8 tensor, which every checkpoint format can carry."""
    return torch.frombuffer(bytearray(session.save()), dtype=torch.uint8)


def load_residuals(session: _core.Session, residuals: torch.Tensor) -> None:
    """Puts back what `saved_residuals` gave, or raises DeltawireError and changes nothing."""
    array = residuals.cpu().contiguous().numpy()
    session.load(np.asarray(array, dtype=np.uint8))


def check_state(state: dict, place: dict, also: tuple[str, ...], owner: str) -> None:
    """Raises InvalidArgumentError where a state lacks a key, or belongs elsewhere.

    Args:
        state: as loaded.
        place: what it must say, as the owner's own state would.
        also: further keys that it must have.
        owner: "hook", "trainer": who it is for.
    """
    missing = [key for key in (*place, *also) if key not in state]
    if missing:
        raise make_error("InvalidArgument", f"the state lacks {', '.join(missing)}")
    for key, value in place.items():
        if state[key] != value:
            raise make_error(
                "InvalidArgument",
                f"the state has {key} {state[key]}, but this {owner} has {value}; residuals can't "
                "be moved: load the state of the same job and rank, or start without",
            )
