"""What members of an elastic session bring to a meeting, and what they leave it with."""

import dataclasses
from typing import Any

from deltawire import _core, foreign_json
from deltawire.elastic.calls import say
from deltawire.elastic.reception import Visitor
from deltawire.elastic.views import View, view_of
from deltawire.errors import make_error

Tensors = list[tuple[str, list[int]]]  # name and shape


@dataclasses.dataclass
class Standing:
    """What a member knows when it comes to a meeting.

    Attributes:
        job: a random text that tells jobs with one token apart.
        own_id: this member's.
        base: the last view that committed a step, or that the job began with; None for a member
            that has joined since.
        tried: the views that it has tried to form since, in order.
        steps: how many steps are committed.
        promised: the highest epoch that a host has proposed to it.
        blamed: ids of members that it could not connect to, time and again.
        residual: the square of the L2 norm of its residuals.
    """

    job: str
    own_id: int
    base: View | None
    tried: list[View]
    steps: int
    blamed: set[int] = dataclasses.field(default_factory=set)
    residual: float = 0.0
    promised: int = 0

    @property
    def views(self) -> list[View]:
        """Those that the next view needs a quorum of."""
        return [*([self.base] if self.base else []), *self.tried]

    @property
    def latest(self) -> View:
        """The one with the highest epoch."""
        return max(self.views, key=lambda view: view.epoch)

    def plain(self, left: dict[int, str]) -> dict[str, Any]:
        """For a message. Who left is of no interest where it was in none of these views."""
        known = frozenset().union(*(view.ids for view in self.views))
        return {
            "say": "meet",
            "job": self.job,
            "id": self.own_id,
            "base": self.base.plain() if self.base else None,
            "tried": [view.plain() for view in self.tried],
            "latest": self.latest.epoch,
            "promised": self.promised,
            "steps": self.steps,
            "blamed": sorted(self.blamed),
            "residual": self.residual,
            "left": sorted((each, why) for each, why in left.items() if each in known),
        }


def standing_of(message: dict) -> tuple[Standing, dict[int, str]]:
    """The standing in a message, and who it says has left. Raises DeltawireError (Corrupt)."""
    try:
        base = None if message["base"] is None else view_of(message["base"])
        tried = [view_of(each) for each in message["tried"]]
        blamed = {int(each) for each in message["blamed"]}
        left = {int(member): str(why) for member, why in message["left"]}
        place = str(message["job"]), int(message["id"])
        residual = float(message["residual"])
        standing = Standing(*place, base, tried, int(message["steps"]), blamed, residual)
        standing.promised = int(message["promised"])
    except foreign_json.UNFIT as error:
        raise make_error("Corrupt", f"another rank came with no standing: {error!r}") from None
    if not any(standing.own_id in view.ids for view in standing.views):
        raise make_error("Corrupt", "another rank came without a view that it is in")
    return standing, left


@dataclasses.dataclass
class Agreement:
    """The next view, and what its members need to begin in it.

    Attributes:
        view: the next one.
        base: the view whose states `shares` are; None where there are none.
        meeting_place: where the rank 0 of the view listens for the mesh.
        steps: how many are committed.
        gone: why members of the base don't go on, by id.
        tensors: all that the job has exchanged.
        opens: those of the step that is repeated, in order.
        shares: what the members of the base need of each other's residuals, by id; None if nobody
            left or joined, or there is none.
        residuals: the L2 norm of those that were kept, and an estimate of the lost ones' (hosting).
        listener: the host's, at the meeting place; None on others.
        own_id: of a process that joins.
        lines: between the host and processes that join; kept until all are connected, because the
            host takes a process that hangs up for dead.
    """

    job: str
    view: View
    base: View | None
    meeting_place: tuple[str, int]
    steps: int
    gone: dict[int, str]
    tensors: Tensors
    opens: Tensors
    shares: dict[int, bytes] | None = None
    residuals: tuple[float, float] = (0.0, 0.0)
    listener: _core.Listener | None = None
    own_id: int | None = None
    lines: list[_core.Line] = dataclasses.field(default_factory=list)

    def plain(self) -> dict[str, Any]:
        """For a message, without the bytes."""
        return {
            "say": "view",
            "job": self.job,
            "view": self.view.plain(),
            "base": self.base.plain() if self.base else None,
            "meeting_place": list(self.meeting_place),
            "steps": self.steps,
            "gone": sorted(self.gone.items()),
            "tensors": self.tensors,
            "opens": self.opens,
            "shares": None if self.shares is None else sorted(self.shares),
            "residuals": list(self.residuals),
        }


def send_agreement(visitor: Visitor, agreement: Agreement, new_id: int | None = None) -> None:
    """Without the shares, which it has. Raises DeltawireError where the other end is gone.
    new_id: of a process that joins."""
    head = agreement.plain()
    if new_id is not None:
        head["id"] = new_id
    with visitor.busy():
        say(visitor.line, head)


def agreement_of(head: dict, shares: dict[int, bytes], own_id: int | None) -> Agreement:
    """What `send_agreement` sent. Raises DeltawireError (Corrupt).

    Args:
        shares: that came before it on this line.
        own_id: whose share is not among them; None for a process that joins.
    """
    try:
        base = None if head["base"] is None else view_of(head["base"])
        host, port = head["meeting_place"]
        tensors, opens = (
            [(str(name), [int(dim) for dim in shape]) for name, shape in head[which]]
            for which in ("tensors", "opens")
        )
        gone = {int(member): str(why) for member, why in head["gone"]}
        sharing = None if head["shares"] is None else {int(each) for each in head["shares"]}
        place = str(host), int(port)
        agreement = Agreement(
            str(head["job"]),
            view_of(head["view"]),
            base,
            place,
            int(head["steps"]),
            gone,
            tensors,
            opens,
        )
        kept, lost = head["residuals"]
        agreement.residuals = float(kept), float(lost)
        agreement.own_id = int(head["id"]) if "id" in head else None
    except foreign_json.UNFIT as error:
        raise make_error("Corrupt", f"another rank sent no agreement: {error!r}") from None
    if sharing is not None:
        if sharing - {own_id} != shares.keys():
            raise make_error("Corrupt", "another rank sent an agreement with other residuals")
        agreement.shares = shares
    return agreement
