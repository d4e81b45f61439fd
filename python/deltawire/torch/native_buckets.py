"""Which buckets of a model are native, alike on all ranks, and those of the step under way."""

import contextlib
import datetime
import json
import threading
import weakref

import torch.distributed as dist

from deltawire import _core
from deltawire.errors import DeltawireError, make_error
from deltawire.torch.explanation import NativeTensors
from deltawire.torch.native_step import NativeStep, Ways

LEAST_ELEMENTS = 2  # of tensors that codecs get: a native step's number travels as it is
_LOOKS_EVERY = 1.0  # seconds


class NativeBuckets:
    """Which of a model's buckets are native, alike on all ranks: those whose gradients take fewer
    bytes than `below`. With a codec that keeps residuals so are all dense ones of the first step
    after `register`: DDP cuts its buckets anew after it, and a tensor that such a codec has kept a
    part of has to stay with it.

    Thread rule: as `NativeStep`; `state` and `load` belong to the training loop, between steps.

    Args:
        below: bytes.
        group: whose all-reduce it is.
        spec: of the exchange.
        timeouts: seconds (for an all-reduce that all have begun, for ranks that are late).
        passes_nonfinite: as for `NativeStep`.

    Attributes:
        below: bytes.
        tensors: that were native in the last step, and will be in the next.
    """

    def __init__(
        self,
        below: int,
        group: dist.ProcessGroup,
        spec: str,
        timeouts: tuple[float, float],
        passes_nonfinite: bool,
    ) -> None:
        self.below = below
        self.tensors = NativeTensors()
        self._group = group
        self._keeps = _core.keeps_residual(spec)
        self._timeout, self._longest = timeouts[0], timeouts[0] + max(timeouts)
        self._limit = self._longest
        self._passes_nonfinite = passes_nonfinite
        self._coded: set[str] = set()  # of which a codec has kept something, or may have
        self._first = self._keeps  # the step under way is the first
        self._stop = threading.Event()
        self._watch: threading.Thread | None = None
        self.step: NativeStep | None = None

    def open_step(self, place: tuple[int, float], ways: Ways) -> None:
        """At a step's first bucket; arguments as for `NativeStep`."""
        size = dist.get_world_size(self._group)
        self.step = NativeStep(place, ways, size, self._passes_nonfinite)
        if self._watch is None:
            every = min(_LOOKS_EVERY, self._timeout / 4)
            args = (weakref.ref(self), self._stop, every)
            self._watch = threading.Thread(
                target=_look_now_and_then, args=args, name="deltawire-native", daemon=True
            )
            self._watch.start()

    def takes(self, bucket: dist.GradBucket, names: tuple[str, ...]) -> bool:
        """Whether this bucket is native; every bucket is asked for once. Sparse ones never are."""
        buffer = bucket.buffer()
        if buffer.is_sparse:
            return False
        size = buffer.numel() * buffer.element_size()
        takes = self._first or (size < self.below and self._coded.isdisjoint(names))
        if not takes and self._keeps:
            self._coded.update(names)
        return takes

    def add(self, bucket: dist.GradBucket, names: tuple[str, ...], under_way) -> None:
        """Begins a bucket of the step; `under_way` is ended with it."""
        longest = datetime.timedelta(seconds=self._longest)
        self.step.add(self._group, bucket, names, under_way, longest)

    def issued(self, covered: bool) -> None:
        """After the step's last bucket; see `NativeStep`."""
        names = frozenset(self.step.names)
        self.tensors = NativeTensors(names, frozenset() if self._first else names)
        # The first step may be the whole model: nobody has said how long that takes.
        self._limit = self._longest if self._first else self._timeout
        self._first = False
        self.step.issued(covered)

    def fail(self, error: DeltawireError) -> None:
        """Of the step under way, if there is one."""
        if self.step is not None:
            self.step.fail(error)

    def close(self) -> None:
        """Ends what is under way; idempotent."""
        self._stop.set()
        self.fail(make_error("State", "the hook was closed with native buckets in flight"))

    def state(self) -> str:
        """For checkpoints."""
        return json.dumps({"below": self.below, "coded": sorted(self._coded)})

    def load(self, state: str) -> None:
        """Puts back what `state` gave, after `check_state`."""
        self._coded = set(json.loads(state)["coded"])

    def check_time(self) -> None:
        """Of the step under way."""
        step = self.step
        if step is not None:
            step.check_time(self._limit)


def check_state(natives: NativeBuckets | None, state: dict) -> None:
    """Raises InvalidArgumentError where a hook's state was saved with another `native_below`: what
    a codec has kept of a tensor would stay for ever."""
    said, below = state.get("native"), None
    if said is not None:
        with contextlib.suppress(TypeError, ValueError, KeyError):
            found = json.loads(said)
            below = found["below"] if all(type(n) is str for n in found["coded"]) else None
        if type(below) is not int:
            raise make_error("InvalidArgument", f"the state's native={said!r} is damaged")
    own = natives.below if natives is not None else None
    if below != own:
        raise make_error(
            "InvalidArgument",
            f"the state has native_below={below}, but this hook has {own}; register with "
            f"native_below={below}, or start without the state",
        )


def _look_now_and_then(natives: weakref.ref, stop: threading.Event, every: float) -> None:
    while not stop.wait(every):
        found = natives()
        if found is None:
            return
        found.check_time()
        del found
