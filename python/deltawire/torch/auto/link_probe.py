"""How fast the link between the ranks is: growing messages over deltawire's own transport."""

import concurrent.futures
import statistics
import time

import torch

from deltawire import _core
from deltawire.planner import Machine

SPEC = "gather(fp32)"  # everybody sends everything to all: the rate is the slowest rank's
_FEW = 64  # elements: what takes time is the latency
_TRIES = 7
_FIRST = 1 << 14  # elements
_MOST = 1 << 21
_LONG_SECONDS = 0.03  # a message that takes so long shows the rate


class LinkProbe:
    """Measures with a session of the spec above, on all ranks at once, a piece at a time: each
    piece is a collective, of one message that counts.

    Args:
        session: of the ranks.
        world_size: how many these are.
        timeout_ms: of one exchange.
    """

    PIECES = 12  # the latency, five sizes twice, and what the last one took

    def __init__(self, session: _core.Session, world_size: int, timeout_ms: int) -> None:
        self._session = session
        self._world_size = world_size
        self._timeout_ms = timeout_ms
        self._steps = 0
        self._slowest = 0.0  # of the exchange before, in the mean over the ranks
        self._piece = 0
        self._elements, self._took = _FIRST, 0.0
        self._small = 0.0
        self._before = 0.0, _FEW  # (seconds, elements) of the size before
        self._over = False

    def advance(self) -> None:
        """The next piece. Raises DeltawireError, on every rank, where an exchange fails."""
        number, self._piece = self._piece, self._piece + 1
        if self._over:
            return
        # Ranks begin the next exchange at once, and have the mean of what the last one took.
        self._exchange(_FEW)
        if number == 0:
            self._small = statistics.median(self._exchange(_FEW) for _ in range(_TRIES))
            self._before = self._small, _FEW
            return
        again = number % 2 == 0
        if number > 1 and not again:
            # The same number on every rank: it is a mean that they have exchanged.
            self._over = self._slowest >= _LONG_SECONDS or self._elements >= _MOST
            if self._over:
                return
            self._before = self._took, self._elements
            self._elements *= 4
        took = self._exchange(self._elements)
        self._took = min(self._took, took) if again else took

    def result(self, machine: Machine) -> tuple[float, float]:
        """(bytes a second in each direction at once, seconds of latency one way), after all
        pieces."""
        others = self._world_size - 1
        more = 4.0 * others * (self._elements - self._before[1])
        rate = more / max(self._took - self._before[0], 1e-9)
        # Messages and votes.
        working = 4 * others * machine.message_seconds / min(1.0, machine.cores)
        return rate, max(0.0, (self._small - working) / 2)

    def _exchange(self, elements: int) -> float:
        values = torch.zeros(elements)
        values[0] = self._slowest
        done = concurrent.futures.Future()
        began = time.perf_counter()
        self._session.submit(
            [("probe", values.data_ptr(), (elements,))],
            _core.Step(self._steps, 0, True),
            self._timeout_ms,
            lambda error, report: done.set_result((values, error)),
        )
        _, error = done.result()  # the step has a deadline of its own
        took = time.perf_counter() - began
        if error is not None:
            raise error
        self._steps += 1
        self._slowest = took if elements != _FEW else float(values[0])
        return took
