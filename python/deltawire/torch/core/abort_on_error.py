"""How a rank's part in training ends: on all ranks, and typed."""

import contextlib
from collections.abc import Iterator

from deltawire.errors import DeltawireError, make_error
from deltawire.leaving import ClosesAtEnd


class AbortsOnError(ClosesAtEnd):
    """Of a class that has connections: where its user's code fails, the other ranks are told, who
    would wait for this one. The class has `closed`, `close`, `last_error` and `_give_up`."""

    _door = ""  # the class's name, for messages
    _kept = ""  # what to copy or save in its place

    def _closed_error(self) -> DeltawireError:
        """For a call that comes after the end."""
        error = self.last_error
        return make_error(
            "State",
            f"this {self._door} is closed; make a new one to go on"
            + (f" (it ended with: {error})" if error else ""),
            error.suspect if error else None,
            error.standing_step if error else None,
        )

    @contextlib.contextmanager
    def _all_end_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException as cause:
            self._give_up(cause)
            raise

    def __reduce__(self):
        """There is one owner of connections: neither copy nor pickle."""
        raise TypeError(
            f"a {self._door} can't be copied or pickled: it owns connections; {self._kept}"
        )
