"""Lets the ranks that share a replica end a step alike.

Each of them exchanges its rows with other ranks, and can't see a failure, or values that are not
finite, in the exchanges of the rest of its replica.
"""

import concurrent.futures

import torch

from deltawire import _core
from deltawire.errors import DeltawireError


class ReplicaAgreement:
    """A session between the ranks of one replica that exchanges one number a step.

    Thread rule: that of its session.
    """

    SPEC = _core.Spec("direct(fp32)")

    def __init__(self, session: _core.Session, timeout_ms: int) -> None:
        self._session = session
        self._timeout_ms = timeout_ms

    def all_finite(self, step: int, finite: bool) -> bool:
        """Waits for all ranks of the replica; returns whether the step is finite on all of them.
        Raises DeltawireError on all of them if one has given up."""
        value = 0.0 if finite else float("nan")
        flag = torch.tensor([value], dtype=torch.float32, device="cpu")
        done = concurrent.futures.Future()
        where = [("finite", flag.data_ptr(), flag.nbytes, (1,))]
        self._session.submit(
            where,
            _core.Step(step, 0, True),
            self._timeout_ms,
            lambda error, report: done.set_result((flag, error)),
        )
        flag, error = done.result()
        if error is not None:
            raise error
        return bool(torch.isfinite(flag))

    def abort(self, reason: str | DeltawireError) -> None:
        """Ends the session, and tells the others why."""
        self._session.abort(reason)

    def failure(self) -> DeltawireError | None:
        """Why one of them has left or failed. Waits a moment for the message."""
        return self._session.failure(_NEWS_MS)

    def close(self) -> None:
        """Closes the session; idempotent."""
        self._session.close()


_NEWS_MS = 1000  # a rank's end is on its way on several connections
