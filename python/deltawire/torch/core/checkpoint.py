"""States of all ranks: read from a checkpoint, put in order, loaded on every rank or on none."""

from collections.abc import Callable, Iterable
from os import PathLike
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from deltawire import _core
from deltawire.errors import check_state_given, invalid, make_error
from deltawire.session import leaving
from deltawire.torch.core import bootstrap

if TYPE_CHECKING:
    from torch.distributed.checkpoint import StorageReader

_RANK = "rank "
RESIZE_ADVICE = (
    "give load_state_dict a list of the states of all ranks that saved; "
    "deltawire.torch.saved_states(checkpoint) reads them from a torch.distributed.checkpoint"
)


def kept_by(rank: int, residuals: object) -> dict:
    """Wraps what belongs to one rank (its residuals, for example) for a state. The key names the
    rank, because torch.distributed.checkpoint keeps only one of equal keys; the value is in a
    tuple, because it can't load a tensor whose size isn't known in advance."""
    return {f"{_RANK}{rank}": (residuals,)}


def kept_of(state: dict, rank: int, key: str, otherwise: str = "") -> object:
    """Undoes `kept_by` for one rank and key of the state. Raises InvalidArgumentError if there is
    nothing of that rank."""
    found = _all_kept(state, key)
    if rank not in found:
        raise invalid(
            f"the state has {key} of rank {', '.join(map(str, found))}, not of {rank}: "
            f"every rank loads what it has saved{',' if otherwise else ''}{otherwise}"
        )
    return found[rank]


def in_order_of_ranks(states: Iterable[dict], apart: tuple[str, ...] = ()) -> list[dict]:
    """Sorts the states of all ranks: a result of `saved_states`, or a list of what each rank saved.
    Residuals, and values under the keys in `apart`, may differ between ranks.

    Raises InvalidArgumentError unless they are from all ranks of one job, after the same step.
    """
    check_state_given(states, several=True)
    found = {}
    for state in states:
        if not isinstance(state, dict) or "world_size" not in state:
            raise invalid("one of the states isn't what state_dict() gave")
        for rank in _all_kept(state, "residuals"):
            if rank in found:
                raise invalid(f"two states are of rank {rank}")
            found[rank] = state
    first = next(iter(found.values()), {"world_size": 0})
    if sorted(found) != list(range(first["world_size"] or 1)):
        ranks = ", ".join(map(str, sorted(found)))
        raise invalid(
            f"there are states of rank {ranks or '(none)'}, saved by {first['world_size']} ranks; "
            "give those of all of them"
        )
    for rank, state in found.items():
        for key in (*first, *state):
            if key not in ("residuals", *apart) and state.get(key) != first.get(key):
                raise invalid(
                    f"the states differ: {key} is {state.get(key)} in that of rank {rank}, "
                    f"elsewhere {first.get(key)}; give those that were saved after the same step"
                )
    return [found[rank] for rank in sorted(found)]


def saved_states(
    checkpoint: "str | PathLike | StorageReader", key: str = "hook", **options
) -> list[dict]:
    """Reads the states of all ranks, however many, from a checkpoint of
    torch.distributed.checkpoint: `hook.load_state_dict(saved_states("checkpoint"))`. A collective,
    like torch's own `load`.

    Args:
        checkpoint: a folder, or a StorageReader for any other place.
        key: the key under which the hook was saved: `save({"model": ..., "hook": hook})`.
        options: passed to torch's `load`: process_group, planner.

    Every rank reads the states of all ranks, each of about the model's size. A checkpoint contains
    pickles: load only those that you trust, as with torch's own `load`.

    Raises InvalidArgumentError if the checkpoint has nothing under that key, DeltawireError ("Io")
    if it can't be read.
    """
    import torch.distributed.checkpoint as dcp  # takes a third as long as importing torch itself

    reader = checkpoint
    if not isinstance(checkpoint, dcp.StorageReader):
        reader = dcp.FileSystemReader(checkpoint)
    try:
        saved = reader.read_metadata().state_dict_metadata
    except OSError as cause:
        raise make_error(
            "Io",
            f"{checkpoint}: no checkpoint of torch.distributed.checkpoint can be read there "
            f"({cause.strerror or cause}); give the folder that save() wrote",
        ) from cause
    flat = {name: None for name in saved if name.startswith(f"{key}.")}
    start = f"{key}.residuals."
    ranks = [name.removeprefix(start) for name in flat if name.startswith(f"{start}{_RANK}")]
    if not ranks:
        raise invalid(
            f"the checkpoint has no state of a hook under '{key}'; it has "
            + (", ".join(sorted({name.split(".")[0] for name in saved})) or "nothing")
        )
    dcp.load(flat, storage_reader=reader, **options)
    state = {name.removeprefix(f"{key}."): value for name, value in flat.items()}
    return [_of_rank(rank, state) for rank in ranks]


def _of_rank(rank: str, flat: dict) -> dict:
    """Picks one rank's entries: "residuals.rank 0" becomes "residuals"."""
    state = {}
    for name, value in flat.items():
        what, _, whose = name.rpartition(".")
        if not whose.startswith(_RANK):
            state[name] = value
        elif whose == rank:
            state[what] = {rank: value}
    return state


def _all_kept(state: dict, key: str) -> dict[int, object]:
    by_rank = state.get(key)
    if not isinstance(by_rank, dict) or not by_rank:
        raise invalid(
            f"the state's {key} are {_kind(by_rank)}, not by rank; load what state_dict() gave"
        )
    found = {}
    for name, kept in by_rank.items():
        number = str(name).removeprefix(_RANK)
        whole = isinstance(kept, tuple | list) and len(kept) == 1
        if not number.isdecimal() or not whole:
            raise invalid(
                f"the state's {key} have '{name}': {_kind(kept)}; load what state_dict() gave"
            )
        found[int(number)] = kept[0]
    return found


def _kind(value) -> str:
    return str(value.dtype) if isinstance(value, torch.Tensor) else type(value).__name__


def collective_load(
    group: dist.ProcessGroup,
    session: _core.Session,
    load: Callable[[], str],
    near: torch.device | None = None,
) -> None:
    """Loads a state on every rank or on none; a collective on the group.

    Args:
        group: its ranks, all of which call this.
        session: holds the residuals that `load` replaces as its last action. They are restored if
            any rank fails.
        load: checks and loads this rank's state; returns a text that must be equal on all ranks.
        near: the model's device, for a group of GPUs alone.

    Raises:
        What `load` raised here; DeltawireError if another rank could not load ("Aborted"), or if
        the ranks' states don't belong together ("Mismatch").
    """
    problem, loaded = None, False
    record = bootstrap.RegistrationRecord()
    try:
        before = session.save()
        record.settings = load()
        loaded = True
    except Exception as cause:
        problem, record.problem = cause, leaving.problem_of(cause)
    try:
        records = bootstrap.gather_records(record, group, near)
        if problem is None:
            _check_states(records)
    except BaseException as cause:
        problem = problem or cause
    if problem is not None:
        if loaded:
            session.load(memoryview(before))
        raise problem


def _check_states(records: list[bootstrap.RegistrationRecord]) -> None:
    """Raises the same error on every rank if one could not load, or if states differ."""
    for rank, record in enumerate(records):
        if record.problem is not None:
            raise make_error("Aborted", f"rank {rank} can't load: {record.problem}", rank)
    for rank, record in enumerate(records):
        if record.settings != records[0].settings:
            raise make_error(
                "Mismatch",
                f"rank {rank}'s state is of {record.settings}, rank 0's of {records[0].settings}; "
                "load states that were saved between the same two rounds",
                rank,
            )
