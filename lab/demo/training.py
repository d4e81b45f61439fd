"""One row of the demo on one rank: the network, trained with one method."""

import dataclasses
import hashlib
import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_

from lab.data.batches import Batches
from lab.demo.exchange import make_exchange
from lab.demo.methods import Method
from lab.demo.settings import COMPUTE_STEPS, POINT_IMAGES, Settings
from lab.models.evaluate import Evaluator

_WARM_UP_STEPS = 2
_SECONDS_BETWEEN_NEWS = 0.1
_PARTS = ("encode_ms", "exchange_ms", "decode_ms")


class RowFailed(Exception):
    """The row can't go on; the process group may be broken."""


@dataclasses.dataclass(frozen=True)
class Resources:
    """What a worker needs for a training.

    Attributes:
        settings: with this training's seed.
        interface: the address at which the other ranks reach this one.
    """

    settings: Settings
    batches: Batches
    evaluator: Evaluator
    interface: str


def run_row(resources: Resources, method: Method, tell: Callable[[dict], None]) -> dict:
    """Trains, and returns this rank's report for `lab.demo.results`. All ranks call it at the same
    time.

    Args:
        tell: called with news ("step" and "point" events) during the training.

    Raises:
        RowFailed: with the reason in one line.
    """
    settings = resources.settings.of_row(method)
    resources = dataclasses.replace(resources, settings=settings)
    # On a separate network, because a forward pass changes the statistics of batch normalization.
    compute_ms = _measure_compute(resources, settings.workload.make_network(settings.seed))
    network = settings.workload.make_network(settings.seed)
    if settings.optimizer == "adamw":
        optimizer = torch.optim.AdamW(network.parameters(), settings.lr)
    else:
        optimizer = torch.optim.SGD(network.parameters(), settings.lr, settings.momentum)
    exchange = make_exchange(network, optimizer, method, settings, resources.interface)
    try:
        training = _Training(resources, network, optimizer, exchange, tell)
        training.run(method.steps_per_exchange)
        dist.barrier()  # all ranks have sent their last votes before bytes are counted
        report = training.report()
    except Exception as cause:
        raise RowFailed(" ".join(exchange.error_text(cause).split())) from cause
    finally:
        exchange.close()
    weights = b"".join(each.detach().numpy().tobytes() for each in network.parameters())
    digest = hashlib.sha256(weights).hexdigest()
    return {**report, "compute_ms": compute_ms, "parameters": digest}


class _Training:
    """The training loop and its clock, which stops during evaluation."""

    def __init__(self, resources: Resources, network, optimizer, exchange, tell) -> None:
        self._resources = resources
        self._network = network
        self._optimizer = optimizer
        self._exchange = exchange
        self._tell = tell
        self._step_ms: list[float] = []  # per step; in rounds of several steps, their mean
        self._part_ms: dict[str, list[float]] = {part: [] for part in _PARTS}
        self._digests = hashlib.sha256()
        self._points: list[dict] = []
        self._last_news = 0.0

    def run(self, steps_per_exchange: int) -> None:
        """Runs all steps. Within a round of local steps the ranks differ, so nothing is measured
        there."""
        self._take_point(0)
        steps = self._resources.settings.steps
        start = 0
        while start < steps:
            end = min(start + steps_per_exchange, steps)
            self._train_round(start, end)
            if (now := time.monotonic()) - self._last_news >= _SECONDS_BETWEEN_NEWS:
                self._last_news, recent = now, statistics.median(self._step_ms[-20:])
                self._tell({"event": "step", "step": end, "ms_per_step": recent})
            if self._resources.settings.is_point(start, end):
                self._take_point(end)
            start = end

    def _train_round(self, start: int, end: int) -> None:
        """Takes the steps up to the next exchange; the last round may be shorter."""
        started = time.perf_counter()
        for step in range(start, end):
            for group in self._optimizer.param_groups:
                group["lr"] = self._resources.settings.learning_rate(step)
            images, labels = self._resources.batches.at(step)
            self._optimizer.zero_grad()
            cross_entropy(self._exchange.model(images), labels).backward()
            if self._resources.settings.clip > 0:
                clip_grad_norm_(self._network.parameters(), self._resources.settings.clip)
            self._exchange.take_step()
        if end == self._resources.settings.steps:
            self._exchange.finish()
        steps = end - start
        self._step_ms.extend([1e3 * (time.perf_counter() - started) / steps] * steps)
        record = self._exchange.last_record()
        for part in _PARTS:
            self._part_ms[part].append(record[part] / steps)
        self._digests.update(repr(record["digest"]).encode())

    def _take_point(self, finished_steps: int) -> None:
        """Measures accuracy: after the last step on all test images, before it on the first of
        them."""
        is_last = finished_steps == self._resources.settings.steps
        bytes_sent = self._exchange.bytes_sent()
        accuracy = self._resources.evaluator.accuracy(
            self._network, None if is_last else POINT_IMAGES
        )
        point = {
            "step": finished_steps,
            "seconds": sum(self._step_ms) / 1e3,
            "wire_mb": bytes_sent / 1e6,
            "accuracy": accuracy,
        }
        self._points.append(point)
        self._tell({"event": "point", **point})
        dist.barrier()

    def report(self) -> dict:
        parts = {part: statistics.median(self._part_ms[part]) for part in _PARTS}
        return {
            "accuracy": self._points[-1]["accuracy"],
            "ms_per_step": statistics.median(self._step_ms),
            **parts,
            "bytes_sent": self._exchange.bytes_sent(),
            "digests": self._digests.hexdigest(),
            "points": self._points,
        }


def _measure_compute(resources: Resources, network: torch.nn.Module) -> float:
    """Median milliseconds of a step without exchange, on all ranks at once, before training."""
    dist.barrier()
    measured = []
    for step in range(_WARM_UP_STEPS + COMPUTE_STEPS):
        started = time.perf_counter()
        images, labels = resources.batches.at(step)
        network.zero_grad()
        cross_entropy(network(images), labels).backward()
        measured.append(1e3 * (time.perf_counter() - started))
    return statistics.median(measured[_WARM_UP_STEPS:])
