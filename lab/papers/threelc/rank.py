"""Workers and servers behind links of a given rate: how long a step takes."""

import contextlib
import statistics
import time

import deltawire.torch
import torch
import torch.distributed as dist

from lab.models.trainings import Training, make_optimizer, make_training
from lab.papers.declaration import Metrics, Settings
from lab.ranks.launcher import Launcher
from lab.ranks.links import parse_link
from lab.ranks.namespaces import Namespaces, interface_bytes
from lab.ranks.rank import Line, Place, process_group

_SILENCE_SECONDS = 900.0  # longer than any run
_SECONDS = 600.0  # the longest wait: a step of float32 over 10 Mbit/s, and all ranks' imports
FEWEST_STEPS = 2


def measure(scale: Settings, cell: Settings, seed: int) -> Metrics:
    """A step's milliseconds and bytes, of one design over one link.

    Raises:
        RanksFailed: a rank ended early, or was silent.
        NamespaceError: this machine has no namespaces for us.
    """
    count, rate = scale["workers"] + scale["servers"], parse_link(cell["link"]).bytes_per_second
    with Namespaces(count, rate) as namespaces, Launcher(run, count, namespaces) as ranks:
        ranks.start(scale, cell, seed)
        (found,) = ranks.messages(_SILENCE_SECONDS)
        return found


class Rank:
    """The work of this rank; the first ones serve. Every method is a collective.

    Args:
        place: the rank's.
        scale, cell, seed: what `measure` was given.
    """

    def __init__(self, place: Place, scale: Settings, cell: Settings, seed: int) -> None:
        self._place, self._scale, self._seed = place, scale, seed
        self._spec, self._batches = cell["spec"], cell["every"]  # to a step
        self._workers = dist.new_group(list(range(scale["servers"], place.ranks)))

    def measure(self) -> dict:
        """Trains with servers. Rank 0 returns the results: a batch's milliseconds and bytes."""
        scale, servers = self._scale, self._scale["servers"]
        training = make_training(scale["network"], scale["size"], self._seed + self._place.rank)
        server = deltawire.torch.ParameterServer(
            training.network,
            make_optimizer(training, "sgd"),
            self._spec,
            servers=servers,
            interface=self._place.address,
            timeout=_SECONDS,
        )
        with contextlib.closing(server):
            found = self._serve(server) if server.serves else self._work(training, server)
        gathered: list[dict] = [{} for _ in range(dist.get_world_size())]
        dist.all_gather_object(gathered, found)
        # A step takes as long for every worker; the first one's is shown, and the busiest server's.
        first = gathered[servers]
        busiest = max(gathered[:servers], key=lambda each: each["server_sent"])
        return {**first, **busiest}

    def _serve(self, server: deltawire.torch.ParameterServer) -> dict:
        traffic = []
        server.serve(after_step=lambda: traffic.append(interface_bytes(self._place.interface)))
        sent, received = (
            (after - before) / max(1, len(traffic) - 1) / self._batches
            for before, after in zip(traffic[0], traffic[-1], strict=True)
        )
        encodes = server.metrics()["encodes_per_step"]
        return {"server_sent": sent, "server_received": received, "encodes": encodes}

    def _work(self, training: Training, server: deltawire.torch.ParameterServer) -> dict:
        """Times steps; their number depends on the slowest rank's last step of the warm-up."""
        scale, batches = self._scale, self._batches

        def step(number: int) -> float:
            began = time.perf_counter()
            training.network.zero_grad()
            for batch in range(batches):
                waits = batch + 1 < batches
                with server.no_sync() if waits else contextlib.nullcontext():
                    training.loss_at(number * batches + batch, training.network).backward()
            server.step()
            return 1e3 * (time.perf_counter() - began)

        server.start()
        last = [step(number) for number in range(scale["warm_up"])][-1]
        slowest = torch.tensor(last, dtype=torch.float64)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX, group=self._workers)
        in_time = int(1e3 * scale["seconds"] / slowest.item())
        wanted = max(FEWEST_STEPS, min(scale["steps"], in_time))
        before = server.metrics()
        times = [step(scale["warm_up"] + number) / batches for number in range(wanted)]
        after = server.metrics()
        pushed, pulled = (
            (after[way] - before[way]) / wanted / batches for way in ("push_bytes", "pull_bytes")
        )
        return {
            **{"ms": statistics.median(times), "low_ms": min(times), "high_ms": max(times)},
            **{"steps": wanted, "push_bytes": pushed, "pull_bytes": pulled},
        }


def run(place: Place, line: Line, scale: Settings, cell: Settings, seed: int) -> None:
    """Measures on one rank."""
    with process_group(place, _SECONDS):
        found = Rank(place, scale, cell, seed).measure()
        if place.rank == 0:
            line.send(found)
        dist.barrier()
