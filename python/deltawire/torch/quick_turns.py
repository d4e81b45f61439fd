"""Python's interpreter lock (the GIL) while gradients are exchanged.

Who wants the lock waits until whoever holds it has had it for the switch interval: 5 ms, unless the
program has set another (sys.setswitchinterval). DDP needs it for each bucket when it calls its hook
and when it takes the mean out of the Future, and deltawire needs it in between to complete that
Future. Next to a thread that runs Python all the time, such as a data loader's, a step of a few
buckets would wait for it longer than for the network. So the interval is short for as long as
buckets are in flight.
"""

import sys
import threading

INTERVAL = 1e-4  # seconds; two threads that both run Python lose a hundredth to changing so often

_lock = threading.Lock()
_users = 0
_before: float | None = None  # the program's interval; None where that is as short


class QuickTurns:
    """The short interval, for one hook; all hooks of a process share it.

    Thread rule: any thread may call any member.
    """

    def __init__(self) -> None:
        self._taken = False

    def begin(self) -> None:
        """At a step's first bucket; nothing where the step before was cut short, and has not
        ended it."""
        global _users, _before
        with _lock:
            if self._taken:
                return
            self._taken = True
            _users += 1
            if _users == 1 and sys.getswitchinterval() > INTERVAL:
                _before = sys.getswitchinterval()
                sys.setswitchinterval(INTERVAL)

    def end(self) -> None:
        """The program's interval again, unless it has changed it meanwhile; idempotent."""
        global _users, _before
        with _lock:
            if not self._taken:
                return
            self._taken = False
            _users -= 1
            if _users or _before is None:
                return
            if abs(sys.getswitchinterval() - INTERVAL) < INTERVAL / 10:
                sys.setswitchinterval(_before)
            _before = None
