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
    """Measures with a session of the spec above, on all ranks at once: each call is a collective.

    Args:
        session: of the ranks; `close` closes it.
        timeout_ms: of one exchange.
    """

    def __init__(self, session: _core.Session, world_size: int, timeout_ms: int) -> None:
        self._session = session
        self._world_size = world_size
        self._timeout_ms = timeout_ms
        self._steps = 0
        self._slowest = 0.0  # of the exchange before, in the mean over the ranks

    def measure(self, machine: Machine) -> tuple[float, float]:
        """(bytes a second in each direction at once, seconds of latency one way). Raises
        DeltawireError, on every rank, where an exchange fails."""
        self._exchange(_FEW)
        small = statistics.median(self._exchange(_FEW) for _ in range(_TRIES))
        self._exchange(_FEW)  # the mean of the last one's time
        before, elements = (small, _FEW), _FIRST
        while True:
            took = min(self._exchange(elements) for _ in range(2))
            self._exchange(_FEW)
            # The same number on every rank: it is a mean that they have exchanged.
            if self._slowest >= _LONG_SECONDS or elements >= _MOST:
                break
            before, elements = (took, elements), 4 * elements
        more = 4.0 * (self._world_size - 1) * (elements - before[1])
        rate = more / max(took - before[0], 1e-9)
        others = self._world_size - 1
        working = (
            4 * others * machine.message_seconds / min(1.0, machine.cores)
        )  # messages and votes
        return rate, max(0.0, (small - working) / 2)

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

    def abort(self, reason: str) -> None:
        """Fails the measurement on every rank."""
        self._session.abort(reason)

    def close(self) -> None:
        """Idempotent."""
        self._session.close()
