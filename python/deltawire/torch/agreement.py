"""How the ranks that share a replica of the model end a step alike.

Each of them exchanges its rows with other ranks: what fails there, or isn't finite, the others
can't see.
"""

import concurrent.futures

import torch

from deltawire import _core
from deltawire.errors import DeltawireError


class Agreement:
    """A session between the ranks of one replica, which carries one number a step. Not copied.

    Thread rule: that of its session.
    """

    SPEC = "direct(fp32)"

    def __init__(self, session: _core.Session, ranks: list[int], timeout_ms: int) -> None:
        self._session = session
        self._ranks = ranks  # globally
        self._timeout_ms = timeout_ms

    def all_finite(self, step: int, finite: bool) -> bool:
        """Whether the step is finite on all of them; waits for them. Raises DeltawireError, on all
        of them, where one has given up."""
        flag = torch.tensor([0.0 if finite else float("nan")])
        done = concurrent.futures.Future()
        where = [("finite", flag.data_ptr(), (1,))]
        self._session.submit(
            where,
            _core.Step(step, 0, True),
            self._timeout_ms,
            lambda error, report: done.set_result((flag, error)),
        )
        flag, error = done.result()
        if error is not None:
            raise among(self._ranks, error)
        return bool(torch.isfinite(flag))

    def abort(self, reason: str) -> None:
        """Tells the others."""
        self._session.abort(reason)

    def close(self) -> None:
        """Idempotent."""
        self._session.close()


def among(ranks: list[int], error: DeltawireError) -> DeltawireError:
    """The same error, saying which global ranks the numbers in it count."""
    text = f"among global ranks {ranks}: {error}"
    return type(error)(text, error.code, error.suspect, error.standing_step)
