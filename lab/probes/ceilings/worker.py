"""A rank: all contestants of a network over one link, a few steps each in turn. Started by
`lab.probes.ceilings`, with its job as JSON; rank 0 writes a line of JSON for each turn."""

import dataclasses
import json
import statistics
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from lab.models.trainings import make_training
from lab.probes.ceilings.contestants import COMPUTE, Contestant
from lab.ranks.linked_ranks import Place, process_group, tell

_TURN_SECONDS = 2.0  # of one contestant, about
_MOST_IN_A_TURN = 5
_GROUP_SECONDS = 600.0


@dataclasses.dataclass(frozen=True)
class Job(Place):
    """What a rank does.

    Attributes:
        network, size, seed: the training, as `lab.models.trainings` names it.
        methods: names of `lab.probes.ceilings.contestants`; "compute" is always there.
        steps: timed ones of each contestant.
        seconds: after which a contestant stops with fewer.
        warm_up: steps before.
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

    def __init__(self, job: Job) -> None:
        self._job = job
        self._counter = Path(f"/sys/class/net/{job.interface}/statistics/tx_bytes")
        self._contestants = [self._make(name) for name in (COMPUTE, *job.methods)]

    def _make(self, name: str) -> Contestant:
        job = self._job
        training = make_training(job.network, job.size, job.seed + job.rank)
        made = Contestant(name, training, job.address)
        tell(job, {"event": "made", "method": name})
        return made

    def run(self) -> None:
        """Warms up, then turns until every contestant has its steps or has used its time."""
        turns = {each: self._warm_up(each) for each in self._contestants}
        running = list(self._contestants)
        while running:
            for each in running:
                self._take_turn(each, turns[each])
            running = [each for each in running if not self._is_done(each)]

    def rows(self) -> list[dict]:
        """On rank 0: medians and deciles of milliseconds, and the mean of bytes sent a step."""
        return [self._row(each) for each in self._contestants]

    def close(self) -> None:
        """Ends the exchanges of all contestants."""
        for each in self._contestants:
            each.close()

    def _warm_up(self, contestant: Contestant) -> int:
        """How many steps its turns have, the same on all ranks."""
        for step in range(contestant.warm_up_steps(self._job.warm_up)):
            seconds = contestant.take_step()
            told = {"event": "warm-up", "method": contestant.name, "steps": step + 1}
            tell(self._job, told)
        slowest = torch.tensor(seconds, dtype=torch.float64)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        return max(1, min(_MOST_IN_A_TURN, int(_TURN_SECONDS / slowest.item())))

    def _take_turn(self, contestant: Contestant, steps: int) -> None:
        dist.barrier()
        for _ in range(steps):
            sent = int(self._counter.read_text())
            contestant.step_ms.append(1e3 * contestant.take_step())
            contestant.bytes_sent.append(int(self._counter.read_text()) - sent)
        taken = len(contestant.step_ms)
        tell(self._job, {"event": "turn", "method": contestant.name, "steps": taken})

    def _is_done(self, contestant: Contestant) -> bool:
        """As rank 0 sees it."""
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


def main() -> None:
    """The rank's life."""
    job = Job(**json.loads(sys.argv[1]))
    with process_group(job, _GROUP_SECONDS):
        race = Race(job)
        race.run()
        tell(job, {"event": "done", "rows": race.rows()})
        dist.barrier()
        race.close()


if __name__ == "__main__":
    main()
