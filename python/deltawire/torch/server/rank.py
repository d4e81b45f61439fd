"""The connection of a ParameterServer's rank, and how it ends on all ranks."""

import logging

from deltawire import _core
from deltawire.errors import DeltawireError
from deltawire.session.leaving import exception_under_way, gave_up
from deltawire.torch.core import abort
from deltawire.torch.core.abort import AbortsOnError

logger = logging.getLogger("deltawire")


class ServedRank(AbortsOnError):
    """A connected rank: it ends when any other rank fails.

    Attributes:
        rank: in the process group.
        last_error: the first error, or None.
    """

    _name = "ParameterServer"
    _instead = "copy or save the model"

    def __init__(self, link: _core.Connection, rank: int) -> None:
        self.rank = rank
        self.last_error: DeltawireError | None = None
        self._link = link
        abort.watch(self)

    def leave(self) -> None:
        """At exit: `close` without waiting for a goodbye. If an exception has ended the program,
        the other ranks get its text."""
        if not self.closed and (cause := exception_under_way(at_exit=True)) is not None:
            self._give_up(cause)
        self._part()

    def _part(self) -> None:
        self._link.close()
        abort.unwatch(self)

    def interrupted(self) -> None:
        """Ends training on every rank after Ctrl-C on this one."""
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
        self.last_error = gave_up(self.rank, cause)
        logger.error("rank %d: %s", self.rank, self.last_error)
        self._link.abort(self.last_error)
