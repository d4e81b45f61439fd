"""How the members of an elastic session agree on the next view: each calls at the door of the
member with the lowest id that answers; whoever finds none hosts the meeting (`hosting`)."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from deltawire import _core
from deltawire.elastic.agreement import Agreement, Standing, Tensors, agreement_of
from deltawire.elastic.calls import SILENCE, Caller, hear, said, say, send_bytes
from deltawire.elastic.probes import Probes
from deltawire.elastic.reception import Reception
from deltawire.elastic.shares import receive_shares
from deltawire.elastic.state import Offer
from deltawire.elastic.views import Member, view_of
from deltawire.errors import DeltawireError, make_error
from deltawire.session.leaving import problem_of
from deltawire.session.network import Network

logger = logging.getLogger("deltawire")

_SLICE = 0.1  # seconds
_PAUSE = 0.05  # before the candidates are tried again
_GRACE = 0.25  # before a member with a higher id is asked, too
# Of the meeting's time: how long a member is waited for that should host and doesn't come; longer
# than a host waits for such a member (hosting). And a host, which says itself when it gives up.
_PATIENCE, _PATIENCE_AT_HOST = 0.7, 1.2
# Nobody is given up before it has been waited for so long, or SILENCE if that is less: members that
# come late in a meeting, after an attempt that failed, need a moment, too.
_AT_LEAST = 0.15


class Means:
    """What a member needs at a meeting besides its standing.

    Args:
        network: of the session.
        towards: a door; this member listens on the address that is used towards it.
        place: rank and world size; None for a process that joins.
        settings: what must be equal on all members.
        arrays: gives what a process needs that joins; None: nothing.
        at_least: members that suffice; None: a quorum.
        seconds: that members may take to meet, and that one chunk of bytes may.

    Attributes:
        reception, caller: the member's door, and how it calls at others.
        ends: set when the session is closed.
        state: the residuals at the last step, after a failure; None: there are none yet.
        residual: the square of their L2 norm.
        tensors: that were exchanged, with their shapes.
        opens: those of the open step, in order.
    """

    def __init__(
        self,
        network: Network,
        towards: tuple[str, int],
        place: tuple[int, int] | None,
        settings: str,
        arrays: Callable[[], Mapping[str, Any]] | None,
        at_least: int | None,
        seconds: tuple[float, float],
    ) -> None:
        self.network = network
        self.place = place
        self.settings = settings
        self.arrays = arrays
        self.at_least = at_least
        self.seconds, self.chunk_seconds = seconds
        self.caller = Caller(network.token, network.encryption)
        listener = network.listen(towards, place[0] if place else 1, self.seconds)
        door = self.caller.keep_door(listener)
        self.reception = Reception(door, settings, self.chunk_seconds)
        self.ends = threading.Event()
        self.state: bytes | None = None
        self.residual = 0.0
        self.tensors: dict[str, list[int]] = {}
        self.opens: Tensors = []

    def listen(self) -> _core.Listener:
        """A listener for the next mesh."""
        return self.network.listen_on(self.reception.address[0])

    def share(self) -> bytes:
        """What other members need of this one's residuals."""
        return _core.shared_state(np.frombuffer(bytearray(self.state), np.uint8))

    def offer(self) -> Offer | None:
        """Offers what a process needs that joins; None if this member has nothing to give. Raises
        DeltawireError, code "Aborted", if state= fails: that is the joiner's loss, not the job's.
        """
        if self.arrays is None:
            return None
        try:
            offered = Offer(self.arrays())
        except Exception as cause:
            host, port = self.reception.address
            text = f"state= of the member at {host}:{port} failed: {problem_of(cause)}"
            logger.warning("%s; a process that joins gets nothing from here", text)
            raise make_error("Aborted", text) from cause
        self.reception.offer(offered)
        return offered

    def all_tensors(self) -> Tensors:
        """As `load_resized` takes them."""
        return list(self.tensors.items())


class Meeting:
    """One meeting of one member. Thread rule: one thread."""

    def __init__(self, standing: Standing, means: Means) -> None:
        self.standing = standing
        self.means = means
        self.begun_at = time.monotonic()
        self.given_up: set[int] = set()  # members that answer but don't come
        self.probes = Probes(means.caller, standing.job)

    def agree(self, host: Callable[["Meeting"], Agreement | None]) -> Agreement:
        """Agrees on the next view, within the means' seconds.

        Args:
            host: hosts the meeting; returns None if somebody else shall.

        Raises:
            ExcludedError: the others went on without this member.
            QuorumError: too few have come.
            DeltawireError: "Aborted" (the session was closed meanwhile).
        """
        self.means.reception.meet()
        while True:
            for member in self.lower_members():
                line = self.probes.line_to(member, _GRACE)
                agreement = None if line is None else self._attend(member, line)
                if agreement is not None:
                    return agreement
            if (agreement := host(self)) is not None:
                return agreement
            if self.passed() > 1:
                self.check_included()
                raise self.out_of_time()
            time.sleep(_PAUSE)

    def members(self) -> dict[int, Member]:
        """All members that this one knows of, without those that left."""
        known = {m.id: m for view in self.standing.views for m in view.members}
        left = self.means.reception.left()
        return {each: member for each, member in sorted(known.items()) if each not in left}

    def lower_members(self) -> list[Member]:
        """Those that should host instead of this one, the first one first."""
        own = self.standing.own_id
        return [m for m in self.members().values() if m.id < own and m.id not in self.given_up]

    def passed(self) -> float:
        """The part of the meeting's time that is over."""
        return (time.monotonic() - self.begun_at) / self.means.seconds

    def check_open(self) -> None:
        """Raises Aborted once the session is closed."""
        if self.means.ends.is_set():
            raise make_error("Aborted", "the session was closed while its members met")

    def check_included(self) -> None:
        """Asks all members, before this one gives up: its time may be over because it was frozen.
        Raises Excluded if they went on without it."""
        probes = Probes(self.means.caller, self.standing.job)
        others = [each for each in self.members().values() if each.id != self.standing.own_id]
        for each in others:
            probes.ask(each)
        end = time.monotonic() + 2 * SILENCE
        while others and time.monotonic() < end:
            for each in [each for each in others if probes.found(each) is not None]:
                if self.is_left_out(probes.found(each)):
                    raise excluded(probes.found(each))
                others.remove(each)
            time.sleep(_PAUSE)

    def is_left_out(self, found: dict) -> bool:
        """Whether a member that was found so runs in a later view without this one."""
        if "gone" in found:
            return False
        view, own = view_of(found["view"]), self.standing
        return view.epoch > own.latest.epoch and own.own_id not in view.ids

    def out_of_time(self) -> DeltawireError:
        """The error of a meeting that took too long."""
        text = f"the members did not agree on who goes on within {self.means.seconds:g} s"
        return make_error("NoQuorum", text)

    def _attend(self, member: Member, line: _core.Line) -> Agreement | None:
        standing, means, shares = self.standing, self.means, {}
        try:
            say(line, standing.plain(means.reception.left()))
            heard_at, hosted = time.monotonic(), False
            begun_at = heard_at
            while True:
                self.check_open()
                self._redirect(member)
                message = hear(line, _SLICE)
                if message is None:
                    if time.monotonic() > heard_at + SILENCE:
                        raise make_error("Timeout", f"a host said nothing for {SILENCE:g} s")
                elif message["say"] == "view":
                    return agreement_of(message, shares, standing.own_id)
                elif message["say"] == "share":
                    send_bytes(line, means.share(), SILENCE)
                elif message["say"] == "shares":
                    # So that no other view of that epoch has this member.
                    epoch, shares = receive_shares(line, message)
                    standing.promised = max(standing.promised, epoch)
                elif message["say"] == "offer":
                    with contextlib.suppress(DeltawireError):  # the others give without this one
                        means.offer()
                elif message["say"] == "again":
                    return None
                else:
                    self._check_end(message)
                if message is not None:
                    now = time.monotonic()
                    if message["say"] != "wait":  # states move, and the host limits that
                        self.begun_at += now - heard_at
                    heard_at, hosted = now, message.get("hosted", True) is True
                if self._is_out_of_patience(begun_at, hosted):
                    self.given_up.add(member.id)
                    return None
        except DeltawireError as error:
            if error.code in ("Excluded", "NoQuorum", "Aborted"):
                raise
            self.probes.note(member, error)
            return None  # it is gone, or not to be reached

    def _is_out_of_patience(self, begun_at: float, hosted: bool) -> bool:
        waited = time.monotonic() - begun_at
        is_short = waited < min(SILENCE, _AT_LEAST * self.means.seconds) and self.passed() < 1
        return not is_short and self.passed() > (_PATIENCE_AT_HOST if hosted else _PATIENCE)

    def _check_end(self, message: dict) -> None:
        if message["say"] == "excluded":
            raise excluded(message)
        if message["say"] == "alone":
            raise make_error("NoQuorum", str(message.get("why", ""))[:1000])

    # Who waits here would wait for the wrong one.
    def _redirect(self, host: Member) -> None:
        for visitor in self.means.reception.take_callers():
            said(visitor.line, {"say": "again"})
        for visitor in self.means.reception.take_joiners():
            said(visitor.line, {"say": "elsewhere", "address": list(host.address)})


def excluded(message: dict) -> DeltawireError:
    """The error of a member that another one answers so."""
    view = message.get("view")
    epoch = view.get("epoch") if isinstance(view, dict) else None
    why = str(message.get("why", "it did not answer in time"))[:1000]
    error = make_error(
        "Excluded",
        f"the other members went on without this process in epoch {epoch}: {why}; join the session "
        "again, as a new member",
    )
    error.epoch = epoch if isinstance(epoch, int) else None
    return error
