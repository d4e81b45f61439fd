"""DDP over slow links: the time of an all-reduce alone, and of whole steps."""

import contextlib
import statistics
import time

import deltawire.torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from lab.models.trainings import make_optimizer, make_training
from lab.papers.declaration import Metrics, Settings
from lab.ranks.launcher import Launcher
from lab.ranks.links import parse_link
from lab.ranks.namespaces import Namespaces
from lab.ranks.rank import Line, Place, process_group

PLAIN = "plain"  # DDP's own all-reduce, by Gloo
_SECONDS = 600.0
_SETTLING = 3  # steps before the gradients that the all-reduce is measured with


def measure(scale: Settings, cell: Settings, seed: int) -> Metrics:
    """Milliseconds of an all-reduce or of a step.

    Raises:
        RanksFailed: a rank ended early, or was silent.
        NamespaceError: this machine has no namespaces for us.
    """
    workers = cell["workers"] or scale["workers"]
    rate = parse_link(cell["link"] or scale["link"]).bytes_per_second
    with Namespaces(workers, rate) as namespaces, Launcher(run, workers, namespaces) as ranks:
        ranks.start(scale, cell, seed)
        (found,) = ranks.messages(_SECONDS)
        return found


def run(place: Place, line: Line, scale: Settings, cell: Settings, seed: int) -> None:
    """Measures on one rank; rank 0 sends the results."""
    spec = cell["spec"]
    with process_group(place, _SECONDS):
        training = make_training("lenet5", scale["size"], seed + place.rank)
        for parameter in training.network.parameters():
            dist.broadcast(parameter.detach(), 0)  # as DDP will, but before the settling
        optimizer = make_optimizer(training, "sgd")
        model = DistributedDataParallel(training.network)
        with contextlib.ExitStack() as ending:
            if spec != PLAIN and place.ranks > 1:
                hook = deltawire.torch.register(
                    model,
                    spec,
                    interface=place.address,
                    optimizer=optimizer if deltawire.uses_significance(spec) else None,
                )
                ending.callback(hook.close)

            def step(number: int) -> None:
                optimizer.zero_grad()
                training.loss_at(number, model).backward()
                optimizer.step()

            for number in range(_SETTLING):
                step(number)
            training.network.zero_grad()
            training.loss_at(_SETTLING).backward()
            gradients = [p.grad.clone() for p in training.network.parameters()]

            def all_reduce(number: int) -> None:
                # Its backward pass gives the recorded gradients at once, so that little but the
                # exchange is timed. The forward pass tells DDP that a step begins.
                optimizer.zero_grad()
                outputs = model(*training.batch_at(number)[0])
                products = zip(training.network.parameters(), gradients, strict=True)
                loss = sum((p * gradient).sum() for p, gradient in products) + 0 * outputs.sum()
                dist.barrier()
                nonlocal began
                began = time.perf_counter()
                loss.backward()

            began, times = 0.0, []
            for number in range(1 + scale["steps"]):
                dist.barrier()
                began = time.perf_counter()
                (step if cell["whole_steps"] else all_reduce)(_SETTLING + number)
                times.append(1e3 * (time.perf_counter() - began))
            dist.barrier()
        timed = times[1:]
        if place.rank == 0:
            median = statistics.median(timed)
            per_second = 1e3 * 64 * place.ranks / median
            line.send({"ms": median, "low_ms": min(timed), "samples_per_second": per_second})
        dist.barrier()
