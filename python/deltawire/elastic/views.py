"""Who is in an elastic session: views, and when a set of members may go on. Values alone: no clock,
no socket."""

import dataclasses
from collections.abc import Iterable, Set
from typing import Any

from deltawire import foreign_json
from deltawire.errors import make_error

MEMBERS_MAX = 4096


@dataclasses.dataclass(frozen=True, order=True)
class Member:
    """A process of the job.

    Attributes:
        id: its number, for as long as the job lasts; given once.
        host, port: where its door is.
    """

    id: int
    host: str
    port: int

    @property
    def address(self) -> tuple[str, int]:
        """Of its door."""
        return self.host, self.port

    @property
    def text(self) -> str:
        """Its address as `Session` takes it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclasses.dataclass(frozen=True)
class View:
    """The members of an epoch.

    Attributes:
        epoch: grows with each view; no two views have the same.
        members: in the order of their ids, which is that of their ranks.
        next_id: of the next process that joins.
    """

    epoch: int
    members: tuple[Member, ...]
    next_id: int

    @property
    def ids(self) -> frozenset[int]:
        """Of the members."""
        return frozenset(member.id for member in self.members)

    def rank_of(self, member_id: int) -> int | None:
        """None: it is no member."""
        for rank, member in enumerate(self.members):
            if member.id == member_id:
                return rank
        return None

    def plain(self) -> dict[str, Any]:
        """For a message; `view_of` reads it."""
        members = [[member.id, member.host, member.port] for member in self.members]
        return {"epoch": self.epoch, "next_id": self.next_id, "members": members}


def view_of(plain: Any) -> View:
    """The view in a message. Raises DeltawireError (Corrupt) for anything else."""
    try:
        rows = plain["members"]
        members = tuple(Member(int(i), str(host), int(port)) for i, host, port in rows)
        view = View(int(plain["epoch"]), members, int(plain["next_id"]))
    except foreign_json.UNFIT as error:
        raise make_error("Corrupt", f"a message of another rank holds no view: {error!r}") from None
    ids = [member.id for member in members]
    in_order = all(low < high for low, high in zip(ids, ids[1:], strict=False))
    if not 1 <= len(ids) <= MEMBERS_MAX or not in_order or ids[0] < 0 or ids[-1] >= view.next_id:
        raise make_error(
            "Corrupt", "a message of another rank holds a view that contradicts itself"
        )
    return view


def may_go_on(present: Set[int], views: Iterable[View], left: Set[int]) -> bool:
    """Whether these members may form the next view, so that no others can, too.

    They need more than half of the last view that committed a step, and of each view that any of
    them has tried to form since; or exactly half, with the lowest id. Members that left by their
    own will don't count: they won't go on anywhere.

    Args:
        present: their ids.
        views: the last one that committed a step, and those tried since.
        left: ids of members that left.
    """
    for view in views:
        remaining = view.ids - left
        here = present & remaining
        if 2 * len(here) < len(remaining):
            return False
        if remaining and 2 * len(here) == len(remaining) and min(remaining) not in here:
            return False
    return True


def without_quarrels(ids: Iterable[int], quarrels: Iterable[tuple[int, int]]) -> set[int]:
    """The members of whom no two have failed to connect to each other: of such a pair, the one with
    the higher id goes."""
    kept = set(ids)
    for pair in sorted(quarrels):
        if kept.issuperset(pair):
            kept.discard(max(pair))
    return kept
