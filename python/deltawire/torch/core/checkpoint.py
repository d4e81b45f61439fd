"""What all ranks of a job have saved: read from a checkpoint, and put in order."""

from collections.abc import Iterable
from os import PathLike
from typing import TYPE_CHECKING

import torch

from deltawire.errors import check_state_given, make_error

if TYPE_CHECKING:
    from torch.distributed.checkpoint import StorageReader

_RANK = "rank "
RESIZE_ADVICE = (
    "give load_state_dict a list of the states of all ranks that saved; "
    "deltawire.torch.saved_states(checkpoint) reads them from a torch.distributed.checkpoint"
)


def kept_by(rank: int, residuals: object) -> dict:
    """A rank's residuals, or what else is its own, as they stand in its state. Under a key of its
    own, because torch.distributed.checkpoint keeps one of equal keys; in a tuple, because it can't
    load a tensor whose size isn't known before."""
    return {f"{_RANK}{rank}": (residuals,)}


def residuals_of(state: dict, rank: int) -> torch.Tensor:
    """A rank's residuals in a state. InvalidArgumentError where it has none of that rank."""
    return kept_of(state, rank, "residuals", " or a list of what all ranks have")


def kept_of(state: dict, rank: int, key: str, otherwise: str = "") -> object:
    """What `kept_by` has kept of a rank under a key of the state. InvalidArgumentError where there
    is nothing of that rank."""
    found = _all_kept(state, key)
    if rank not in found:
        raise make_error(
            "InvalidArgument",
            f"the state has {key} of rank {', '.join(map(str, found))}, not of {rank}: "
            f"every rank loads what it has saved{',' if otherwise else ''}{otherwise}",
        )
    return found[rank]


def in_order_of_ranks(states: Iterable[dict], apart: tuple[str, ...] = ()) -> list[dict]:
    """States of all ranks, sorted: what `saved_states` gives, or a list of what each rank saved.
    What stands under the keys of `apart`, and the residuals, may differ.

    InvalidArgumentError where they aren't those of all ranks of one job after one step.
    """
    check_state_given(states, several=True)
    found = {}
    for state in states:
        if not isinstance(state, dict) or "world_size" not in state:
            raise make_error("InvalidArgument", "one of the states isn't what state_dict() gave")
        for rank in _all_kept(state, "residuals"):
            if rank in found:
                raise make_error("InvalidArgument", f"two states are of rank {rank}")
            found[rank] = state
    first = next(iter(found.values()), {"world_size": 0})
    if sorted(found) != list(range(first["world_size"] or 1)):
        ranks = ", ".join(map(str, sorted(found)))
        raise make_error(
            "InvalidArgument",
            f"there are states of rank {ranks or '(none)'}, saved by {first['world_size']} ranks; "
            "give those of all of them",
        )
    for rank, state in found.items():
        for key in (*first, *state):
            if key not in ("residuals", *apart) and state.get(key) != first.get(key):
                raise make_error(
                    "InvalidArgument",
                    f"the states differ: {key} is {state.get(key)} in that of rank {rank}, "
                    f"elsewhere {first.get(key)}; give those that were saved after the same step",
                )
    return [found[rank] for rank in sorted(found)]


def saved_states(
    checkpoint: "str | PathLike | StorageReader", key: str = "hook", **options
) -> list[dict]:
    """What all ranks kept in a checkpoint of torch.distributed.checkpoint, whatever their number:
    `hook.load_state_dict(saved_states("checkpoint"))`. A collective, as torch's own `load` is.

    Args:
        checkpoint: a folder, or a reader of whatever else it was saved to.
        key: under which the hook was saved: `save({"model": ..., "hook": hook})`.
        options: of torch's `load`: process_group, planner.

    Every rank reads what all ranks have saved, once the size of the model for each. Entries of a
    checkpoint are pickles: load those only that you trust, as with torch's own `load`.

    Raises InvalidArgumentError where the checkpoint has nothing under that key, and DeltawireError
    ("Io") where it can't be read.
    """
    import torch.distributed.checkpoint as dcp  # costs a third of what torch itself does

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
        raise make_error(
            "InvalidArgument",
            f"the checkpoint has no state of a hook under '{key}'; it has "
            + (", ".join(sorted({name.split(".")[0] for name in saved})) or "nothing"),
        )
    dcp.load(flat, storage_reader=reader, **options)
    state = {name.removeprefix(f"{key}."): value for name, value in flat.items()}
    return [_of_rank(rank, state) for rank in ranks]


def _of_rank(rank: str, flat: dict) -> dict:
    """Of "residuals.rank 0" and the like that of one rank, under "residuals"."""
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
        raise make_error(
            "InvalidArgument",
            f"the state's {key} are {_kind(by_rank)}, not by rank; load what state_dict() gave",
        )
    found = {}
    for name, kept in by_rank.items():
        number = str(name).removeprefix(_RANK)
        whole = isinstance(kept, tuple | list) and len(kept) == 1
        if not number.isdecimal() or not whole:
            raise make_error(
                "InvalidArgument",
                f"the state's {key} have '{name}': {_kind(kept)}; load what state_dict() gave",
            )
        found[int(number)] = kept[0]
    return found


def _kind(value) -> str:
    return str(value.dtype) if isinstance(value, torch.Tensor) else type(value).__name__
