"""A rank's records of what its buckets cost, and the first error."""

import collections
import dataclasses
import logging
import math
import threading
import time
from typing import Any, TypedDict

from deltawire.errors import DeltawireError, changed

logger = logging.getLogger("deltawire")

# Steps whose records are kept; a record is about half a kilobyte.
RECORDED_STEPS = 4096
_SUMMED = (
    "buckets",
    "elements",
    "encode_ms",
    "exchange_ms",
    "decode_ms",
    "bytes_sent",
    "raw_bytes",
)


class _OfMembers(TypedDict, total=False):
    """What only an elastic session adds."""

    epoch: int
    world_size: int
    recoveries: int
    recovery_seconds: float
    residual_lost: float


class Metrics(_OfMembers):
    """What `BaseSession.metrics` returns, for type checkers."""

    steps: int
    nonfinite_steps: int
    buckets: int
    elements: int
    encode_ms: float
    exchange_ms: float
    decode_ms: float
    bytes_sent: int
    raw_bytes: int
    ratio: float | None
    digest: int | None
    finite: bool
    total_buckets: int
    total_elements: int
    total_encode_ms: float
    total_exchange_ms: float
    total_decode_ms: float
    total_bytes_sent: int
    total_raw_bytes: int
    total_ratio: float | None
    measured_step: int | None
    residual_to_gradient: float | None
    waiting_steps: float | None
    sent_share: float | None
    traffic_bytes_sent: int
    traffic_bytes_received: int
    residual_bytes: int
    staging_bytes: int
    message_bytes: int
    peak_memory_bytes: int


@dataclasses.dataclass(frozen=True)
class BucketRecord:
    """A finished bucket of the last step.

    Attributes:
        names: of its tensors.
        ready_ns, over_ns: when its gradients and its means were ready, as time.monotonic_ns().
        report: the core's, with `spans` between the two.
    """

    names: tuple[str, ...]
    ready_ns: int
    over_ns: int
    report: object


class History:
    """Counters of one rank, and its first error. Thread rule: any thread may call any member.

    It holds no reference to the session, because the session's own thread fills it, and must not
    keep its session alive.
    """

    def __init__(self, rank: int, nonfinite_advice: str = "") -> None:
        self.rank = rank
        self._nonfinite_advice = nonfinite_advice  # what to do about steps that are not finite
        self.steps = 0
        self.nonfinite_steps = 0
        self.last_error: DeltawireError | None = None
        self.records: collections.deque[dict] = collections.deque(maxlen=RECORDED_STEPS)
        self.buckets: tuple[BucketRecord, ...] = ()  # of the last step
        self._flow: dict[str, float] = {}  # sums of the latest step that was measured
        self._lock = threading.Lock()
        self._ready: collections.deque[tuple] = collections.deque()  # that are not over
        self._over: list[BucketRecord] = []  # of the open step
        self._open = dict.fromkeys(_SUMMED, 0)
        self._totals = dict.fromkeys(_SUMMED, 0)

    def advise(self, first: str) -> None:
        """What to do about steps that are not finite before all else; "": nothing more."""
        self._nonfinite_advice = "; ".join(filter(None, (first, self._nonfinite_advice)))

    def ready(self, names: tuple[str, ...]) -> None:
        """The next bucket's gradients are ready."""
        with self._lock:
            self._ready.append((names, time.monotonic_ns()))

    def end(
        self, error: DeltawireError | None, report, last: bool, also: dict | None = None
    ) -> DeltawireError | None:
        """Ends a bucket: `add`s it, or `fail`s. Returns the error, with advice."""
        if error is None:
            self.add(report, last, also)
            return None
        if self._nonfinite_advice and error.code in ("NotFinite", "Range"):
            error = changed(error, advice=self._nonfinite_advice)
        self.fail(error)
        return error

    def add(self, report, last: bool, also: dict | None = None) -> None:
        """Counts one finished bucket (a `_core.Report`); `last` closes the step, with `also` in
        its record."""
        with self._lock:
            self._count(report)
            if self._ready:  # buckets end in the order in which they became ready
                self._over.append(BucketRecord(*self._ready.popleft(), time.monotonic_ns(), report))
            if last:
                self._close_step(report, also)

    def _count(self, report) -> None:
        step = self._open
        step["buckets"] += 1
        step["elements"] += report.element_count
        step["encode_ms"] += 1e3 * report.encode_seconds
        step["exchange_ms"] += 1e3 * report.exchange_seconds
        step["decode_ms"] += 1e3 * report.decode_seconds
        step["bytes_sent"] += report.bytes_sent
        step["raw_bytes"] += report.raw_bytes

    def _close_step(self, report, also: dict | None) -> None:
        step = self._open
        for key in _SUMMED:
            self._totals[key] += step[key]
        self.records.append(_record(step, report.digest, report.finite) | (also or {}))
        self.steps += 1
        self.nonfinite_steps += not report.finite
        self._flow = report.flow or self._flow
        self._open = dict.fromkeys(_SUMMED, 0)
        self.buckets, self._over = tuple(self._over), []

    def fail(self, error: DeltawireError) -> None:
        """Keeps and logs the first error; later ones follow from it."""
        with self._lock:
            if self.last_error is not None:
                return
            self.last_error = error
        logger.error("rank %d: %s", self.rank, error)

    def metrics(self) -> dict[str, Any]:
        """The last finished step's record, and totals over all steps as `total_...`."""
        with self._lock:
            last = self.records[-1] if self.records else _record(dict.fromkeys(_SUMMED, 0))
            totals = {**self._totals, "ratio": _ratio(self._totals)}
            prefixed = {f"total_{key}": value for key, value in totals.items()}
            counts = {"steps": self.steps, "nonfinite_steps": self.nonfinite_steps}
            return {**counts, **last, **prefixed, **_waiting(self._flow)}


def _record(sums: dict, digest: int | None = None, finite: bool = True) -> dict:
    return {**sums, "ratio": _ratio(sums), "digest": digest, "finite": finite}


def _waiting(flow: dict[str, float]) -> dict[str, float | None]:
    """What error feedback holds back, from the sums of squares of a step: see
    `BaseSession.metrics`."""

    def norms(over: str) -> float | None:
        return math.sqrt(flow["left"] / flow[over]) if flow.get(over) else None

    return {
        "measured_step": int(flow["step"]) if flow else None,
        "residual_to_gradient": norms("given"),
        "waiting_steps": norms("sent"),
        "sent_share": flow["sent_of_due"] / flow["due"] if flow.get("due") else None,
    }


def _ratio(sums: dict) -> float | None:
    """How many times smaller the messages were; None if none was sent."""
    return sums["raw_bytes"] / sums["bytes_sent"] if sums["bytes_sent"] else None


def metrics_of(history: History, session) -> Metrics:
    """The metrics of steps, links and memory: see `BaseSession.metrics`."""
    sent, received = session.traffic()
    memory = session.memory()
    return {
        **history.metrics(),
        "traffic_bytes_sent": sent,
        "traffic_bytes_received": received,
        "residual_bytes": memory.residual_bytes,
        "staging_bytes": memory.staging_bytes,
        "message_bytes": memory.message_bytes,
        "peak_memory_bytes": memory.peak_bytes,
    }
