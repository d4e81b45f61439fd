"""An elastic session in the place of a `_core.Session`, for the exchanges of local steps."""

import dataclasses
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any

from deltawire import _core
from deltawire.errors import DeltawireError
from deltawire.session.leaving import gave_up
from deltawire.session.trainers_session import TrainersSession

_JOIN_SECONDS = 10.0


@dataclasses.dataclass(frozen=True)
class _Counted:
    """The report of a bucket whose figures are in that of the step's last one."""

    element_count: int = 0
    encode_seconds: float = 0.0
    exchange_seconds: float = 0.0
    decode_seconds: float = 0.0
    bytes_sent: int = 0
    raw_bytes: int = 0
    spans: tuple = ()


class ElasticCore:
    """A thread exchanges the buckets of a step together, until those who remain have committed it.
    Meanwhile the training loop may go on.

    Thread rule: as a `_core.Session`'s; `submit` from one thread at a time.

    Attributes:
        weight: of this rank's values in the steps that are submitted from now on.
        closed: by `close` or `abort`; the mesh of an epoch ends without that.
    """

    def __init__(self, session: TrainersSession) -> None:
        self.weight = 1.0
        self.closed = False
        self._inner = session
        self._buckets: list[tuple[Sequence[tuple], Callable]] = []
        self._jobs: queue.SimpleQueue = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=_take_steps, args=(self._jobs, session), name="deltawire rounds", daemon=True
        )
        self._thread.start()

    @property
    def spec(self) -> str:
        """Canonical."""
        return self._inner.core.spec

    @property
    def place(self) -> tuple[int, int]:
        """Rank and world size of the present epoch."""
        return self._inner.session.rank, self._inner.session.world_size

    def submit(
        self, tensors: Sequence[tuple], step: _core.Step, timeout_ms: int, callback: Callable
    ) -> None:
        """As of a `_core.Session`; each bucket's callback runs when the step has ended. The number
        and the timeout of a step are the session's."""
        self._buckets.append((tensors, callback))
        if step.last:
            buckets, self._buckets = self._buckets, []
            self._jobs.put((buckets, self.weight, step.agreed))

    def mask_sent(self, momenta: list[tuple]) -> None:
        """As of a `_core.Session`."""
        self._inner.core.mask_sent(momenta)

    def explain(self, tensors: list[tuple], step: int) -> list:
        """As of a `_core.Session`."""
        return self._inner.core.explain(tensors, step)

    def save(self) -> bytes:
        """As of a `_core.Session`."""
        return self._inner.core.save()

    def load(self, state: Any) -> None:
        """As of a `_core.Session`."""
        self._inner.core.load(state)

    def load_resized(self, states: list, tensors: list[tuple], place: tuple[int, int]) -> None:
        """As of a `_core.Session`."""
        self._inner.core.load_resized(states, tensors, place)

    def begin_at(self, steps: int) -> None:
        """The number of the next step, after residuals were loaded."""
        self._inner.begin_at(steps)

    def traffic(self) -> tuple[int, int]:
        """Of the present epoch."""
        return self._inner.core.traffic()

    def memory(self) -> _core.Memory:
        """Of the present epoch."""
        return self._inner.core.memory()

    def changes(self) -> dict[str, Any]:
        """What `Session.metrics` says of the changes of members."""
        return self._inner.changes()

    def abort(self, why: str | DeltawireError) -> None:
        """This member leaves at once."""
        self.closed = True
        self._inner.abort(why)

    def close(self) -> None:
        """Leaves the session, and ends the thread; idempotent."""
        self.closed = True
        self._jobs.put(None)
        self._inner.session.close()
        if threading.current_thread() is not self._thread:
            self._thread.join(_JOIN_SECONDS)


def _take_steps(jobs: queue.SimpleQueue, session: TrainersSession) -> None:
    """The thread of an `ElasticCore`, until it finds None."""
    while (job := jobs.get()) is not None:
        buckets, weight, agreed = job
        error, report = None, None
        try:
            tensors = [(*place, list(shape)) for bucket, _ in buckets for *place, shape in bucket]
            report = session.take_step(tensors, weight, agreed)
        except DeltawireError as cause:
            error = cause
        except Exception as cause:  # of the model, whose state another process needs
            error = gave_up(session.session.rank, cause)
            session.abort(error)
        for _, callback in buckets[:-1]:
            callback(error, None if report is None else _Counted())
        buckets[-1][1](error, report)
        del job, buckets, report
