"""A lock that many readers share and one writer has alone."""

import contextlib
import threading
from collections.abc import Iterator

from deltawire.errors import make_error, wrong_state


class ReadingLock:
    """Readers wait while somebody writes or waits to write, so that writers come soon.

    A thread that reads may begin to read again; one that reads must not write.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._readers: dict[int, int] = {}  # by thread: how often
        self._writing = False
        self._writers_waiting = 0

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Nobody writes within the block."""
        thread = threading.get_ident()
        with self._changed:
            if thread not in self._readers:
                while self._writing or self._writers_waiting:
                    self._changed.wait()
            self._readers[thread] = self._readers.get(thread, 0) + 1
        try:
            yield
        finally:
            with self._changed:
                self._readers[thread] -= 1
                if not self._readers[thread]:
                    del self._readers[thread]
                    self._changed.notify_all()

    def check_not_reading(self) -> None:
        """Raises DeltawireError, code "State", if this thread reads: it would wait for itself."""
        if threading.get_ident() in self._readers:
            raise wrong_state("update() within reading() would wait for itself")

    @contextlib.contextmanager
    def writing(self, seconds: float) -> Iterator[None]:
        """Nobody else reads or writes within the block.

        Raises:
            DeltawireError: code "Timeout" if readers don't leave in time.
        """
        with self._changed:
            self._writers_waiting += 1
            try:
                if not self._changed.wait_for(self._is_free, seconds):
                    raise make_error(
                        "Timeout",
                        f"the weights are being read for {seconds:g} s already: leave "
                        "reading() between batches, or give update() a longer timeout",
                    )
                self._writing = True
            finally:
                self._writers_waiting -= 1
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._writing = False
                self._changed.notify_all()

    def _is_free(self) -> bool:
        return not self._writing and not self._readers
