"""The native buckets of a step: the process group's own all-reduce carries them, beside coded ones.

A step of both counts whole or not at all. Its native means are handed over when the step's vote is
through, and a rank votes only when it holds them: the last thing that a step exchanges is one
number that stands for its native buckets, submitted when they are over, NaN where one of them is
not finite. The vote compares a digest of their means besides (docs/design/commit.md).
"""

import dataclasses
import hashlib
import threading
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

from deltawire import _core
from deltawire.errors import DeltawireError, make_error, with_advice
from deltawire.history import BucketRecord, History
from deltawire.torch import native
from deltawire.torch.explanation import bytes_in_all_reduce

NAME = "(native buckets)"  # of the number; no rule can name it
_LAST_INDEX = 65_535  # of a step's buckets

Done = Callable[[DeltawireError | None, object], None]


@dataclasses.dataclass(frozen=True)
class NativeReport:
    """What a native bucket cost, under the names of the core's `Report`. What was sent is not
    measured: an all-reduce of N ranks is taken to send 2 (N-1) / N of the values."""

    element_count: int
    bytes_sent: int
    exchange_seconds: float
    spans: tuple[tuple[str, int, int], ...]
    encode_seconds: float = 0.0
    decode_seconds: float = 0.0

    @property
    def raw_bytes(self) -> int:
        """Nothing was saved."""
        return self.bytes_sent


@dataclasses.dataclass(frozen=True)
class Ways:
    """What a step asks its hook for.

    Attributes:
        exchange: of (where a number stands, it, done): exchanges the number that stands for the
            buckets. May raise.
        abort: tells all ranks, in words.
        give_up: ends the exchange on every rank, because of an exception here.
        history: gets the records.
    """

    exchange: Callable[[_core.Step, float, Done], None]
    abort: Callable[[str], None]
    give_up: Callable[[Exception], None]
    history: History


class NativeStep:
    """The native buckets of one step, from the first one's gradients until the step counts.

    Thread rule: `add` and `issued` belong to the thread of backward, the rest to any thread.

    Args:
        place: (number of the step, its loss scale).
        ways: of its hook.
        world_size: of the ranks.
        passes_nonfinite: a step that is not finite leaves no trace, and is to be told of.
    """

    def __init__(
        self,
        place: tuple[int, float],
        ways: Ways,
        world_size: int,
        passes_nonfinite: bool,
    ) -> None:
        self._place = place
        self._ways = ways
        self._history = ways.history
        self._world_size = world_size
        self._passes_nonfinite = passes_nonfinite
        self._lock = threading.Lock()
        self._buckets: list[_Bucket] = []
        self._pending = 0
        self._issued = self._closing = self._ended = False
        self._failed: DeltawireError | None = None  # here, and the others don't know yet
        self._error: DeltawireError | None = None  # that ended them
        self._since: float | None = None  # all ranks have begun all buckets

    @property
    def any(self) -> bool:
        """Whether a native bucket belongs to the step."""
        return bool(self._buckets)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the tensors."""
        return tuple(name for bucket in self._buckets for name in bucket.names)

    def add(self, group, bucket: dist.GradBucket, names, under_way, timeout) -> None:
        """Begins a bucket. What has failed before ends it: others would wait for it in vain."""
        added = _Bucket(bucket.index(), names, under_way)
        with self._lock:
            ended = self._ended
            if not ended:
                self._buckets.append(added)
                self._pending += 1
        if ended:
            under_way.end(self._error)
            return
        native.all_reduce(group, bucket, timeout).then(lambda future: self._over(added, future))

    def issued(self, covered: bool) -> None:
        """After the step's last bucket. The exchange of a coded one, which came after all native
        ones (`covered`), or of a number shows when all ranks have begun all: until then it is the
        core that waits for late ranks, and names dead and frozen ones."""
        if not self.any:
            return
        if not covered:
            self._ways.exchange(self._step(_LAST_INDEX - 1), 0.0, self._number_came)
        with self._lock:
            self._issued = True
        self._go_on()

    def begun_everywhere(self) -> None:
        """What `issued` speaks of has been exchanged."""
        self._since = time.monotonic()

    def _number_came(self, error: DeltawireError | None, report) -> None:
        if error is None:
            self._history.add_beside(report)
            self.begun_everywhere()
        else:
            self.fail(self._history.end(error, report, False))

    def check_time(self, timeout: float) -> None:
        """Takes what has been under way for longer, in seconds, for failed."""
        since = self._since
        with self._lock:
            late = [bucket.index for bucket in self._buckets if bucket.over_ns is None]
            waits = since is not None and late and self._failed is None
            if not waits or time.monotonic() - since <= timeout:
                return
            self._failed = make_error(
                "Timeout",
                f"rank {self._history.rank}: the native all-reduce of bucket {late[0]} took longer "
                f"than {timeout:g} s, though all ranks had begun it",
            )
        self._go_on()

    def fail(self, error: DeltawireError) -> None:
        """Ends all of them; once."""
        self._end(error)

    def _over(self, bucket: "_Bucket", future: torch.futures.Future) -> None:
        failed = None
        try:
            future.wait()  # it is over; raises what went wrong
            bucket.over(self._world_size, self._passes_nonfinite)
        except Exception as cause:
            what = str(cause).partition("\n")[0]
            failed = make_error(
                "Aborted",
                f"rank {self._history.rank}: the native all-reduce of bucket {bucket.index} "
                f"failed: {what}",
            )
        with self._lock:
            self._pending -= failed is None
            self._failed = self._failed or failed
        self._go_on()

    def _go_on(self) -> None:
        """To the step's vote, when all are over; after a failure to what tells of it."""
        with self._lock:
            ready = self._issued and (self._failed is not None or not self._pending)
            if not ready or self._closing or self._ended:
                return
            self._closing = True
        try:
            if self._failed is not None:
                # Not the step's last: nobody votes. Whom it finds dead or frozen, the error names.
                self._ways.exchange(self._step(_LAST_INDEX), 0.0, self._failed_here)
                return
            finite = all(bucket.finite for bucket in self._buckets)
            number = 0.0 if finite else float("nan")
            step = self._step(_LAST_INDEX, last=True, agreed=self._digest())
            self._ways.exchange(step, number, self._voted)
        except Exception as cause:
            self._ways.give_up(cause)

    def _step(self, bucket: int, last: bool = False, agreed: int = 0) -> _core.Step:
        number, scale = self._place
        return _core.Step(number, bucket, last, scale, agreed, timed=True)

    def _failed_here(self, error: DeltawireError | None, report) -> None:
        if error is not None:
            error = with_advice(error, str(self._failed))
            self.fail(self._history.end(error, report, False))
            return
        try:
            # All live. What is exchanged next fails, and so takes the open step back here, too.
            self._ways.abort(str(self._failed))
            self._ways.exchange(self._step(_LAST_INDEX), 0.0, self._taken_back)
        except Exception as cause:
            self._ways.give_up(cause)

    def _taken_back(self, error: DeltawireError | None, report) -> None:
        error = self._history.end(error or self._failed, report, False)
        self.fail(error)

    def _voted(self, error: DeltawireError | None, report) -> None:
        try:
            if error is not None:
                error = self._history.end(error, report, True)
                return
            for bucket in self._buckets:
                self._history.add_native(bucket.index, bucket.record())
            sent = sum(bucket.report.bytes_sent for bucket in self._buckets)
            digest = report.digest ^ self._digest()
            self._history.add_beside(report, {"native_bytes": sent, "digest": digest})
        except Exception as cause:
            error = make_error("Aborted", f"{type(cause).__name__}: {cause}")
            self._ways.give_up(error)
        finally:
            self._end(error)

    def _digest(self) -> int:
        """Of all means: never 0, which would be none."""
        state = hashlib.blake2b(digest_size=8)
        for bucket in self._buckets:
            state.update(bucket.digest)
        return int.from_bytes(state.digest(), "little") or 1

    def _end(self, error: DeltawireError | None) -> None:
        with self._lock:
            if self._ended:
                return
            self._ended, self._error = True, error
            buckets = list(self._buckets)
        for bucket in buckets:
            bucket.under_way.end(error)


class _Bucket:
    """A native bucket of one step."""

    def __init__(self, index: int, names: tuple[str, ...], under_way) -> None:
        self.index = index
        self.names = names
        self.under_way = under_way
        self.ready_ns = time.monotonic_ns()
        self.over_ns: int | None = None
        self.finite = True
        self.digest = b""
        self.report: NativeReport | None = None

    def over(self, world_size: int, passes_nonfinite: bool) -> None:
        """The mean is there."""
        self.over_ns = time.monotonic_ns()
        mean = self.under_way.buffer
        if passes_nonfinite:
            self.finite = bool(torch.isfinite(mean).all())
        values = memoryview(mean.detach().view(torch.uint8).numpy())
        self.digest = hashlib.blake2b(values, digest_size=8).digest()
        self.report = NativeReport(
            mean.numel(),
            bytes_in_all_reduce(mean.numel() * mean.element_size(), world_size),
            1e-9 * (self.over_ns - self.ready_ns),
            (("exchange", self.ready_ns, self.over_ns),),
        )

    def record(self) -> BucketRecord:
        return BucketRecord(self.names, self.ready_ns, self.over_ns, self.report, native=True)
