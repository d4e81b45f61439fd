"""A rank: all contestants of a network over one link, a few steps each in turn.
Rank 0 sends an event for each turn, and at the end the rows."""

import dataclasses
import statistics

import torch
import torch.distributed as dist

from lab.models.trainings import make_training
from lab.probes.ceilings.contestants import COMPUTE, Contestant
from lab.ranks.namespaces import interface_bytes
from lab.ranks.rank import Line, Place, process_group

_TURN_SECONDS = 2.0  # of one contestant, about
_MOST_IN_A_TURN = 5
_GROUP_SECONDS = 600.0


@dataclasses.dataclass(frozen=True)
class Job:
    """What a rank does.

    Attributes:
        network, size, seed: the training, as `lab.models.trainings` names it.
        methods: names of `lab.probes.ceilings.contestants`; "compute" is always included.
        steps: timed steps of each contestant.
        seconds: a contestant stops with fewer steps after this time.
        warm_up: untimed steps before.
    """

    network: str
    size: str
    seed: int
    methods: tuple[str, ...]
    steps: int
    seconds: float
    warm_up: int


class Race:
    """The contestants on this rank. Every method is a collective."""

    def __init__(self, place: Place, line: Line, job: Job) -> None:
        self._place, self._line, self._job = place, line, job
        self._contestants = [self._make(name) for name in (COMPUTE, *job.methods)]

    def _make(self, name: str) -> Contestant:
        job = self._job
        training = make_training(job.network, job.size, job.seed + self._place.rank)
        made = Contestant(name, training, self._place.address)
        self._tell("made", name)
        return made

    def run(self) -> None:
        """Warms up, then takes turns until every contestant has its steps or has used its time."""
        turns = {each: self._warm_up(each) for each in self._contestants}
        running = list(self._contestants)
        while running:
            for each in running:
                self._take_turn(each, turns[each])
            running = [each for each in running if not self._is_done(each)]

    def rows(self) -> list[dict]:
        """On rank 0: medians and deciles of milliseconds, and the mean of bytes sent per step."""
        return [self._row(each) for each in self._contestants]

    def close(self) -> None:
        """Ends the exchanges of all contestants."""
        for each in self._contestants:
            each.close()

    def _warm_up(self, contestant: Contestant) -> int:
        """Returns how many steps its turns have, the same on all ranks."""
        for step in range(contestant.warm_up_steps(self._job.warm_up)):
            seconds = contestant.take_step()
            self._tell("warm-up", contestant.name, step + 1)
        slowest = torch.tensor(seconds, dtype=torch.float64)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        return max(1, min(_MOST_IN_A_TURN, int(_TURN_SECONDS / slowest.item())))

    def _take_turn(self, contestant: Contestant, steps: int) -> None:
        dist.barrier()
        sent = self._bytes_sent()
        contestant.step_ms += [1e3 * contestant.take_step() for _ in range(steps)]
        dist.barrier()  # until then a slow link may hold back what this rank has sent
        contestant.bytes_sent += [(self._bytes_sent() - sent) / steps] * steps
        self._tell("turn", contestant.name, len(contestant.step_ms))

    def _bytes_sent(self) -> int:
        """Bytes that this rank has sent so far."""
        return interface_bytes(self._place.interface)[0]

    def _tell(self, event: str, method: str, steps: int = 0) -> None:
        if self._place.rank == 0:
            self._line.send({"event": event, "method": method, "steps": steps})

    def _is_done(self, contestant: Contestant) -> bool:
        """Whether it is finished, according to rank 0's clock."""
        count, spent = len(contestant.step_ms), sum(contestant.step_ms) / 1e3
        done = torch.tensor(int(count >= self._job.steps or spent >= self._job.seconds))
        dist.broadcast(done, src=0)
        return bool(done.item())

    def _row(self, contestant: Contestant) -> dict:
        metrics = contestant.hook.metrics() if contestant.hook is not None else {}
        deciles = statistics.quantiles(contestant.step_ms * 2, n=10)
        return {
            "method": contestant.name,
            "spec": getattr(contestant.hook, "spec", contestant.name),
            "steps": len(contestant.step_ms),
            "ms": statistics.median(contestant.step_ms),
            "low_ms": deciles[0],
            "high_ms": deciles[-1],
            "bytes_sent": statistics.mean(contestant.bytes_sent),
            "predicted_ms": metrics.get("predicted_ms"),
            "measured_ms": metrics.get("measured_ms"),  # without the optimizer, as predicted
        }


def run(place: Place, line: Line, job: Job) -> None:
    """Runs the race on one rank."""
    with process_group(place, _GROUP_SECONDS):
        race = Race(place, line, job)
        race.run()
        if place.rank == 0:
            line.send({"event": "done", "rows": race.rows()})
        dist.barrier()
        race.close()
        dist.barrier()
