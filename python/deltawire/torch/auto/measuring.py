"""A rank's measurements: when its steps end, and, before a plan, the link and the codecs on its own
gradients."""

import concurrent.futures
import dataclasses
import math
import platform
import statistics
import threading
import time

import torch
import torch.distributed as dist

from deltawire import _core
from deltawire.arguments import ranks_of_host
from deltawire.planner import Machine
from deltawire.torch.auto import codec_figures
from deltawire.torch.auto.clocks import Clock, copy_seconds
from deltawire.torch.auto.connector import Connector
from deltawire.torch.core import arguments
from deltawire.torch.ddp.parameters import DDPParameters

_UNCODED = "fp32"
PROBE_SPEC = "gather(fp32)"  # everybody sends everything to all: the rate is the slowest rank's
_FEW = 64  # elements: such a message takes the latency alone
_TRIES = 7
_FIRST = 1 << 14  # elements
_MOST = 1 << 21
_LONG_SECONDS = 0.03  # a message that takes this long shows the rate


class Measuring:
    """A rank's measurements for one plan after another, in pieces, so that no step waits for all of
    them.

    Args:
        connector: opens sessions; knows the settings and the model's tensors.
        probe: a session of `PROBE_SPEC` for the first plan; later ones are opened when needed.

    Attributes:
        pieces: their number, the same on all ranks.
    """

    def __init__(self, connector: Connector, probe: _core.Session | None) -> None:
        self._connector = connector
        dtypes = {dtype for *_, dtype in connector.parameters.tensors}
        self._specs = codec_figures.candidates(connector.tier, dtypes)
        self._session = probe
        self._sample: Sample | None = None
        self._failed: str | None = None
        self._copies = 0.0, 0.0  # seconds a byte, from the model's device and back
        self.pieces = 1 + LinkProbe.PIECES + self._trials_of({}).rounds
        self._left = 0
        self._steps: dict = {}
        self._probe: LinkProbe | None = None
        self._trials: codec_figures.Trials | None = None

    def sample(self, bucket: dist.GradBucket) -> None:
        """Copies a bucket, before its exchange, of the step to measure with. Never raises."""
        try:
            if bucket.index() == 0:
                self._sample = Sample(self._connector.parameters, self._connector.clock)
            if self._sample is not None:
                self._sample.add(bucket)
        except Exception as cause:
            self._failed = f"{type(cause).__name__}: {cause}"

    def advance(self, steps: dict) -> bool:
        """Does the next piece, a collective; returns whether it was the last. Never raises:
        `figures` reports a failure, and the other ranks go on. After the last piece it starts
        again.

        Args:
            steps: `ready` and `ends` of the native steps so far. The plan uses those given with the
                first piece.
        """
        if self._left == 0:
            self._left, self._trials, self._steps = self.pieces, None, steps
        piece, self._left = self.pieces - self._left, self._left - 1
        try:
            if self._failed is None:
                self._advance(piece)
        except Exception as cause:
            self.abort(f"measuring failed: {cause}")
            self._failed = f"{type(cause).__name__}: {cause}"
        return self._left == 0

    def _advance(self, piece: int) -> None:
        if piece == 0:
            if self._session is None:
                self._session = self._connector.session(PROBE_SPEC)
            timeout_ms = arguments.timeout_in_ms(self._connector.settings.timeout)
            self._probe = LinkProbe(self._session, self._connector.place[1], timeout_ms)
            if self._connector.is_staged:
                self._copies = copy_seconds(self._connector.device, self._connector.clock)
        elif piece <= LinkProbe.PIECES:
            self._probe.advance()
        else:
            if self._trials is None:
                sample = self._sample
                self._trials = self._trials_of(sample.taken() if sample is not None else {})
            self._trials.advance()

    def _trials_of(self, parts: dict) -> codec_figures.Trials:
        least = self._connector.settings.coding.min_elements
        specs = [_UNCODED, *map(self._connector.fitted, self._specs)]
        return codec_figures.Trials(specs, parts, least)

    def figures(self) -> dict:
        """This rank's measurement for `decision.choose`, after the last piece. If something has
        failed, its only key is "problem"."""
        if self._failed is not None:
            return {"problem": self._failed}
        sample, processors = self._sample, _core.processors()
        cores = processors / max(1, ranks_of_host())
        threads = self._connector.settings.coding.threads
        found, refused = self._trials.results()
        uncoded = _core.Spec(_UNCODED).text
        reasons = {each["spec"]: self._connector.unfit(each["spec"]) for each in found}
        fit = [each for each in found if not reasons[each["spec"]]]
        return self._steps | {
            "buckets": sample.buckets if sample is not None else [],
            "value_bytes": sample.value_bytes if sample is not None else [],
            "figures": [each for each in fit if each["spec"] != uncoded],
            "uncoded": next((each for each in found if each["spec"] == uncoded), None),
            "refused": [*refused, *filter(None, reasons.values())],
            "link": self._probe.result(Machine(cores=cores)),
            "copies": self._copies,
            "shares_memory": self._session.shares_memory(),
            "host": platform.node(),
            "processors": processors,
            "threads": threads or max(1, min(8, int(cores))),
        }

    def end(self) -> None:
        """Closes the session and frees the gradients."""
        self._sample, self._left = None, 0
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def abort(self, reason: str) -> None:
        """Fails a measurement under way on every rank."""
        if self._session is not None:
            self._session.abort(reason)


class LinkProbe:
    """Measures the link's rate and latency with growing messages, on all ranks at once. Each piece
    is a collective that times one message.

    Args:
        session: one of `PROBE_SPEC`.
        world_size: its number of ranks.
        timeout_ms: for one exchange.
    """

    PIECES = 12  # the latency, five sizes twice, and what the last one took

    def __init__(self, session: _core.Session, world_size: int, timeout_ms: int) -> None:
        self._session = session
        self._world_size = world_size
        self._timeout_ms = timeout_ms
        self._steps = 0
        self._slowest = 0.0  # seconds of the previous exchange, averaged over the ranks
        self._piece = 0
        self._elements, self._took = _FIRST, 0.0
        self._small = 0.0
        self._before = 0.0, _FEW  # (seconds, elements) of the size before
        self._over = False

    def advance(self) -> None:
        """Does the next piece. Raises DeltawireError on every rank if an exchange fails."""
        number, self._piece = self._piece, self._piece + 1
        if self._over:
            return
        # All ranks begin the next exchange at once; it carries what the last one took.
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
        """(bytes a second in both directions at once, one-way latency in seconds), after all
        pieces."""
        others = self._world_size - 1
        more = 4.0 * others * (self._elements - self._before[1])
        rate = more / max(self._took - self._before[0], 1e-9)
        # Messages and votes.
        working = 4 * others * machine.message_seconds / min(1.0, machine.cores)
        return rate, max(0.0, (self._small - working) / 2)

    def _exchange(self, elements: int) -> float:
        values = torch.zeros(elements, dtype=torch.float32, device="cpu")
        values[0] = self._slowest
        done = concurrent.futures.Future()
        began = time.perf_counter()
        self._session.submit(
            [("probe", values.data_ptr(), values.nbytes, (elements,))],
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


class Sample:
    """This rank's gradients of one step, cut as exchanges cut them; a part of them if the model is
    large.

    Args:
        parameters: the model's.
        clock: of their device.

    Attributes:
        buckets: for each bucket, [(name, elements)] of its tensors.
        value_bytes: for each bucket, bytes a value in the all-reduce.
    """

    def __init__(self, parameters: DDPParameters, clock: Clock) -> None:
        self._parameters = parameters
        self._clock = clock
        elements = sum(math.prod(shape) for _, shape, _ in parameters.tensors)
        self._share = min(1.0, codec_figures.MOST_VALUES / max(1, elements))
        self.buckets: list[list[tuple[str, int]]] = []
        self.value_bytes: list[int] = []
        self._parts: dict[str, torch.Tensor] = {}
        self._finite: list[torch.Tensor] = []

    def add(self, bucket: dist.GradBucket) -> None:
        """Copies a bucket, on its device. Call it before the all-reduce, which replaces the
        gradients."""
        named = zip(bucket.parameters(), bucket.gradients(), strict=True)
        tensors = [(self._parameters.name_of(parameter), gradient) for parameter, gradient in named]
        self.value_bytes.append(bucket.buffer().element_size())
        self.buckets.append([(name, gradient.numel()) for name, gradient in tensors])
        for name, gradient in tensors:
            flat = gradient.detach().reshape(-1)
            self._finite.append(torch.isfinite(flat).all())
            most = int(self._share * flat.numel()) + 1
            for first, count in codec_figures.sample_places(flat.numel(), most):
                part = flat[first : first + count]
                self._parts[f"{name}@{first}"] = part.clone()

    def taken(self) -> dict[str, torch.Tensor]:
        """The copies by name, on the CPU; none unless all gradients are finite. Waits for the
        device. Raises DeltawireError ("Timeout")."""
        self._clock.wait(self._clock.now())
        if not all(self._finite):
            return {}
        return {name: part.cpu() for name, part in self._parts.items()}


@dataclasses.dataclass(frozen=True)
class StepTimes:
    """One rank's step, in seconds since its forward pass.

    Attributes:
        ready: for each bucket, in the order of exchange, when its gradients were complete.
        end: when the means of all buckets were in place.
        coded: whether they went through deltawire.
    """

    ready: tuple[float, ...]
    end: float
    coded: bool = False


class StepClock:
    """Collects the times of steps.

    Thread rule: `begin`, `ready` and `restart` belong to the training loop and its backward pass,
    `over` and `times` to any thread.

    Args:
        clock: of the model's device.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._skip = 0
        self._recorded: list[tuple] = []  # (moments, coded) of steps that are not in `_times` yet
        self._times: list[StepTimes] = []
        self._forget()

    def _forget(self) -> None:
        self._moments: list = []  # of the step under way: its start, and each bucket's readiness
        self._left = 0
        self._complete = self._coded = False

    def restart(self, skip: int) -> None:
        """Forgets all steps and skips the next `skip`, while caches and connections are cold."""
        with self._lock:
            self._times.clear()
            self._recorded.clear()
            self._skip = skip
            self._forget()

    def begin(self) -> None:
        """A forward pass begins. With gradient accumulation only the first of a step counts."""
        with self._lock:
            if not self._moments:
                self._moments.append(self._clock.now())

    def ready(self, last: bool, coded: bool = False) -> None:
        """A bucket is ready for its exchange: `last` of the step; `coded` as in `StepTimes`."""
        with self._lock:
            if self._moments:
                self._moments.append(self._clock.now())
            self._left += 1
            self._complete, self._coded = last, coded

    def over(self) -> None:
        """A bucket's exchange is over."""
        with self._lock:
            self._left -= 1
            if self._left or not self._complete:
                return
            moments, coded = [*self._moments, self._clock.now()], self._coded
            self._forget()
            if self._skip:
                self._skip -= 1
            elif len(moments) > 1 and None not in moments:
                self._recorded.append((moments, coded))
            self._read()

    def _read(self) -> None:
        """Turns moments of steps that the device has ended into times."""
        while self._recorded and self._clock.is_over(self._recorded[0][0][-1]):
            (start, *others), coded = self._recorded.pop(0)
            *ready, end = (self._clock.seconds(start, moment) for moment in others)
            self._times.append(StepTimes(tuple(ready), end, coded))

    def times(self) -> list[StepTimes]:
        """The steps since `restart`, oldest first. Waits for their device. Raises DeltawireError
        ("Timeout")."""
        with self._lock:
            latest = self._recorded[-1][0][-1] if self._recorded else None
        if latest is not None:
            self._clock.wait(latest)
        with self._lock:
            self._read()
            return list(self._times)
