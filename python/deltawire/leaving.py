"""How a rank leaves: at the end of its program at the latest. If an exception ends its training,
the ranks that wait for it get its text."""

import atexit
import multiprocessing.util
import os
import sys
import weakref

from deltawire.errors import DeltawireError
from deltawire.registration_record import problem_of

_ENDS_OF_LOOPS = (GeneratorExit, StopIteration, StopAsyncIteration)


def exception_under_way(at_exit: bool = False) -> BaseException | None:
    """The exception that makes the caller close an exchange: one that is being handled, as in a
    `finally`, an `except` or the end of a `with`; None if there is none.

    Args:
        at_exit: the interpreter is exiting; an exception that ended the program counts, too.
    """
    cause = sys.exc_info()[1]
    if cause is None and at_exit and not hasattr(sys, "ps1"):  # a prompt keeps old ones
        # Python sets it before it calls sys.excepthook, whosever that is. 3.12 has a new name.
        cause = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if isinstance(cause, SystemExit):
        if not cause.code:
            return None
        # sys.exit(1) in an `except` block, as torch.multiprocessing.spawn has it.
        return cause.__context__ or cause
    return None if isinstance(cause, _ENDS_OF_LOOPS) else cause


def gave_up(who: str, cause: BaseException) -> str:
    """One line for the other ranks; a DeltawireError's own text is used unchanged.

    Args:
        who: "rank 3".
    """
    text = problem_of(cause).rstrip(": ")
    return text if isinstance(cause, DeltawireError) else f"{who} gave up: {text}"


class ClosesAtEnd:
    """A context manager for classes with `close`. If an exception ends the `with` block, `close`
    finds it and passes it to the other ranks."""

    def __enter__(self):
        return self

    def __exit__(self, kind, cause, traceback) -> None:
        self.close()


class _OpenSessions:
    """All that are open in this process. A forked child has no part in its parent's."""

    def __init__(self) -> None:
        self.open = weakref.WeakSet()
        self.closes_at_exit = False


_sessions = _OpenSessions()
os.register_at_fork(after_in_child=_sessions.__init__)


def leave_at_exit(session) -> None:
    """Calls session.leave() at the end of the process, unless it is forgotten before."""
    _sessions.open.add(session)
    if not _sessions.closes_at_exit:
        # For children of multiprocessing: those that were forked leave without atexit.
        multiprocessing.util.Finalize(None, _leave_all, exitpriority=100)
        _sessions.closes_at_exit = True


def forget(session) -> None:
    """It has closed."""
    _sessions.open.discard(session)


@atexit.register
def _leave_all() -> None:
    """The sessions' threads must be gone before the interpreter is: they call it."""
    for session in list(_sessions.open):
        session.leave()
