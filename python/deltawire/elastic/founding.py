"""How an elastic session begins, and how a process joins one."""

import contextlib
import os
import time

from deltawire import _core, foreign_json
from deltawire.elastic.agreement import Agreement, agreement_of, send_agreement
from deltawire.elastic.calls import SILENCE, hear, receive_bytes, said, say
from deltawire.elastic.meeting import Means
from deltawire.elastic.reception import Visitor, differing
from deltawire.elastic.shares import receive_shares
from deltawire.elastic.state import Plan, Taking
from deltawire.elastic.views import Member, View
from deltawire.errors import DeltawireError, make_error
from deltawire.session.network import Doors

_SLICE = 0.1  # seconds
_PAUSE = 0.2  # before a door is tried again at which nobody answered
_TELL_SECONDS = 10.0  # at most, for ranks that come after the founding has failed
_TELL_PAUSE = 0.2  # between two reports of how far a process is
# Of a process's time to get in: how long a member may be silent, if that is more than SILENCE.
# Nobody waits for such a process, and machines that start many at once are slow.
_PATIENCE = 0.25


def found(means: Means, world_size: int, seconds: float) -> Agreement:
    """Rank 0: waits for all other ranks, and gives them the first view.

    Raises DeltawireError: "Timeout" (names the missing ranks), "Mismatch".
    """
    visitors: dict[int, Visitor] = {}
    end = time.monotonic() + seconds
    while len(visitors) < world_size - 1:
        callers = means.reception.take_callers()
        for visitor in callers:
            why = _greet(visitor, visitors, world_size, means.settings)
            if why is not None:
                until = min(end, time.monotonic() + _TELL_SECONDS)
                _end_founding(means, [*visitors.values(), *callers], world_size, until, why)
        visitors = {rank: each for rank, each in visitors.items() if each.is_there()}
        if means.ends.is_set():
            raise make_error("Aborted", "the session was closed before all ranks had come")
        missing = [str(rank) for rank in range(1, world_size) if rank not in visitors]
        if missing and time.monotonic() > end:  # the last one may come before this process wakes up
            text = f"rank 0 waited {seconds:g} s for ranks {', '.join(missing)}; were they started?"
            for visitor in visitors.values():
                said(visitor.line, {"say": "refused", "code": "Timeout", "why": text})
            raise make_error("Timeout", text, int(missing[0]))
        time.sleep(0.01)
    members = [Member(0, *means.reception.address)]
    for rank, visitor in sorted(visitors.items()):
        members.append(Member(rank, *visitor.said["address"]))
    view = View(0, tuple(members), world_size)
    listener = means.listen()
    agreement = Agreement(os.urandom(8).hex(), view, None, listener.endpoint, 0, {}, [], [])
    agreement.listener = listener
    for _, visitor in sorted(visitors.items()):
        with contextlib.suppress(DeltawireError):  # it will be missing in the mesh
            send_agreement(visitor, agreement)
    agreement.own_id = 0
    return agreement


# A rank that was started in another way: all are told, also those who come until then.
def _end_founding(
    means: Means, visitors: list[Visitor], world_size: int, until: float, why: str
) -> None:
    told = set()
    while len(told) < world_size - 1 and time.monotonic() < until:
        for visitor in visitors:
            said(visitor.line, {"say": "refused", "code": "Mismatch", "why": why})
            told.add(visitor.said.get("rank"))
        time.sleep(0.01)
        visitors = means.reception.take_callers()
    raise make_error("Mismatch", why)


# Returns why the session can't begin; another process of the same rank is turned away alone.
def _greet(
    visitor: Visitor, visitors: dict[int, Visitor], world_size: int, settings: str
) -> str | None:
    rank, theirs = visitor.said.get("rank"), visitor.said.get("world_size")
    address = visitor.said.get("address")
    fits = isinstance(rank, int) and isinstance(address, list) and len(address) == 2
    if visitor.said["say"] != "found" or not fits:
        return None
    if theirs != world_size:
        return f"rank {rank} was started for {theirs} ranks, rank 0 for {world_size}"
    if not 0 < rank < world_size:
        return f"rank {rank} is not in a world of {world_size}"
    if (found := visitor.said.get("settings")) != settings:
        return f"{differing('rank 0', settings, f'rank {rank}', found)}; give all the same"
    if rank in visitors and visitors[rank].is_there():
        why = f"two processes call themselves rank {rank}; give each its own rank"
        said(visitor.line, {"say": "refused", "code": "Mismatch", "why": why})
        return None
    visitors[rank] = visitor
    return None


def come(
    means: Means,
    question: dict,
    doors: Doors,
    seconds: float,
    taking: Taking | None = None,
) -> Agreement:
    """Calls at the doors in turn until one of them has a view for this process.

    Args:
        question: "found", with rank and world size, or "join".
        doors: where to call; read again after each turn.
        taking: the state that a process takes that joins.

    Raises:
        DeltawireError: "Timeout", "Unauthorized", "Mismatch", and what the other end reports.
    """
    end = time.monotonic() + seconds
    patience = max(SILENCE, _PATIENCE * seconds)
    visit = _Visit(means, doors.resolved(), end, patience, taking)
    last = "nobody answers there"
    while True:
        for address in list(visit.known):
            if means.ends.is_set():
                raise make_error("Aborted", "the session was closed before it was connected")
            try:
                line = means.caller.call(address, min(patience, max(0.1, end - time.monotonic())))
                say(line, {**question, "address": list(means.reception.address)})
                agreement = visit.wait_at(line)
            except _Refused as refused:
                raise refused.error from None
            except DeltawireError as error:
                if error.code not in ("PeerLost", "Timeout"):
                    raise
                last = str(error)
                continue
            if agreement is not None:
                return agreement
        if time.monotonic() > end:
            raise make_error("Timeout", f"no session took this process in at {doors.text}: {last}")
        time.sleep(_PAUSE)
        visit.known += [each for each in doors.resolved() if each not in visit.known]


class _Visit:
    """A process that waits at doors to be taken in."""

    def __init__(
        self,
        means: Means,
        known: list[tuple[str, int]],
        end: float,
        patience: float,
        taking: Taking | None,
    ) -> None:
        self.known = known
        self._means = means
        self._end, self._patience = end, patience
        self._taking = taking

    def wait_at(self, line: _core.Line) -> Agreement | None:
        """None: call at the next door. Raises DeltawireError."""
        heard_at, shares = time.monotonic(), {}
        while True:
            if self._means.ends.is_set() or time.monotonic() > self._end:
                return None
            message = hear(line, _SLICE)
            if message is None:
                self._check_heard(heard_at)
                continue
            if message["say"] == "view":
                agreement = agreement_of(message, shares, None)
                agreement.lines.append(line)
                return agreement
            if message["say"] == "offer" and self._taking is not None:
                self._take(line, message, self._taking)
            if message["say"] == "shares":
                _, shares = receive_shares(line, message)
            heard_at = time.monotonic()
            if message["say"] == "elsewhere":
                _move_to_front(message.get("address"), self.known)
                return None
            if message["say"] == "again":
                return None
            if message["say"] == "refused":
                code = message.get("code", "Mismatch")
                code = code if code in ("Aborted", "Mismatch", "Timeout") else "Mismatch"
                raise _Refused(make_error(code, str(message.get("why", ""))[:1000]))

    def _check_heard(self, at: float) -> None:
        if time.monotonic() > at + self._patience:
            raise make_error("Timeout", f"a member said nothing for {self._patience:g} s")

    # From all members at once. If the host dies, another one says what the state is made of, and
    # what has been taken counts.
    def _take(self, line: _core.Line, message: dict, taking: Taking) -> None:
        seconds = self._means.chunk_seconds
        plan = Plan(receive_bytes(line, seconds))
        doors = _doors_of(message.get("doors"))
        self.known += [each for each in doors if each not in self.known]
        heard_at = told_at = time.monotonic()
        with contextlib.closing(taking.take(plan, self._means.caller, doors, seconds)) as steps:
            for taken in steps:
                if hear(line, 0) is not None:
                    heard_at = time.monotonic()
                self._check_heard(heard_at)
                if time.monotonic() > told_at + _TELL_PAUSE:
                    told_at = time.monotonic()
                    say(line, {"say": "at", "taken": taken})
        if not taking.has_all():
            raise make_error("PeerLost", "no member gives the rest of the state")
        self._end = max(self._end, time.monotonic() + self._patience)  # it is as good as in
        say(line, {"say": "ready"})


def _doors_of(told: object) -> list[tuple[str, int]]:
    try:
        return [(str(host), int(port)) for host, port in told]
    except foreign_json.UNFIT as error:
        raise make_error("Corrupt", f"another member told no doors: {error!r}") from None


class _Refused(Exception):  # noqa: N818
    """What a member answers ends the attempts to come in, a "Timeout" too."""

    def __init__(self, error: DeltawireError) -> None:
        super().__init__(str(error))
        self.error = error


def _move_to_front(address: object, known: list[tuple[str, int]]) -> None:
    (place,) = _doors_of([address])
    with contextlib.suppress(ValueError):
        known.remove(place)
    known.insert(0, place)
