"""A failure on one rank ends training on all of them, with a typed error."""

import contextlib
from collections.abc import Iterator

from deltawire.errors import DeltawireError, make_error
from deltawire.leaving import ClosesAtEnd, gave_up


def typed(cause: BaseException, rank: int) -> DeltawireError:
    """The exception as the other ranks get it: "Aborted" where it is none of deltawire's."""
    if isinstance(cause, DeltawireError):
        return cause
    return make_error("Aborted", gave_up(f"rank {rank}", cause), rank)


class AbortsOnError(ClosesAtEnd):
    """Base of a class that owns connections and runs its user's code. Where that code fails, the
    other ranks, which would wait for this one, are told. The subclass has `closed`, `close`,
    `last_error` and `_give_up`."""

    _name = ""  # the class's, for messages
    _instead = ""  # what to copy or save instead of it

    def _closed_error(self) -> DeltawireError:
        """For a call that comes after the end."""
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

    def __reduce__(self):
        """Connections have one owner: it can be neither copied nor pickled."""
        raise TypeError(
            f"a {self._name} can't be copied or pickled: it owns connections; {self._instead}"
        )
