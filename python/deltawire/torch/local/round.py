"""One exchange of local steps, from its buckets' departure until the last of them has ended."""

import os
import threading
import time
from collections.abc import Callable

from deltawire import _core
from deltawire.errors import DeltawireError, with_advice, wrong_state
from deltawire.session.history import History
from deltawire.session.leaving import gave_up
from deltawire.torch.local.weights import Weights

_DIFFERENT_WEIGHTS = (
    "the outer optimizer runs on each rank by itself: change its settings (a schedule of its rate) "
    "on every rank alike, and use one version of torch and one kind of processor"
)


class Round:
    """A running exchange of one fragment of the weights, or of all.

    `complete` and `fail` run on threads of the session and of the staging, and keep the weights'
    memory alive, even if nobody waits any more; the rest belongs to the training loop.

    Args:
        weights: the memory that is exchanged.
        fragment: of these weights.
        history: gets a record.
        steps: number of local steps in the fragment's changes.

    Attributes:
        error: the first error, or None.
    """

    def __init__(self, weights: Weights, fragment: int, history: History, steps: int) -> None:
        self.fragment = fragment
        self.steps = steps
        self.error: DeltawireError | None = None
        self._weights = weights
        self._history = history
        self._left = weights.changes.bucket_count(fragment)
        self._lock = threading.Lock()  # of the two threads
        self._over = threading.Event()
        self._began = self._ended = time.monotonic()
        self._waited = 0.0
        self._process = os.getpid()

    def complete(self, store: Callable[[], None], error: DeltawireError | None, report) -> None:
        """The callback of a bucket, whose mean `store` puts in place; called for each bucket, in
        order, even after an error."""
        if error is None:
            try:
                store()
            except Exception as cause:
                error = gave_up(self._history.rank, cause)
        self._end_bucket(error, report)

    def fail(self, session: _core.Session, cause: Exception) -> None:
        """Ends a bucket that the session never got, and the exchange on every rank."""
        error = gave_up(self._history.rank, cause)
        session.abort(error)
        self._end_bucket(error)

    def _end_bucket(self, error: DeltawireError | None, report=None) -> None:
        with self._lock:
            try:
                self._left -= 1
                also = {"local_steps": self.steps, "fragment": self.fragment}
                if error is not None and error.code == "Mismatch" and self._weights.outer:
                    error = with_advice(error, _DIFFERENT_WEIGHTS)
                error = self._history.end(error, report, self._left == 0, also)
                self.error = self.error or error
            finally:  # without it the wait would never end
                if self._left == 0:
                    self._ended = time.monotonic()
                    self._over.set()

    def submitted(self) -> None:
        """All buckets were submitted: starts the clock of the exchange."""
        self._began = time.monotonic()

    def settle(self) -> None:
        """Waits for the last bucket, whether it succeeds or fails. Raises "State" in a forked
        child, in which it would never end."""
        if os.getpid() != self._process:
            raise wrong_state(
                "a forked child has no part in the exchange that its parent has begun"
            )
        began = time.monotonic()
        self._over.wait()
        self._waited += time.monotonic() - began

    def arrived(self) -> "Round":
        """Marks it as over, for an exchange whose means came from a checkpoint; returns it."""
        self._over.set()
        return self

    def times(self) -> tuple[float, float]:
        """Milliseconds (of the exchange, of the training loop's wait for it), once it is over."""
        return 1e3 * max(0.0, self._ended - self._began), 1e3 * self._waited
