"""What a member at a meeting finds out about others that it has not heard of."""

import threading
import time

from deltawire import _core
from deltawire.elastic.calls import PROBE, SILENCE, Caller, hear_within, say
from deltawire.elastic.views import Member, view_of
from deltawire.errors import DeltawireError

_PAUSE = 0.5  # seconds between two probes of one member
_SILENT, _ENDED = f"it answered nothing for {SILENCE:g} s", "its process has ended"


class Probes:
    """Threads that call at doors, so that nobody waits for the silent one after the other.

    Thread rule: one thread.

    Args:
        caller: how to call.
        job: whose members count; who answers for another one is gone.
    """

    def __init__(self, caller: Caller, job: str) -> None:
        self._caller, self._job = caller, job
        self._asked_at: dict[int, float] = {}
        self._known: dict[int, threading.Event] = {}  # by id: something was found
        self._found: dict[int, dict] = {}  # by id: the answer, or {"gone": why}
        self._lines: dict[int, _core.Line] = {}  # on which it has answered

    def ask(self, member: Member) -> None:
        """Asks it, or asks it again after a while."""
        now = time.monotonic()
        if now < self._asked_at.get(member.id, -_PAUSE) + _PAUSE:
            return
        self._asked_at[member.id] = now + SILENCE  # until it is answered
        self._known.setdefault(member.id, threading.Event())
        name = f"deltawire probe {member.id}"
        threading.Thread(target=self._run, args=(member,), name=name, daemon=True).start()

    def found(self, member: Member) -> dict | None:
        """Its last answer, or {"gone": why}; None: not known yet."""
        return self._found.get(member.id)

    def line_to(self, member: Member, seconds: float) -> _core.Line | None:
        """The line on which it has answered, for the caller alone. Waits that long for it; None:
        it has not answered yet, or is gone."""
        if member.id not in self._lines and "gone" not in self._found.get(member.id, {}):
            self._forget(member)  # the line was used, so it is asked for another one
        self.ask(member)
        self._known[member.id].wait(seconds)
        return self._lines.pop(member.id, None)

    def note(self, member: Member, error: DeltawireError) -> None:
        """A line to it was lost, for this reason. Only who was silent is gone: whoever hung up may
        call again, and answers at once or not."""
        if error.code == "Timeout":
            self._keep(member, {"gone": _SILENT})

    def _forget(self, member: Member) -> None:
        if self._found.pop(member.id, None) is not None:
            self._known[member.id] = threading.Event()
            self._asked_at.pop(member.id, None)

    def _run(self, member: Member) -> None:
        try:
            line = self._caller.call(member.address)
            say(line, PROBE)
            answer = hear_within(line, SILENCE)
            if answer.get("job") != self._job or answer.get("id") != member.id:
                answer = {"gone": _ENDED}
            else:
                view_of(answer.get("view"))  # or an error
                self._lines[member.id] = line
        except DeltawireError as error:
            answer = {"gone": _SILENT if error.code == "Timeout" else _ENDED}
        self._keep(member, answer)

    def _keep(self, member: Member, answer: dict) -> None:
        self._found[member.id] = answer
        self._asked_at[member.id] = time.monotonic()
        self._known.setdefault(member.id, threading.Event()).set()
