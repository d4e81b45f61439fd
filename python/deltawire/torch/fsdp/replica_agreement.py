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
_SPEAKS = ("reports: ", "gave up: ")
_REPORTED = re.compile(r"(?:global rank \d+ reports: )*global rank (\d+)\b")  # as `among` begins


def among(ranks: list[int], error: DeltawireError) -> DeltawireError:
    """An error of a session between these ranks, for all: it begins with a global rank, its suspect
    is one, and it ends with what the numbers in it stand for. The rest stays as it is, because
    names of tensors and texts of exceptions may look like ranks. If one of these ranks reports
    another's end, that one is the suspect."""
    who, text = _who_speaks(ranks, str(error))
    suspect = None if error.suspect is None else ranks[error.suspect]
    if found := _REPORTED.match(text):  # from a session between other ranks
        suspect = int(found[1])
        if who.endswith(f"global rank {suspect} reports: "):  # of itself
            text = text.removeprefix(f"global rank {suspect}: ")
    elif not who.endswith("gave up: "):
        who = who or f"global rank {ranks[0] if suspect is None else suspect}: "
        text = f"{text} ({_key(ranks)})"
    return type(error)(who + text, error.code, suspect, error.last_committed_step)


def _who_speaks(ranks: list[int], text: str) -> tuple[str, str]:
    """Who reports or gave up, in global numbers, and what they say."""
    who = ""
    while not who.endswith("gave up: "):
        local, said = next(
            ((at, word) for at in range(len(ranks)) for word in _SPEAKS
             if text.startswith(f"rank {at} {word}")),
            (None, ""),
        )  # fmt: skip
        if local is None:
            break
        who += f"global rank {ranks[local]} {said}"
        text = text.removeprefix(f"rank {local} {said}")
    return who, text


def _key(ranks: list[int]) -> str:
    """What the numbers of a session's ranks stand for."""
    first, apart = ranks[0], ranks[-1] - ranks[-2] if len(ranks) > 1 else 1
    if ranks == [first + apart * local for local in range(len(ranks))]:
        return f"rank r here is global rank {first} + {apart} r"
    numbers = (f"{local} here is global rank {rank}" for local, rank in enumerate(ranks))
    return f"rank {', '.join(numbers)}"
