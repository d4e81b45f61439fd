"""How the host of a meeting gives processes that join the state, before they are in a view: whoever
dies meanwhile keeps nobody waiting."""

import time

from deltawire.elastic.calls import hear, said, say, send_bytes
from deltawire.elastic.meeting import Means
from deltawire.elastic.reception import Visitor, kept_waiting
from deltawire.errors import DeltawireError

_SLICE_SECONDS = 0.02
_LONGEST = 10  # times as long as members may take to meet


class _Progress:
    """How far a process is, as it says."""

    def __init__(self, visitor: Visitor, now: float) -> None:
        self.visitor = visitor
        self._taken = -1
        self._since = now

    def listen(self, now: float, seconds: float) -> bool:
        """False once it is ready, has hung up, or has taken nothing for so many seconds."""
        try:
            message = hear(self.visitor.line, 0)
        except DeltawireError:
            return False
        if message is not None and message["say"] == "ready":
            self.visitor.ready = True
            return False
        if message is not None and message.get("taken") != self._taken:
            self._taken, self._since = message.get("taken"), now
        return now < self._since + seconds


def give_state(means: Means, joiners: list[Visitor], visitors: list[Visitor], doors: list) -> None:
    """Makes those `joiners` `ready` that have taken the state. The members at the `doors`, whose
    lines are `visitors`, give it together. A process may take `means.chunk_seconds` for a chunk,
    and ten times the meeting's time for all. Where this member's state= fails, they are refused."""
    with kept_waiting([*visitors, *joiners]):
        try:
            offered = means.offer()
        except DeltawireError as error:
            why = f"{error}; who joins needs the state, so mend it there"
            for each in joiners:
                with each.busy():
                    said(each.line, {"say": "refused", "code": error.code, "why": why})
            return
        if offered is None:
            for each in joiners:
                each.ready = True
            return
        for each in visitors:
            with each.busy():
                said(each.line, {"say": "offer"})
        plan, pending, now = offered.plan(), [], time.monotonic()
        for each in joiners:
            try:
                with each.busy():
                    say(each.line, {"say": "offer", "doors": doors})
                    send_bytes(each.line, plan, means.chunk_seconds)
                pending.append(_Progress(each, now))
            except DeltawireError:
                pass  # it is gone, and not ready
        end = now + _LONGEST * means.seconds
        while pending and time.monotonic() < end and not means.ends.is_set():
            now = time.monotonic()
            pending = [each for each in pending if each.listen(now, means.chunk_seconds)]
            time.sleep(_SLICE_SECONDS)
