"""What ends training on one rank ends it on all of them: a failure, or Ctrl-C while a backward
pass waits.

Python runs a signal's handler only when the main thread is back in Python code, and a backward
pass that waits for other ranks isn't. But the C-level handler writes the signal's number to the
wakeup descriptor at once: a thread that reads it ends the exchange, the wait fails, and
KeyboardInterrupt follows.
"""

import contextlib
import logging
import os
import signal
import threading
import weakref
from collections.abc import Iterator

from deltawire.errors import DeltawireError, make_error
from deltawire.session.leaving import ClosesAtEnd, forget, leave_at_exit

logger = logging.getLogger("deltawire")


class AbortsOnError(ClosesAtEnd):
    """Base of a class that owns connections and runs its user's code. Where that code fails, the
    other ranks, which would wait for this one, are told. The subclass has `closed`, `close`,
    `last_error` and `_give_up`."""

    def _closed_error(self) -> DeltawireError:
        """The error of a call after the end."""
        error = self.last_error
        return make_error(
            "State",
            f"this {self._name} is closed; make a new one to go on"
            + (f" (it ended with: {error})" if error else ""),
            error.suspect if error else None,
            error.last_committed_step if error else None,
        )

    @contextlib.contextmanager
    def _aborting_on_error(self) -> Iterator[None]:
        """Whatever is raised within ends training on every rank."""
        try:
            yield
        except BaseException as cause:
            self._give_up(cause)
            raise


class _Watcher:
    """Owns the process's wakeup descriptor, shared by all hooks, and passes every byte on to the
    descriptor that was set before."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hooks = weakref.WeakSet()
        self._forget()

    def _forget(self) -> None:
        self._read_end = self._write_end = self._previous = -1
        self._thread = None

    def add(self, hook) -> None:
        with self._lock:
            self._hooks.add(hook)
        if self._thread is not None:
            return
        if threading.current_thread() is threading.main_thread():
            self._install()
        else:
            logger.warning(
                "rank %d: registered outside the main thread, where signals can't be watched: "
                "Ctrl-C waits for the exchange under way, at most its timeout",
                hook.rank,
            )

    def remove(self, hook) -> None:
        with self._lock:
            self._hooks.discard(hook)
            left = len(self._hooks)
        if not left and threading.current_thread() is threading.main_thread():
            self._uninstall()

    def hooks(self) -> list:
        with self._lock:
            return list(self._hooks)

    def _install(self) -> None:
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._write_end, False)
        self._previous = signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        self._thread = threading.Thread(
            target=self._run,
            args=(self._read_end, self._previous),
            name="deltawire-signals",
            daemon=True,
        )
        self._thread.start()

    def _uninstall(self) -> None:
        if self._thread is None:
            return
        current = signal.set_wakeup_fd(self._previous)
        if current != self._write_end:
            # Somebody came after us, and may pass signals on to our descriptor: it has to stay.
            signal.set_wakeup_fd(current)
            return
        os.close(self._write_end)  # the thread reads the end of file and goes
        self._thread.join(timeout=5)
        self._forget()

    def _run(self, read_end: int, previous: int) -> None:
        while numbers := os.read(read_end, 512):
            if previous != -1:
                with contextlib.suppress(OSError):  # full or closed, as the C-level handler
                    os.write(previous, numbers)
            # A program with its own handler decides itself what Ctrl-C means.
            if (
                signal.SIGINT in numbers
                and signal.getsignal(signal.SIGINT) is signal.default_int_handler
            ):
                for hook in self.hooks():
                    hook.interrupted()
        os.close(read_end)

    def after_fork_in_child(self) -> None:
        """Lets go of the pipe, which the child shares: its signals would look like the parent's."""
        self._lock = threading.Lock()
        self._hooks = weakref.WeakSet()
        if self._thread is not None:
            if signal.set_wakeup_fd(self._previous) not in (-1, self._write_end):
                logger.debug("another wakeup descriptor was in use at the fork")
            os.close(self._read_end)
            os.close(self._write_end)
        self._forget()


_watcher = _Watcher()
os.register_at_fork(after_in_child=_watcher.after_fork_in_child)


def watch(hook) -> None:
    """Calls hook.interrupted() on Ctrl-C, from another thread, and hook.leave() at exit."""
    leave_at_exit(hook, by_sigterm=False)
    _watcher.add(hook)


def unwatch(hook) -> None:
    """Undoes `watch`."""
    forget(hook)
    _watcher.remove(hook)
