"""A server's steps, each with the learning rate of the optimizer's schedule."""

import dataclasses
from collections.abc import Callable

import torch

from deltawire import _core
from deltawire.torch.server import optimizer as served_optimizer
from deltawire.torch.server.metrics import Drops


@dataclasses.dataclass
class Serving:
    """Makes the steps of one server.

    Attributes:
        core: the server.
        optimizer: the one whose settings it has; only its learning rate may change.
        drops: told of workers that a step has dropped.
        timeout_ms: of each wait for workers.
        after_step: called after each step, and after its schedule.
        is_over: whether the workers have closed.
    """

    core: _core.ParameterServer
    optimizer: torch.optim.Optimizer
    drops: Drops
    timeout_ms: int
    after_step: Callable[[], None]
    is_over: bool = False

    def serve(self, schedule: Callable[[], object] | None, made: int) -> None:
        """Makes steps until the workers have closed.

        Args:
            schedule: called after every step, and first for each that was `made` earlier: it sets
                the optimizer's learning rate for the next. None: the rate stays.
            made: steps of the snapshot from which training resumes.

        Raises:
            DeltawireError: a worker failed, or was silent for too long.
        """
        for _ in range(made if schedule is not None else 0):
            self._follow(schedule)
        while self._make_step():
            if schedule is not None:
                self._follow(schedule)
            self.after_step()
        self.is_over = True

    def _make_step(self) -> bool:
        try:
            return self.core.step(self.timeout_ms)
        finally:
            self.drops.tell(self.core)

    def _follow(self, schedule: Callable[[], object]) -> None:
        """Gives the server the learning rate that the optimizer has after a step."""
        self.optimizer.step()  # without gradients: schedulers ask for it
        schedule()
        self.core.set_learning_rate(served_optimizer.rate_of(self.optimizer))
