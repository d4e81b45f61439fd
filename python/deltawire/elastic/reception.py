"""The door that each member of an elastic session keeps open, and the thread that answers there.

It tells others whether this process is alive and in which epoch, holds the lines of members that
want to meet until this one comes to the meeting, and those of processes that want to join.
"""

import contextlib
import json
import re
import threading
from collections.abc import Iterator, Set

from deltawire import _core, foreign_json
from deltawire.elastic.calls import WAIT, hear, keep_saying, message_in, said
from deltawire.elastic.state import Offer, give
from deltawire.elastic.views import View
from deltawire.errors import DeltawireError

_ANSWER_MS = 50
MOVES = {"say": "moves"}
_BETWEEN = r"; |, | (?=[a-z_]+=)"  # settings; a spec's parameters stay together
_SETTINGS_MOST = 1000  # characters of another process's that are looked at
_WHY_MOST = 200  # characters, as a standing has those of all that left since the last step
_GIVING_MAX = 32  # processes that take a state here at once


class Visitor:
    """A line on which somebody waits for this member, and what it said first.

    Attributes:
        ready: of a process that joins: it has the state.
    """

    def __init__(self, line: _core.KeptLine, said: dict) -> None:
        self.line, self.said, self.ready = line, said, False
        self._kept: dict | None = WAIT if said.get("say") in ("meet", "found", "join") else None

    def keep(self, message: dict) -> dict | None:
        """The core says this from now on, so that the other end knows that this process lives;
        returns what it said before."""
        before, self._kept = self._kept, message
        keep_saying(self.line, message)
        return before

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        """Meanwhile nothing is said on the line but by the caller."""
        keep_saying(self.line, None)
        try:
            yield
        finally:
            keep_saying(self.line, self._kept)

    def is_there(self) -> bool:
        """False if the other end is gone."""
        try:
            return hear(self.line, 0) is None
        except DeltawireError:
            return False


def differing(one: str, its: str, other: str, others: object) -> str:
    """Who has which settings, but those that both have."""
    words, theirs = re.split(_BETWEEN, its), re.split(_BETWEEN, str(others)[:_SETTINGS_MOST])
    here = [each for each in words if each not in theirs]
    there = [each for each in theirs if each not in words]
    return f"{one} has {', '.join(here) or 'less'}, and {other} {', '.join(there) or 'less'}"


@contextlib.contextmanager
def kept_waiting(visitors: list[Visitor]) -> Iterator[None]:
    """Meanwhile they are told that this member moves states, so that their meeting's clock stands
    still."""
    before = [each.keep(MOVES) for each in visitors]
    try:
        yield
    finally:
        for each, message in zip(visitors, before, strict=True):
            each.keep(message)


class Reception:
    """Thread rule: any thread may call any member.

    Args:
        door: where this process listens, with its keeper.
        settings: what must be equal on all members; who wants to join with others is refused.
        seconds: for a chunk of the state that this member gives.
    """

    def __init__(self, door: _core.Doorkeeper, settings: str, seconds: float) -> None:
        self._settings, self._seconds = settings, seconds
        self.address: tuple[str, int] = door.endpoint
        self._door: _core.Doorkeeper | None = door
        self._lock = threading.Lock()
        self._callers: list[Visitor] = []
        self._joiners: list[Visitor] = []
        self._left: dict[int, str] = {}
        self._place: tuple[str, int, View] | None = None  # job, own id, view
        self._meets = True
        self._offer: Offer | None = None
        self._giving: list[threading.Thread] = []
        self._ends = threading.Event()
        self._describe()
        self._thread = threading.Thread(target=self._run, name="deltawire door", daemon=True)
        self._thread.start()

    def enter(self, job: str, own_id: int, view: View) -> None:
        """This process runs in that view from now on. Who waits here and doesn't belong is told."""
        with self._lock:
            self._place, self._meets = (job, own_id, view), False
            self._describe()
            self._offer = None
            callers, self._callers = self._callers, []
            joiners, self._joiners = self._joiners, []
            for each in [*callers, *joiners]:
                self._answer(each)

    def introduce(self, job: str, own_id: int, view: View) -> None:
        """This process will be that member. Until it has entered a view, it says that it meets."""
        with self._lock:
            self._place = job, own_id, view
            self._describe()

    def withdraw(self) -> None:
        """It will not be that member after all; who waits for it shall look again."""
        with self._lock:
            self._place = None
            self._describe()
            callers, self._callers = self._callers, []
        for each in callers:
            said(each.line, {"say": "again"})

    def meet(self) -> None:
        """It looks for the next view from now on."""
        with self._lock:
            self._meets = True
            self._describe()

    def offer(self, state: Offer) -> None:
        """Processes that join can take this state here until the next view begins."""
        self._offer = state

    def take_callers(self) -> list[Visitor]:
        """Those who want to meet; the lines are the taker's."""
        with self._lock:
            taken, self._callers = self._callers, []
        return taken

    def take_joiners(self) -> list[Visitor]:
        """Those who want to join; likewise."""
        with self._lock:
            taken, self._joiners = self._joiners, []
        return taken

    def has_joiners(self) -> bool:
        """Whether somebody waits to join."""
        with self._lock:
            return bool(self._joiners)

    def left(self) -> dict[int, str]:
        """Why members left, by id, of those that said so."""
        with self._lock:
            return dict(self._left)

    def forget_left(self, but: Set[int]) -> None:
        """Of those that left, only these matter to the next view."""
        with self._lock:
            self._left = {each: why for each, why in self._left.items() if each in but}

    def close(self) -> None:
        """Hangs up on everybody. Idempotent."""
        self._ends.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        door = self._door
        while not self._ends.is_set():
            come = door.next(_ANSWER_MS)
            with self._lock:
                if come is not None:
                    self._hear(*come)
                self._callers = [each for each in self._callers if each.is_there()]
                self._joiners = [each for each in self._joiners if each.is_there()]
        with self._lock:
            self._door = None
            self._callers, self._joiners = [], []
            self._offer = None
        del door  # nobody listens any more

    def _hear(self, line: _core.KeptLine, message: bytes) -> None:
        with contextlib.suppress(DeltawireError, *foreign_json.UNFIT):  # it has sent nonsense
            self._answer(Visitor(line, message_in(message)))

    def _answer(self, visitor: Visitor) -> None:
        kind, line = visitor.said["say"], visitor.line
        if kind in ("found", "join"):
            host, port = visitor.said.get("address")  # or an error
            visitor.said["address"] = [str(host), int(port)]
        if kind == "found":
            if self._place is None:
                self._callers.append(visitor)
            else:
                why = "the session has begun; to join it leave out rank= and world_size="
                said(line, {"say": "refused", "why": why})
        elif kind == "meet":
            if self._awaits(visitor.said):
                self._callers.append(visitor)
            else:
                said(line, {**self._described(), "say": "excluded"})
        elif kind == "join":
            self._answer_joiner(visitor)
        elif kind == "take":
            self._give(visitor)
        elif kind == "left" and self._place and visitor.said.get("job") == self._place[0]:
            why = str(visitor.said.get("why", ""))[:_WHY_MOST]
            self._left[int(visitor.said.get("id", -1))] = why
            said(line, {"say": "heard"})

    def _give(self, visitor: Visitor) -> None:
        self._giving = [each for each in self._giving if each.is_alive()]
        if len(self._giving) == _GIVING_MAX:
            return  # it takes from others

        def run() -> None:
            with contextlib.suppress(DeltawireError):
                give(visitor.line, visitor.said, lambda: self._offer, self._seconds)

        self._giving.append(threading.Thread(target=run, name="deltawire gives", daemon=True))
        self._giving[-1].start()

    # To whoever asks.
    def _describe(self) -> None:
        if self._door is not None:
            self._door.describe(json.dumps(self._described()))

    def _described(self) -> dict:
        if self._place is None:
            return {"say": "here", "job": None}
        job, own_id, view = self._place
        state = "meeting" if self._meets else "running"
        return {"say": "here", "job": job, "id": own_id, "state": state, "view": view.plain()}

    # A member that meets may know views that this one does not: only who is out of the view in
    # which this one runs, and knows none later, is turned away.
    def _awaits(self, message: dict) -> bool:
        if self._place is None:
            return False
        job, _, view = self._place
        if message.get("job") != job:
            return False
        return message.get("id") in view.ids or int(message.get("latest", -1)) > view.epoch

    # The member with the lowest id takes joiners in; at a meeting, its host.
    def _answer_joiner(self, visitor: Visitor) -> None:
        first = self._place[2].members[0] if self._place else None
        if visitor.said.get("settings") != self._settings:
            found = visitor.said.get("settings")
            why = differing("the session", self._settings, "this process", found)
            said(visitor.line, {"say": "refused", "why": why})
        elif first is None or self._meets or first.id == self._place[1]:
            self._joiners.append(visitor)
        else:
            said(visitor.line, {"say": "elsewhere", "address": list(first.address)})
