"""A rank: its part of every row. Rank 0 sends an event for each row and for each new link."""

import contextlib
import dataclasses
import statistics
import time
from collections.abc import Callable

import deltawire.torch
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from lab.models.trainings import Training, make_optimizer, make_training
from lab.papers.threelc.rows import Row
from lab.ranks.namespaces import interface_bytes
from lab.ranks.rank import Line, Place, process_group

_SECONDS = 600.0  # the longest wait: a step of float32 over 10 Mbit/s, and all ranks' imports
_FEWEST_STEPS = 2


@dataclasses.dataclass(frozen=True)
class Job:
    """What a rank does; ranks below `servers` serve.

    Attributes:
        network, size, seed: the training, as `lab.models.trainings` names it.
        rows: grouped by link.
        steps: the most timed steps of a row.
        seconds: about how long the timed steps of a row take.
        warm_up: untimed steps before.
    """

    servers: int
    network: str
    size: str
    seed: int
    rows: tuple[Row, ...]
    steps: int
    seconds: float
    warm_up: int


class Rank:
    """The work of this rank. Every method is a collective."""

    def __init__(self, place: Place, line: Line, job: Job) -> None:
        self._place, self._line, self._job = place, line, job
        self._workers = dist.new_group(list(range(job.servers, place.ranks)))
        self._is_server = place.rank < job.servers

    def run(self) -> None:
        """Runs all rows; rank 0 asks for each new link, and waits until it is set up."""
        link = None
        for row in self._job.rows:
            if row.link != link:
                self._ask_for(row.link)
                link = row.link
            found = self._direct(row) if row.direct else self._served(row)
            gathered: list[dict] = [{} for _ in range(dist.get_world_size())]
            dist.all_gather_object(gathered, found)
            if self._place.rank == 0:
                self._line.send({"event": "row", **self._summary(row, gathered)})

    def _ask_for(self, link: str) -> None:
        dist.barrier()
        if self._place.rank == 0:
            self._line.send({"event": "link", "link": link})
            self._line.receive()
        dist.barrier()

    def _training(self) -> Training:
        return make_training(self._job.network, self._job.size, self._job.seed + self._place.rank)

    def _traffic(self) -> tuple[int, int]:
        """Bytes that this rank has sent and received, headers included."""
        return interface_bytes(self._place.interface)

    def _direct(self, row: Row) -> dict:
        if self._is_server:
            return {}
        training = self._training()
        optimizer = make_optimizer(training, "sgd")
        model = DistributedDataParallel(training.network, process_group=self._workers)
        hook = deltawire.torch.register(model, row.spec, interface=self._place.address)

        def step(number: int) -> bool:
            optimizer.zero_grad()
            training.loss_at(number, model).backward()
            optimizer.step()
            return True

        with contextlib.closing(hook):
            found = self._steps(step)
            dist.barrier(self._workers)
        return found

    def _served(self, row: Row) -> dict:
        training = self._training()
        server = deltawire.torch.ParameterServer(
            training.network,
            make_optimizer(training, "sgd"),
            row.spec,
            servers=self._job.servers,
            backup=row.backup,
            staleness=row.staleness,
            overlap=row.overlap,
            interface=self._place.address,
            timeout=_SECONDS,
        )
        with contextlib.closing(server):
            return self._serve(server) if server.serves else self._work(row, training, server)

    def _serve(self, server: deltawire.torch.ParameterServer) -> dict:
        traffic = []
        server.serve(after_step=lambda: traffic.append(self._traffic()))
        sent, received = (
            (after - before) / max(1, len(traffic) - 1)
            for before, after in zip(traffic[0], traffic[-1], strict=True)
        )
        encodes = server.metrics()["encodes_per_step"]
        return {"sent": sent, "received": received, "encodes": encodes}

    def _work(self, row: Row, training: Training, server: deltawire.torch.ParameterServer) -> dict:
        is_slow = row.slowness > 1 and self._place.rank == dist.get_world_size() - 1

        computing = 0.0  # seconds, in the step before

        def step(number: int) -> bool:
            nonlocal computing
            if is_slow:
                time.sleep((row.slowness - 1) * computing)
            began = time.perf_counter()
            training.network.zero_grad()
            training.loss_at(number, training.network).backward()
            computing = time.perf_counter() - began
            return server.step()

        server.start()
        found = self._steps(step, lambda: server.metrics())
        found["late"] = server.metrics()["late_pushes"]
        return found

    def _steps(self, step: Callable[[int], bool], metrics: Callable[[], dict] = dict) -> dict:
        """Times steps; their number depends on the slowest rank's last step of the warm-up."""
        for number in range(self._job.warm_up):
            began = time.perf_counter()
            step(number)
        slowest = torch.tensor(time.perf_counter() - began, dtype=torch.float64)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX, group=self._workers)
        wanted = max(_FEWEST_STEPS, min(self._job.steps, int(self._job.seconds / slowest.item())))
        before, traffic = metrics(), self._traffic()
        step_ms = []
        for number in range(wanted):
            began = time.perf_counter()
            if not step(self._job.warm_up + number):
                break
            step_ms.append(1e3 * (time.perf_counter() - began))
        after, count = metrics(), max(1, len(step_ms))
        sent, received = (
            (now - then) / count for then, now in zip(traffic, self._traffic(), strict=True)
        )
        ways = {
            way: (after[way] - before[way]) / count
            for way in ("push_bytes", "pull_bytes")
            if way in after
        }
        return {"step_ms": step_ms, "sent": sent, "received": received, **ways}

    def _summary(self, row: Row, gathered: list[dict]) -> dict:
        """Times and bytes of the first worker, which is never the slow one, and of the busiest
        server."""
        servers, workers = gathered[: self._job.servers], gathered[self._job.servers :]
        first = workers[0]
        deciles = statistics.quantiles(first["step_ms"] * 2, n=10)
        busiest = {} if row.direct else max(servers, key=lambda each: each["sent"])
        return {
            **dataclasses.asdict(row),
            "method": str(row),
            "steps": len(first["step_ms"]),
            "ms": statistics.median(first["step_ms"]),
            "low_ms": deciles[0],
            "high_ms": deciles[-1],
            "worker_sent": first["sent"],
            "worker_received": first["received"],
            "push_bytes": first.get("push_bytes"),
            "pull_bytes": first.get("pull_bytes"),
            "server_sent": busiest.get("sent"),
            "server_received": busiest.get("received"),
            "encodes": None if row.direct else sum(each["encodes"] for each in servers),
            "late": None if row.direct else sum(each["late"] for each in workers),
        }


def run(place: Place, line: Line, job: Job) -> None:
    """Runs all rows on one rank."""
    with process_group(place, _SECONDS):
        Rank(place, line, job).run()
        dist.barrier()
