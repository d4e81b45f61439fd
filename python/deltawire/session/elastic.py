"""What an elastic session of the core (src/elastic) needs of Python: arguments, arrays, errors."""

import logging
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from deltawire import _core, arguments
from deltawire.errors import DeltawireError, changed, corrupt, invalid, wrong_dtype
from deltawire.session.leaving import problem_of

logger = logging.getLogger("deltawire")

State = Callable[[], Mapping[str, Any]]


def check_membership(elastic: bool, at_least: object, state: object) -> None:
    """Raises InvalidArgumentError for arguments of `Session` that don't go together."""
    if not elastic and (at_least is not None or state is not None):
        raise invalid("at_least= and state= are for elastic=True")
    if at_least is not None:
        arguments.check_positive("at_least", at_least)
    if state is not None and not callable(state):
        raise invalid("state= must be a function that returns arrays by name")


def log(line: str) -> None:
    """What the core has to say of changes of members."""
    logger.warning("%s", line)


def offered(state: State) -> list[tuple] | str:
    """What the core gives a process that joins, or why it can't."""
    try:
        given = state()
        if not isinstance(given, Mapping):
            raise _no_state(f"a {type(given).__name__}")
        arrays = [(name, _as_array(name, array)) for name, array in given.items()]
        return [
            (name, array.dtype.str, array.itemsize, list(array.shape), array.ctypes.data, array)
            for name, array in arrays
        ]
    except Exception as cause:
        return problem_of(cause)


def _as_array(name: object, array: object) -> np.ndarray:
    if not isinstance(name, str):
        raise _no_state(f"the name {name!r}")
    try:
        found = np.asarray(array, order="C")
    except (ValueError, TypeError, RuntimeError) as cause:
        raise _no_state(f"'{name}', of which NumPy makes no array ({cause})") from cause
    if found.dtype.hasobject or np.dtype(found.dtype.str) != found.dtype:
        raise wrong_dtype(
            f"state= gave '{name}' as {found.dtype}, which others can't read from its bytes; give "
            "a view of numbers, e.g. .view(np.uint16) of bfloat16"
        )
    return found


def _no_state(what: str) -> DeltawireError:
    return invalid(f"state= gave {what}, where a dict of arrays by name is due")


def joined_arrays(session: _core.ElasticSession) -> dict[str, np.ndarray] | None:
    """The arrays that another member gave; None for a rank that the session began with. Raises
    DeltawireError (Corrupt)."""
    given = session.joined_state()
    if given is None:
        return None
    try:
        return {
            name: np.frombuffer(data, np.dtype(kind)).reshape(shape).copy()
            for name, kind, shape, data in given
        }
    except (TypeError, ValueError) as cause:
        raise corrupt(f"another member told a state that can't be: {cause}") from None


def ended(session: _core.ElasticSession, error: DeltawireError) -> DeltawireError:
    """The error of a step, with the epoch if it has ended the session."""
    end = session.end()
    return error if end is None else changed(error, epoch=end[1])


def changes(session: _core.ElasticSession) -> dict[str, Any]:
    """What `Session.metrics` says of the changes of members."""
    events = session.events()
    return {
        "epoch": session.epoch,
        "world_size": session.world_size,
        "recoveries": len(events),
        "recovery_seconds": sum(event["seconds"] for event in events),
        "residual_lost": math.hypot(*(event["residual_lost"] for event in events)),
    }
