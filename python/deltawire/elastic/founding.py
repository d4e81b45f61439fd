"""How an elastic session begins, and how a process joins one."""

import contextlib
import os
import time

from deltawire import _core
from deltawire.elastic.agreement import Agreement, receive_agreement, send_agreement
from deltawire.elastic.calls import SILENCE, hear, said, say
from deltawire.elastic.meeting import Means
from deltawire.elastic.reception import Visitor
from deltawire.elastic.views import Member, View
from deltawire.errors import DeltawireError, make_error

_SLICE = 0.1  # seconds
_PAUSE = 0.2  # before a door is tried again at which nobody answered


def found(means: Means, world_size: int, seconds: float) -> Agreement:
    """Rank 0: waits for all other ranks, and gives them the first view.

    Raises DeltawireError: "Timeout" (names the missing ranks), "Mismatch".
    """
    visitors: dict[int, Visitor] = {}
    end = time.monotonic() + seconds
    while len(visitors) < world_size - 1:
        for visitor in means.reception.take_callers():
            _greet(visitor, visitors, world_size, means.settings)
        visitors = {rank: each for rank, each in visitors.items() if each.keep_waiting()}
        if means.ends.is_set():
            raise make_error("Aborted", "the session was closed before all ranks had come")
        if time.monotonic() > end:
            missing = [str(rank) for rank in range(1, world_size) if rank not in visitors]
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
    agreement = Agreement(os.urandom(8).hex(), view, None, listener.endpoint, 0, {}, [])
    agreement.listener = listener
    for _, visitor in sorted(visitors.items()):
        with contextlib.suppress(DeltawireError):  # it will be missing in the mesh
            send_agreement(visitor, agreement, means.chunk_seconds)
    agreement.own_id = 0
    return agreement


def _greet(visitor: Visitor, visitors: dict[int, Visitor], world_size: int, settings: str) -> None:
    rank, theirs = visitor.said.get("rank"), visitor.said.get("world_size")
    address = visitor.said.get("address")
    fits = isinstance(rank, int) and isinstance(address, list) and len(address) == 2
    if visitor.said["say"] != "found" or not fits:
        return
    why = None
    if theirs != world_size:
        why = f"rank {rank} was started for {theirs} ranks, rank 0 for {world_size}"
    elif not 0 < rank < world_size:
        why = f"rank {rank} is not in a world of {world_size}"
    elif visitor.said.get("settings") != settings:
        why = f"rank 0 has {settings}, and rank {rank} something else"
    elif rank in visitors and visitors[rank].keep_waiting():
        why = f"two processes call themselves rank {rank}; give each its own rank"
    if why is not None:
        said(visitor.line, {"say": "refused", "code": "Mismatch", "why": why})
        return
    visitors[rank] = visitor


def come(
    means: Means, question: dict, addresses: list[tuple[str, int]], seconds: float
) -> Agreement:
    """Calls at the addresses in turn until one of them has a view for this process.

    Args:
        question: "found", with rank and world size, or "join".
        addresses: of doors.

    Raises:
        DeltawireError: "Timeout", "Unauthorized", "Mismatch", and what the other end reports.
    """
    end = time.monotonic() + seconds
    known = list(addresses)
    last = "nobody answers there"
    while True:
        for address in list(known):
            if means.ends.is_set():
                raise make_error("Aborted", "the session was closed before it was connected")
            try:
                line = means.caller.call(address, min(SILENCE, max(0.1, end - time.monotonic())))
                say(line, {**question, "address": list(means.reception.address)})
                agreement = _wait_at(line, means, known, end)
            except _Refused:
                raise
            except DeltawireError as error:
                if error.code not in ("PeerLost", "Timeout"):
                    raise
                last = str(error)
                continue
            if agreement is not None:
                return agreement
        if time.monotonic() > end:
            doors = ", ".join(f"{host}:{port}" for host, port in addresses)
            raise make_error("Timeout", f"no session took this process in at {doors}: {last}")
        time.sleep(_PAUSE)


def _wait_at(
    line: _core.Line, means: Means, known: list[tuple[str, int]], end: float
) -> Agreement | None:
    heard_at = time.monotonic()
    while True:
        if means.ends.is_set() or time.monotonic() > end:
            return None
        message = hear(line, _SLICE)
        if message is None:
            if time.monotonic() > heard_at + SILENCE:
                raise make_error("Timeout", f"a member said nothing for {SILENCE:g} s")
            continue
        heard_at = time.monotonic()
        if message["say"] == "view":
            return receive_agreement(line, message, means.chunk_seconds)
        if message["say"] == "elsewhere":
            _move_to_front(message.get("address"), known)
            return None
        if message["say"] == "again":
            return None
        if message["say"] == "refused":
            code = message.get("code", "Mismatch")
            code = code if code in ("Mismatch", "Timeout") else "Mismatch"
            error = make_error(code, str(message.get("why", ""))[:1000])
            raise _Refused(str(error), error.code)


class _Refused(DeltawireError):
    """Passed on as it is, a "Timeout" too."""


def _move_to_front(address: object, known: list[tuple[str, int]]) -> None:
    if isinstance(address, list) and len(address) == 2:
        place = str(address[0]), int(address[1])
        with contextlib.suppress(ValueError):
            known.remove(place)
        known.insert(0, place)
