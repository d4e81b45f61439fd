"""The states of LocalSteps in checkpoints: their form, and how another number of ranks divides
them."""

from collections.abc import Sequence

import torch

from deltawire.errors import check_state_given, invalid
from deltawire.torch.core.checkpoint import in_order_of_ranks, kept_by, kept_of

VERSION = 2
_OWN = ("local_steps", "parameters", "origins")
_MAYBE_OWN = ("held",)  # of the recipe "pulseloco"
_COMMON = ("reference", "outer")


def saved_form(flat: dict) -> dict:
    """The form that `LocalSteps.state_dict` returns: a rank's own values under the rank's name, and
    the rest once, in a tuple, because torch.distributed.checkpoint can't load tensors of unknown
    size. `flat` has everything by name, including `rank`."""
    rank, progress, under_way = flat["rank"], flat["progress"], flat["under_way"]
    own = {key: flat[key] for key in (*_OWN, *_MAYBE_OWN) if key in flat or key in _OWN}
    own |= {"next": progress["next"], "since": progress["since"]}
    common = {key: flat[key] for key in _COMMON if key in flat}
    common |= {"exchanges": progress["exchanges"], "under_way": None}
    if under_way is not None:
        own["under_way"] = {key: under_way[key] for key in ("steps", "start")}
        common["under_way"] = {key: under_way[key] for key in ("fragment", "means")}
    place = {key: flat[key] for key in ("version", "spec", "world_size", "round")}
    return {
        **place,
        "common": (common,),
        "own": kept_by(rank, own),
        "residuals": kept_by(rank, flat["residuals"]),
    }


def flat_form(state: dict, rank: int) -> dict:
    """The inverse of `saved_form` for one rank.

    Raises InvalidArgumentError for another version or rank, and for what is no state.
    """
    version = state.get("version") if isinstance(state, dict) else None
    if version != VERSION:
        raise invalid(
            f"the state has version {version}, and this release loads {VERSION}; load it with "
            "the release that has saved it"
        )
    try:
        (common,) = state["common"]
        own = kept_of(state, rank, "own", " or a list of what all ranks have")
        residuals = kept_of(state, rank, "residuals")
        under_way = common["under_way"]
        if under_way is not None:
            under_way = {**under_way, **own["under_way"]}
        numbers = {"exchanges": common["exchanges"], "next": own["next"], "since": own["since"]}
        place = {key: state[key] for key in ("version", "spec", "world_size", "round")}
        found = {key: own[key] for key in _OWN}
        found |= {key: own[key] for key in _MAYBE_OWN if key in own}
        found |= {key: common[key] for key in _COMMON if key in common}
    except (KeyError, TypeError) as cause:
        raise invalid(f"the state is damaged: it lacks {cause}") from cause
    return {
        **place,
        **found,
        "rank": rank,
        "progress": numbers,
        "under_way": under_way,
        "residuals": residuals,
    }


def flats_of(state: dict | Sequence[dict], place: tuple[int, int]) -> list[dict]:
    """The flat form of a rank's own state, or of the states of all ranks that saved, in order, with
    `place` (rank, world size) filled in for the checks."""
    if isinstance(state, dict):
        return [flat_form(state, place[0])]
    check_state_given(state, several=True)
    ordered = in_order_of_ranks(state, apart=("common", "own"))
    here = {"rank": place[0], "world_size": place[1]}
    return [{**flat_form(each, rank), **here} for rank, each in enumerate(ordered)]


@torch.no_grad()
def share_of(flats: Sequence[dict], place: tuple[int, int]) -> dict:
    """The state with which the rank at `place` continues, without residuals: its movement since the
    last round, and what it holds back, is the mean of the old ranks' over its share of the line
    (docs/guides/checkpoints.md).

    Args:
        flats: the states of all ranks that saved, in order.
        place: (rank, world size).
    """
    weights = _weights(len(flats), *place)
    near = [flat for flat, weight in zip(flats, weights, strict=True) if weight]
    mine = {**near[0], "parameters": {}, "origins": {}}
    mine["local_steps"] = max(flat["local_steps"] for flat in near)
    since = [max(each) for each in zip(*(flat["progress"]["since"] for flat in near), strict=True)]
    mine["progress"] = {**near[0]["progress"], "since": since}

    def mean(values) -> torch.Tensor:
        shares = zip(values, weights, strict=True)
        return sum(weight * value.double().cpu() for value, weight in shares if weight)

    if "held" in near[0]:
        names = near[0]["held"]
        mine["held"] = {name: mean(f["held"][name] for f in flats).float() for name in names}
    for name, parameter in near[0]["parameters"].items():
        mine["parameters"][name] = mean(f["parameters"][name] for f in flats).to(parameter.dtype)

    def counted(places: Sequence[dict]) -> dict:
        """The origin of each rank's movement, chosen so that the mean stays exact."""
        made = {}
        for name in places[0]:
            pairs = zip((f["parameters"][name] for f in flats), places, strict=True)
            moved = mean(p.double().cpu() - place[name].double().cpu() for p, place in pairs)
            made[name] = (mine["parameters"][name].double() - moved).float()
        return made

    mine["origins"] = counted([flat["origins"] for flat in flats])
    if mine["under_way"] is not None:
        ways = [flat["under_way"] for flat in flats]
        steps = max(flat["under_way"]["steps"] for flat in near)
        start = counted([way["start"] for way in ways])
        mine["under_way"] = {**ways[0], "steps": steps, "start": start}
    return mine


def _weights(saved: int, rank: int, world_size: int) -> list[float]:
    """How much of the new rank's share of the line from 0 to 1 each old rank's share covers."""
    first, end = rank * saved, (rank + 1) * saved  # in units of 1 / (saved * world_size)
    covered = [
        max(0, min(end, (old + 1) * world_size) - max(first, old * world_size))
        for old in range(saved)
    ]
    return [units / saved for units in covered]
