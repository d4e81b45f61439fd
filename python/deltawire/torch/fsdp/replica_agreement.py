"""Lets the ranks that share a replica end a step alike.

Each of them exchanges its rows with other ranks, and can't see a failure, or values that are not
finite, in the exchanges of the rest of its replica.
"""

import concurrent.futures
import re

import torch

from deltawire import _core
from deltawire.errors import DeltawireError


class ReplicaAgreement:
    """A session between the ranks of one replica that exchanges one number a step.

    Thread rule: that of its session.
    """

    SPEC = "direct(fp32)"

    def __init__(self, session: _core.Session, ranks: list[int], timeout_ms: int) -> None:
        self._session = session
        self._ranks = ranks  # globally
        self._timeout_ms = timeout_ms

    def all_finite(self, step: int, finite: bool) -> bool:
        """Waits for all ranks of the replica; returns whether the step is finite on all of them.
        Raises DeltawireError on all of them if one has given up."""
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
        """Ends the session, and tells the others why."""
        self._session.abort(reason)

    def failure(self) -> DeltawireError | None:
        """Why one of them has left or failed. Waits a moment for the message."""
        error = self._session.failure(_NEWS_MS)
        return None if error is None else among(self._ranks, error)

    def close(self) -> None:
        """Closes the session; idempotent."""
        self._session.close()


_NEWS_MS = 1000  # a rank's end is on its way on several connections
_NUMBERS = re.compile(r"(?<!global )\b(ranks? )(\d+(?:(?:, | and )\d+)*)")
_REPORTED = re.compile(r"(?:global rank \d+ reports: )*global rank (\d+)\b")


def among(ranks: list[int], error: DeltawireError) -> DeltawireError:
    """Translates an error of a session between these ranks to global ranks. If one of them reports
    another's end, that one is the suspect."""
    text = _globally(str(error), ranks)
    suspect = None if error.suspect is None else ranks[error.suspect]
    if found := _REPORTED.match(text):
        suspect = int(found[1])
    return type(error)(text, error.code, suspect, error.last_committed_step)


def _globally(text: str, ranks: list[int]) -> str:
    own, said, quoted = text.partition(" gave up: ")  # what an exception says is its own

    def number(found: re.Match) -> str:
        local = int(found[0])
        return str(ranks[local]) if local < len(ranks) else found[0]

    def numbers(found: re.Match) -> str:
        return f"global {found[1]}{re.sub(r'[0-9]+', number, found[2])}"

    return _NUMBERS.sub(numbers, own) + said + quoted
