"""The settings that all rows of a demo share."""

import dataclasses
import math

from lab.demo.methods import OPTIMIZERS, Method
from lab.demo.workloads import WORKLOADS, Workload

POINT_IMAGES = 2_000  # of the test set, for the points of the curves
POINTS = 8
COMPUTE_STEPS = 8
_CONSTANT_SHARE = 0.6
SCHEDULE = f"constant for the first {_CONSTANT_SHARE:.0%} of the steps, then linear to 0"


@dataclasses.dataclass(frozen=True)
class Settings:
    """The same for every row; the workers get a copy with each row's seed.

    Attributes:
        network: a name in WORKLOADS.
        ranks: worker processes.
        steps: of each row.
        batch: images a step on each rank.
        seed: of initial parameters and the order of images, in a row's first training.
        repeats: trainings of each row; each takes the next seed.
        lr: at the first step.
        momentum: of SGD.
        same_optimizer: whether rows whose codec diverges with momentum have it, too (see `of_row`).
        clip: limit of the mean gradient's norm; 0: none. It hardly affects fp32, but keeps very
            sparse methods, which send rare and large values, from diverging.
        link: as on the command line.
        bytes_per_second: of the link; None is the bare loopback.
        namespaces: the link is a real one, not shaped in the transport; None: where it can be.
        data: folder of the images.
        timeout: seconds after which a step that hangs is an error.
        optimizer: "sgd" or "adamw".
    """

    network: str
    ranks: int
    steps: int
    batch: int
    seed: int
    repeats: int
    lr: float
    momentum: float
    same_optimizer: bool
    clip: float
    link: str
    bytes_per_second: float | None
    namespaces: bool | None
    data: str
    timeout: float
    optimizer: str = "sgd"

    @property
    def workload(self) -> Workload:
        """Network and images."""
        return WORKLOADS[self.network]

    @property
    def seeds(self) -> list[int]:
        """Of a row's trainings."""
        return [self.seed + repeat for repeat in range(self.repeats)]

    def of_row(self, method: Method) -> "Settings":
        """The settings of one row. If its codec sends most of a gradient in later steps, SGD has no
        momentum and a higher rate; otherwise the row would diverge
        (docs/results/training/late-codecs.md). In rows without local steps `register` sees to that.
        A row's own optimizer has its own rate.
        """
        if method.optimizer not in (None, self.optimizer):
            rate = self.workload.learning_rates[method.optimizer]
            return dataclasses.replace(self, optimizer=method.optimizer, lr=rate)
        has_own = method.late and method.local_steps and self.optimizer == "sgd"
        if not has_own or self.same_optimizer:
            return self
        from deltawire import _core  # needs the extension

        rate = self.lr * _core.MomentumRate(self.momentum).constant
        return dataclasses.replace(self, lr=rate, momentum=0.0)

    def by_rule(self, method: Method) -> bool:
        """Whether `register` changes how the optimizer steps what this row codes."""
        if method.spec is None or method.local_steps or self.same_optimizer:
            return False
        from deltawire.arguments import spec_of
        from deltawire.errors import InvalidArgumentError
        from deltawire.torch.core.optimizer_rules.momentum_choice import (
            has_rule,  # needs the extension
        )

        try:
            spec = spec_of(method.spec)
        except InvalidArgumentError:  # `register` will say so of the row
            return False
        return has_rule(OPTIMIZERS[self.of_row(method).optimizer], spec)

    def learning_rate(self, step: int) -> float:
        """The rate of a step; see SCHEDULE."""
        left = (self.steps - step) / self.steps
        return self.lr * min(1.0, left / (1.0 - _CONSTANT_SHARE))

    def is_point(self, start: int, end: int) -> bool:
        """Whether accuracy is measured after step `end`; the previous exchange was after `start`.

        True about POINTS times in total, and after the last step.
        """
        every = max(1, math.ceil(self.steps / POINTS))
        return start // every < end // every or end == self.steps
