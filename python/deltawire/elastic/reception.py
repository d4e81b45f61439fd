"""The door that each member of an elastic session keeps open, and the thread that answers there.

It tells others whether this process is alive and in which epoch, holds the lines of members that
want to meet until this one comes to the meeting, and those of processes that want to join.
"""

import contextlib
import dataclasses
import threading
import time
from collections.abc import Iterator

from deltawire import _core, foreign_json
from deltawire.elastic.calls import SILENCE, hear, said
from deltawire.elastic.state import Offer, give
from deltawire.elastic.views import View
from deltawire.errors import DeltawireError

_ANSWER_MS = 50
_WAIT_PAUSE = 0.5  # seconds between two "wait"s, less than SILENCE
_FRESH_MAX = 64
_FRESH_SECONDS = 3 * SILENCE  # for a caller's first message; nobody waits for it meanwhile
_GIVING_MAX = 32  # processes that take a state here at once


@dataclasses.dataclass
class Visitor:
    """A line on which somebody waits for this member, and what it said first."""

    line: _core.Line
    said: dict
    told_at: float = 0.0
    hosted: bool = False  # by a member that hosts a meeting
    ready: bool = False  # a process that joins: it has the state
    busy: threading.Lock = dataclasses.field(default_factory=threading.Lock)  # the line is in use

    def keep_waiting(self) -> bool:
        """Says that this member is alive; False if the other end is gone."""
        now = time.monotonic()
        if now < self.told_at + _WAIT_PAUSE:
            return True
        self.told_at = now
        try:
            wait = {"say": "wait", "hosted": self.hosted}
            return said(self.line, wait) and hear(self.line, 0) is None
        except DeltawireError:
            return False


@contextlib.contextmanager
def kept_waiting(visitors: list[Visitor]) -> Iterator[None]:
    """Meanwhile a thread tells them that this member is alive and moves states, so that their
    meeting's clock stands still; not where a line is `busy`."""
    over = threading.Event()

    def tell() -> None:
        while not over.wait(_WAIT_PAUSE):
            for each in visitors:
                if each.busy.acquire(blocking=False):
                    said(each.line, {"say": "moves"})
                    each.busy.release()

    thread = threading.Thread(target=tell, name="deltawire waits", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class Reception:
    """Thread rule: any thread may call any member.

    Args:
        door: where this process listens.
        settings: what must be equal on all members; who wants to join with others is refused.
        seconds: for a chunk of the state that this member gives.
    """

    def __init__(self, door: _core.Door, settings: str, seconds: float) -> None:
        self._settings, self._seconds = settings, seconds
        self.address: tuple[str, int] = door.endpoint
        self._door = door
        self._lock = threading.Lock()
        self._fresh: list[tuple[_core.Line, float]] = []
        self._callers: list[Visitor] = []
        self._joiners: list[Visitor] = []
        self._left: dict[int, str] = {}
        self._place: tuple[str, int, View] | None = None  # job, own id, view
        self._meets = True
        self._offer: Offer | None = None
        self._giving: list[threading.Thread] = []
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="deltawire door", daemon=True)
        self._thread.start()

    def enter(self, job: str, own_id: int, view: View) -> None:
        """This process runs in that view from now on. Who waits here and doesn't belong is told."""
        with self._lock:
            self._place, self._meets = (job, own_id, view), False
            self._offer = None
            callers, self._callers = self._callers, []
            joiners, self._joiners = self._joiners, []
            for each in [*callers, *joiners]:
                self._answer(each)

    def meet(self) -> None:
        """It looks for the next view from now on."""
        with self._lock:
            self._meets = True

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

    def close(self) -> None:
        """Hangs up on everybody. Idempotent."""
        self._ends.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        while not self._ends.is_set():
            with contextlib.suppress(DeltawireError):
                line = self._door.answer(_ANSWER_MS)
                if line is not None:
                    self._fresh.append((line, time.monotonic() + _FRESH_SECONDS))
                    del self._fresh[:-_FRESH_MAX]
            self._hear_fresh()
            with self._lock:
                self._callers = [each for each in self._callers if each.keep_waiting()]
                self._joiners = [each for each in self._joiners if each.keep_waiting()]
        del self._door  # nobody listens any more
        with self._lock:
            self._fresh, self._callers, self._joiners = [], [], []
            self._offer = None

    def _hear_fresh(self) -> None:
        now, silent = time.monotonic(), []
        for line, until in self._fresh:
            try:
                message = hear(line, 0)
                if message is not None:
                    with self._lock:
                        self._answer(Visitor(line, message))
                    if message["say"] == "probe":  # it may come to the meeting on this line
                        silent.append((line, now + _FRESH_SECONDS))
                elif now < until:
                    silent.append((line, until))
            except (DeltawireError, *foreign_json.UNFIT):
                pass  # it has hung up, or sent nonsense
        self._fresh = silent

    def _answer(self, visitor: Visitor) -> None:
        kind, line = visitor.said["say"], visitor.line
        if kind in ("found", "join"):
            host, port = visitor.said.get("address")  # or an error
            visitor.said["address"] = [str(host), int(port)]
        if kind == "probe":
            said(line, self._describe())
        elif kind == "found":
            if self._place is None:
                self._callers.append(visitor)
            else:
                why = "the session has begun; to join it leave out rank= and world_size="
                said(line, {"say": "refused", "why": why})
        elif kind == "meet":
            if self._awaits(visitor.said):
                self._callers.append(visitor)
            else:
                said(line, {**self._describe(), "say": "excluded"})
        elif kind == "join":
            self._answer_joiner(visitor)
        elif kind == "take":
            self._give(visitor)
        elif kind == "left" and self._place and visitor.said.get("job") == self._place[0]:
            self._left[int(visitor.said.get("id", -1))] = str(visitor.said.get("why", ""))
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

    def _describe(self) -> dict:
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
            why = f"the session has {self._settings}, and this process something else"
            said(visitor.line, {"say": "refused", "why": why})
        elif first is None or self._meets or first.id == self._place[1]:
            self._joiners.append(visitor)
        else:
            said(visitor.line, {"say": "elsewhere", "address": list(first.address)})
