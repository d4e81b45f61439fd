"""How long a training takes on a link: computed with the planner's model, not measured."""

import dataclasses

import torch
from deltawire import planner
from deltawire.arguments import spec_of

from lab.probes.frontier.results import Row
from lab.probes.local_rounds.methods import SIZES
from lab.probes.local_rounds.training import Setting, new_network


@dataclasses.dataclass(frozen=True)
class Line:
    """A worker's link, as fast in both directions, which carry at the same time.

    Attributes:
        mbit: per second.
        latency_ms: one way.
    """

    mbit: float
    latency_ms: float

    @property
    def as_link(self) -> planner.Link:
        """For the planner."""
        return planner.Link(self.mbit * 125e3, latency_seconds=self.latency_ms / 1e3)


class Times:
    """Times of one size's trainings.

    A step of DDP is the planner's: buckets are exchanged while backward continues, and plain DDP
    has the native all-reduce. An exchange of weights begins after its round's steps; Streaming
    DiLoCo's goes on during the next ones. Encoding and decoding are left out.

    Args:
        size: a name in SIZES.
        step_seconds: of a worker, without exchange.
    """

    def __init__(self, size: str, step_seconds: float) -> None:
        with torch.device("meta"):
            network = new_network(Setting(SIZES[size], 1, 1, 1, 0.0), 0)
        self._tensors = [(name, p.numel()) for name, p in network.named_parameters()]
        self._step = step_seconds

    def after(self, row: Row, rounds: int, line: Line) -> float:
        """Seconds until some of a row's rounds are done."""
        if row.method.every_step:
            return rounds * row.steps * self._ddp_step(row, line)
        return rounds * (row.steps * self._step + self._waited(row, line))

    def stalled_steps(self, row: Row, line: Line) -> float:
        """Local steps that could be computed while training waits for exchanges, in each round."""
        return self._waited(row, line) / self._step

    def hiding_mbit(self, row: Row, exchange_bytes: float) -> float | None:
        """The rate at which an exchange takes as long as the steps that it overlaps with; None
        without an overlap."""
        hidden = self._hidden(row)
        return 8e-6 * exchange_bytes / hidden if hidden else None

    def _hidden(self, row: Row) -> float:
        """Seconds of computing during one exchange. A result is applied when the next exchange
        begins, if not before."""
        return min(row.method.overlap, row.steps / row.method.fragments) * self._step

    def _ddp_step(self, row: Row, line: Line) -> float:
        workload = planner.ddp_workload(self._tensors, self._step)
        plan = planner.make_plan(workload, row.workers, line.as_link, [_figures(row)])
        is_plain = row.name == "ddp"
        return (plan.plain if is_plain else plan.rows[0].prediction).step_seconds

    def _waited(self, row: Row, line: Line) -> float:
        """In a round, for all its exchanges."""
        whole = planner.Workload([(self._tensors, 0.0)], 0.0)
        plan = planner.make_plan(whole, row.workers, line.as_link, [_figures(row)])
        method = row.method
        each = plan.rows[0].prediction.step_seconds / method.fragments
        return method.fragments * max(0.0, each - self._hidden(row))


def _figures(row: Row) -> planner.CodecFigures:
    pattern = spec_of(row.method.spec).pattern
    free = (0.0, 0.0)
    return planner.CodecFigures(row.method.spec, pattern, "lossy", row.bits, free, free)
