"""The ways to exchange gradients: none at all, PyTorch's own, deltawire's.

A name is "compute" (no exchange), "barrier" (an all-reduce of one value per step: the cost of
waiting for the slowest rank), "plain" (DDP), "plain-again" (the same, to show random variation),
"torch-fp16", "torch-powersgd-RANK", or any spec that `deltawire.torch.register` takes.
"""

import time
from collections.abc import Callable

import deltawire
import deltawire.torch
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from lab.models.trainings import Training, make_optimizer

COMPUTE, BARRIER, PLAIN, AGAIN = "compute", "barrier", "plain", "plain-again"
FP16, POWERSGD, AUTO = "torch-fp16", "torch-powersgd-", "auto"
_ONE_BUCKET_MB = 4096  # with several, torch's PowerSGD hangs on Gloo: its rounds cross each other
_STEPS_OF_AUTO = 30  # ten measured and eighteen trial steps, until its choice is final
_WARM_UP_OF_POWERSGD = 2  # steps with DDP's own exchange, the fewest that it accepts


def check_name(name: str) -> None:
    """Raises ValueError with one line if there is no such contestant."""
    if name in (BARRIER, PLAIN, AGAIN, FP16, AUTO):
        return
    if name.startswith(POWERSGD):
        rank = name.removeprefix(POWERSGD)
        if not rank.isdecimal() or int(rank) < 1:
            raise ValueError(f"method '{name}': write a rank of 1 or more after {POWERSGD}")
        return
    try:
        deltawire.canonical_spec(name)
    except deltawire.InvalidArgumentError as cause:
        raise ValueError(
            f"method '{name}': {cause}. Others: {BARRIER}, {PLAIN}, {AGAIN}, {FP16}, "
            f"{POWERSGD}RANK, {AUTO}"
        ) from cause


class Contestant:
    """One way to exchange, with its own network and optimizer.

    Making one is a collective, except "compute" and "barrier": all ranks make the same ones in
    the same order.
    """

    def __init__(self, name: str, training: Training, interface: str) -> None:
        self.name = name
        self.step_ms: list[float] = []
        self.bytes_sent: list[float] = []
        self._training = training
        self._step = 0
        self._optimizer = make_optimizer(training, "sgd")
        self._model: torch.nn.Module = training.network
        self.close: Callable[[], None] = lambda: None
        self.hook = None
        if name not in (COMPUTE, BARRIER):
            bucket = {"bucket_cap_mb": _ONE_BUCKET_MB} if name.startswith(POWERSGD) else {}
            self._model = DistributedDataParallel(training.network, **bucket)
            self._register(interface)

    def _register(self, interface: str) -> None:
        if self.name in (PLAIN, AGAIN):
            return
        if self.name == FP16:
            self._model.register_comm_hook(None, default_hooks.fp16_compress_hook)
        elif self.name.startswith(POWERSGD):
            state = powerSGD_hook.PowerSGDState(
                None,
                matrix_approximation_rank=int(self.name.removeprefix(POWERSGD)),
                start_powerSGD_iter=_WARM_UP_OF_POWERSGD,
            )
            self._model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        else:
            seen = self.name != AUTO and deltawire.uses_significance(self.name)
            self.hook = deltawire.torch.register(
                self._model,
                self.name,
                interface=interface,
                optimizer=self._optimizer if seen else None,
            )
            self.close = self.hook.close

    def warm_up_steps(self, least: int) -> int:
        """The number of steps that it needs until its choice is final."""
        return max(least, _STEPS_OF_AUTO) if self.name == AUTO else least

    def take_step(self) -> float:
        """Takes a whole step (forward, backward with the exchange, optimizer) and returns its
        seconds."""
        started = time.perf_counter()
        self._optimizer.zero_grad()
        self._training.loss_at(self._step, self._model).backward()
        if self.name == BARRIER:
            dist.all_reduce(torch.zeros(1))
        self._optimizer.step()
        self._step += 1
        return time.perf_counter() - started
