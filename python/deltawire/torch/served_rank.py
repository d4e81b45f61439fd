"""How a rank's part in a parameter server ends: on all ranks, and typed."""

import contextlib
import logging
from collections.abc import Iterator

from deltawire import _core
from deltawire.errors import DeltawireError, make_error
from deltawire.torch import interrupt

logger = logging.getLogger("deltawire")


class ServedRank:
    """A rank that is connected to the others; their end is its own.

    Attributes:
        rank: of the process group.
        last_error: the first error, typed; None while all is well.
    """

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
        error = self.last_error
        if self.closed or error is not None:
            raise make_error(
                "State",
                "this ParameterServer is closed; make a new one to go on"
                + (f" (it ended with: {error})" if error else ""),
                error.suspect if error else None,
            )

    @contextlib.contextmanager
    def _all_end_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException as cause:
            self._give_up(cause)
            raise

    def _give_up(self, cause: BaseException) -> None:
        if self.last_error is not None:
            return
        if not isinstance(cause, DeltawireError):
            what = f"{type(cause).__name__}: {cause}".rstrip(": ")
            cause = make_error("Aborted", f"rank {self.rank} gave up: {what}", self.rank)
        self.last_error = cause
        logger.error("rank %d: %s", self.rank, cause)
        self._link.abort(str(cause))

    def __reduce__(self):
        """There is one owner of connections: neither copy nor pickle."""
        raise TypeError(
            "a ParameterServer can't be copied or pickled: it owns connections; copy or save the "
            "model"
        )

    def __enter__(self) -> "ServedRank":
        return self

    def __exit__(self, kind, cause, traceback) -> None:
        """Closes; an exception on its way out is told to the other ranks, who'd wait for this."""
        if cause is not None and not self.closed:
            self._give_up(cause)
        self.close()
