"""An elastic session in the place of a `_core.Session`, for the exchanges of local steps."""

import dataclasses
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any

from deltawire import _core
from deltawire.errors import DeltawireError
from deltawire.session.elastic import changes
from deltawire.session.leaving import gave_up
from deltawire.session.session import Session
from deltawire.session.weighted import Weighted

_JOIN_SECONDS = 10.0


class TrainersSession(Session):
    """An elastic session without a history of its steps, whose tensors are places in memory.

    Thread rule: `take_step` from one thread at a time, all others from any.

    Args:
        spec, session: as for `Session`.
        terms: what must be equal on all ranks besides a session's settings.
        device: a `DeviceParts` that codes the tensors where they are; None: the CPU does.
    """

    _name = "Session"

    def __init__(self, spec: str, terms: str, device: object = None, **session: object) -> None:
        self._terms, self._device = terms, device
        super().__init__(spec, elastic=True, **session)

    @property
    def core(self) -> _core.ElasticSession:
        """The core's session."""
        return self._session

    def take_step(self, tensors: list[tuple], weight: float, agreed: int) -> _core.Report:
        """A step of memory that is no NumPy array. Raises DeltawireError as `all_reduce`.

        Args:
            tensors: (name, address, bytes, shape) of each; after an error their values are lost.
            weight: as of `all_reduce`, but if all weights are 0, nothing counts: the result is 0,
                or what residuals still owe.
            agreed: as of `_core.Step`.
        """
        with self._lock:
            self._check_weights_fit()
            weighted = Weighted(tensors, weight, self._device)
            try:
                waiting = self._run(weighted.tensors, agreed=agreed, timed=True)
                if waiting.error is not None:
                    raise waiting.error
                weighted.end()
            finally:
                weighted.release()
            return waiting.report

    def begin_at(self, steps: int) -> None:
        """The next step's number, after residuals were loaded."""
        with self._lock:
            self._steps = steps
            self.core.begin_at(steps)


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
    Meanwhile the training loop may go on. What else a `_core.Session` has, the elastic one of the
    present epoch answers.

    Thread rule: as a `_core.Session`'s; `submit` from one thread at a time.

    Attributes:
        weight: of this rank's values in the steps that are submitted from now on.
        closed: by `close` or `abort`; the mesh of an epoch ends without that.
    """

    def __init__(self, session: TrainersSession) -> None:
        self.weight = 1.0
        self.closed = False
        self._session = session
        self._buckets: list[tuple[Sequence[tuple], Callable]] = []
        self._jobs: queue.SimpleQueue = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=_take_steps, args=(self._jobs, session), name="deltawire rounds", daemon=True
        )
        self._thread.start()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session.core, name)

    def lines(self) -> list[tuple[float, str]]:
        """None: each epoch has others."""
        return []

    @property
    def place(self) -> tuple[int, int]:
        """Rank and world size of the present epoch."""
        return self._session.rank, self._session.world_size

    def submit(
        self, tensors: Sequence[tuple], step: _core.Step, timeout_ms: int, callback: Callable
    ) -> None:
        """As of a `_core.Session`; each bucket's callback runs when the step has ended. The number
        and the timeout of a step are the session's."""
        self._buckets.append((tensors, callback))
        if step.last:
            buckets, self._buckets = self._buckets, []
            self._jobs.put((buckets, self.weight, step.agreed))

    def begin_at(self, steps: int) -> None:
        """The number of the next step, after residuals were loaded."""
        self._session.begin_at(steps)

    def changes(self) -> dict[str, Any]:
        """What `Session.metrics` says of the changes of members."""
        return changes(self._session.core)

    def abort(self, why: str | DeltawireError) -> None:
        """This member leaves at once; a step or a meeting under way ends with "Aborted"."""
        self.closed = True
        self._session.abort(str(why))

    def close(self) -> None:
        """Leaves the session, and ends the thread; idempotent."""
        self.closed = True
        self._jobs.put(None)
        self._session.close()
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
            error = gave_up(session.rank, cause)
            session.abort(str(error))
        for _, callback in buckets[:-1]:
            callback(error, None if report is None else _Counted())
        buckets[-1][1](error, report)
        del job, buckets, report
