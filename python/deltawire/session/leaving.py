"""How a rank leaves a job, at the latest when its program exits. If an exception ends its training,
the ranks that wait for it get the exception's text."""

import atexit
import multiprocessing.util
import os
import signal
import sys
import threading
import weakref
from typing import TypeVar

from deltawire.errors import DeltawireError, make_error, printable, wrong_state
from deltawire.session.terms import TEXT_BYTES

_Closing = TypeVar("_Closing", bound="ClosesAtEnd")
_ENDS_OF_LOOPS = (GeneratorExit, StopIteration, StopAsyncIteration)


class Terminated(SystemExit):
    """SIGTERM ends this process."""

    def __str__(self) -> str:
        return "SIGTERM has ended its process"


def _exit_at_sigterm() -> None:
    """If the main thread calls this, SIGTERM raises Terminated there; not if it is handled."""

    def terminate(*_signal) -> None:
        raise Terminated(128 + signal.SIGTERM)

    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, terminate)


def exception_under_way(at_exit: bool = False) -> BaseException | None:
    """The exception that makes the caller close an exchange: one that is being handled, as in a
    `finally`, an `except` or the end of a `with`; None if there is none.

    Args:
        at_exit: the interpreter is exiting; an exception that ended the program counts, too.
    """
    cause = sys.exc_info()[1]
    if cause is None and at_exit and not hasattr(sys, "ps1"):  # a prompt keeps old ones
        # Python sets it before it calls any sys.excepthook. Since 3.12 it has a new name.
        cause = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if isinstance(cause, SystemExit) and not isinstance(cause, Terminated):
        if not cause.code:
            return None
        # sys.exit(1) in an `except` block, as in torch.multiprocessing.spawn.
        return cause.__context__ or cause
    return None if isinstance(cause, _ENDS_OF_LOOPS) else cause


def gave_up(rank: int, cause: BaseException, who: str | None = None) -> DeltawireError:
    """The error of a rank that an exception has ended, as the other ranks get it: one of
    deltawire's unchanged, "Aborted" for others.

    Args:
        who: the rank's name; None: "rank 3".
    """
    if isinstance(cause, DeltawireError):
        return cause
    text = f"{who or f'rank {rank}'} gave up: {problem_of(cause)}"
    return make_error("Aborted", text, rank, reporter=rank)


def problem_of(cause: Exception) -> str:
    """One line for the other ranks."""
    text = " ".join(str(cause).split())
    kind = "" if isinstance(cause, (DeltawireError, Terminated)) else f"{type(cause).__name__}: "
    return printable((kind + text).rstrip(": "), TEXT_BYTES)


def check_own_process(pid: int, what: str) -> None:
    """Raises DeltawireError, code "State", in a process that was forked from the one that has made
    this: its threads are not there."""
    if os.getpid() != pid:
        raise wrong_state(
            f"this process was forked from that of the {what}; make one of its own here"
        )


class ClosesAtEnd:
    """A context manager for classes with `close`, which own threads or connections. If an exception
    ends the `with` block, `close` finds it and passes it to the other ranks."""

    _name = ""  # for messages; empty: the class's
    _instead = "make one where it is used"  # what to copy or save instead of it

    def __reduce__(self):
        """Connections have one owner: it can be neither copied nor pickled."""
        raise TypeError(
            f"a {self._name or type(self).__name__} can't be copied or pickled: it owns "
            f"connections; {self._instead}"
        )

    def __enter__(self: _Closing) -> _Closing:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def leave(self) -> None:
        """Called at exit: closes it, as threads must not run while the interpreter ends."""
        self.close()


class _OpenSessions:
    """All open sessions of this process. A forked child does not inherit its parent's."""

    def __init__(self) -> None:
        self.open = weakref.WeakSet()
        self.closes_at_exit = False


_sessions = _OpenSessions()
os.register_at_fork(after_in_child=_sessions.__init__)


def leave_at_exit(session, by_sigterm: bool = True) -> None:
    """Calls session.leave() when the process exits, by SIGTERM too, unless `forget` is called. For
    what waits within PyTorch, which lets Python handle no signal: `by_sigterm` False."""
    if by_sigterm:
        _exit_at_sigterm()
    _sessions.open.add(session)
    if not _sessions.closes_at_exit:
        # Forked children of multiprocessing exit without calling atexit's functions.
        multiprocessing.util.Finalize(None, _leave_all, exitpriority=100)
        _sessions.closes_at_exit = True


def forget(session) -> None:
    """Undoes `leave_at_exit`, for a session that has been closed."""
    _sessions.open.discard(session)


@atexit.register
def _leave_all() -> None:
    """Ends the sessions' threads before the interpreter, which they call, is finalized."""
    for session in list(_sessions.open):
        session.leave()
