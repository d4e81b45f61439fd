"""Times, on this rank's clock, when a step's buckets are ready and when its exchange is over."""

import dataclasses
import threading
import time
from collections.abc import Callable


@dataclasses.dataclass(frozen=True)
class StepTimes:
    """One rank's step, in seconds since its forward pass.

    Attributes:
        ready: for each bucket, in the order of exchange, when its gradients were complete.
        end: when the means of all buckets were in place.
        coded: whether they went through deltawire.
    """

    ready: tuple[float, ...]
    end: float
    coded: bool = False


class StepClock:
    """Collects the times of steps.

    Thread rule: `begin`, `ready`, `restart` and `times` belong to the training loop and its
    backward pass, `over` to any thread.

    Args:
        now: a monotonic clock, in seconds.
    """

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._skip = 0
        self._times: list[StepTimes] = []
        self._forget()

    def _forget(self) -> None:
        self._start: float | None = None
        self._ready: list[float] = []
        self._left = 0
        self._complete = self._coded = False

    def restart(self, skip: int) -> None:
        """Forgets all steps and skips the next `skip`, while caches and connections are cold."""
        with self._lock:
            self._times.clear()
            self._skip = skip
            self._forget()

    def begin(self) -> None:
        """A forward pass begins. With gradient accumulation only the first of a step counts."""
        with self._lock:
            if self._start is None:
                self._start = self._now()

    def ready(self, last: bool, coded: bool = False) -> None:
        """A bucket is ready for its exchange: `last` of the step; `coded` as in `StepTimes`."""
        with self._lock:
            self._ready.append(self._now())
            self._left += 1
            self._complete, self._coded = last, coded

    def over(self) -> None:
        """A bucket's exchange is over."""
        with self._lock:
            self._left -= 1
            if self._left or not self._complete:
                return
            start, ready, end, coded = self._start, self._ready, self._now(), self._coded
            self._forget()
            if self._skip:
                self._skip -= 1
            elif start is not None:
                made = tuple(moment - start for moment in ready)
                self._times.append(StepTimes(made, end - start, coded))

    def times(self) -> list[StepTimes]:
        """The steps since `restart`, oldest first."""
        with self._lock:
            return list(self._times)
