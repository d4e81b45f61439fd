"""A session for the trainers of this package, which keep records of their own."""

from typing import Any

from deltawire import _core
from deltawire.errors import DeltawireError
from deltawire.session.elastic import changes
from deltawire.session.session import Session
from deltawire.session.weighted import Weighted


class TrainersSession:
    """An elastic session without a history of its steps, whose tensors are places in memory.

    Thread rule: `take_step` from one thread at a time, all others from any.
    """

    def __init__(self, session: Session) -> None:
        self.session = session

    @classmethod
    def made(
        cls, spec: str, terms: str, device: object = None, **session: object
    ) -> "TrainersSession":
        """Connects an elastic session.

        Args:
            spec, session: as for `Session`.
            terms: what must be equal on all ranks besides a session's settings.
            device: a `DeviceParts` that codes the tensors where they are; None: the CPU does.
        """
        made = Session.__new__(Session)
        made._terms, made._device = terms, device
        Session.__init__(made, spec, elastic=True, **session)
        return cls(made)

    @property
    def core(self) -> _core.ElasticSession:
        """The core's session."""
        return self.session._session

    def know(self, tensors: list[tuple[str, tuple[int, ...]]]) -> None:
        """(name, shape) of all tensors that will be exchanged, also in fragments that had no turn
        yet: a loaded state has residuals of all."""
        self.core.declare_tensors([(name, list(shape)) for name, shape in tensors])

    def take_step(self, tensors: list[tuple], weight: float, agreed: int) -> _core.Report:
        """A step of memory that is no NumPy array. Raises DeltawireError as `all_reduce`.

        Args:
            tensors: (name, address, bytes, shape) of each; after an error their values are lost.
            weight: as of `all_reduce`, but if all weights are 0, nothing counts: the result is 0,
                or what residuals still owe.
            agreed: as of `_core.Step`.
        """
        session = self.session
        with session._lock:
            session._check_weights_fit()
            weighted = Weighted(tensors, weight, session._device)
            try:
                waiting = session._run(weighted.tensors, agreed=agreed, timed=True)
                if waiting.error is not None:
                    raise waiting.error
                weighted.end()
            finally:
                weighted.release()
            return waiting.report

    def begin_at(self, steps: int) -> None:
        """The next step's number, after residuals were loaded."""
        with self.session._lock:
            self.session._steps = steps
            self.core.begin_at(steps)

    def changes(self) -> dict[str, Any]:
        """The entries of `Session.metrics` about changes of members."""
        return changes(self.core)

    def abort(self, why: str | DeltawireError) -> None:
        """This member leaves at once; a step or a meeting under way ends with "Aborted"."""
        self.core.abort(str(why))
