"""How a rank's part in a parameter server ends: on all ranks, and typed."""

import logging

from deltawire import _core
from deltawire.errors import DeltawireError, make_error
from deltawire.torch import interrupt
from deltawire.torch.ending import EndsOnAll

logger = logging.getLogger("deltawire")


class ServedRank(EndsOnAll):
    """A rank that is connected to the others; their end is its own.

    Attributes:
        rank: of the process group.
        last_error: the first error, typed; None while all is well.
    """

    _door = "ParameterServer"
    _kept = "copy or save the model"

    def __init__(self, link: _core.Connection, rank: int) -> None:
        self.rank = rank
        self.last_error: DeltawireError | None = None
        self._link = link
        interrupt.watch(self)

    def close(self) -> None:
        """Ends this rank's part."""
        self.leave()

    def leave(self) -> None:
        """At exit: `close` without a goodbye to wait for."""
        self._link.close()
        interrupt.unwatch(self)

    def interrupted(self) -> None:
        """Ends training on every rank because of Ctrl-C here."""
        self._link.abort(f"interrupted on rank {self.rank}")

    @property
    def closed(self) -> bool:
        """True after `close()`."""
        return self._link.closed

    def _check_open(self) -> None:
        if self.closed or self.last_error is not None:
            raise self._closed_error()

    def _give_up(self, cause: BaseException) -> None:
        if self.last_error is not None:
            return
        if not isinstance(cause, DeltawireError):
            what = f"{type(cause).__name__}: {cause}".rstrip(": ")
            cause = make_error("Aborted", f"rank {self.rank} gave up: {what}", self.rank)
        self.last_error = cause
        logger.error("rank %d: %s", self.rank, cause)
        self._link.abort(str(cause))
