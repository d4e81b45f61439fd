"""SGD's momentum as a higher learning rate, for tensors whose gradients arrive late.

A momentum of m adds up to 1 / (1 - m) of each gradient, spread over the next steps. Error feedback
spreads them as well, and momentum on top of it diverges (docs/results/training/late-codecs.md). So
such tensors are stepped without momentum, at a rate higher by `rate_times`.
"""

import sys

import torch

from deltawire.torch.core.late.rule import LateRule
from deltawire.torch.core.late.tensors import CodedTensors

# Of 1 / (1 - momentum): the learning rate without momentum that trains from the first step on,
# measured with 0.9, where it is 5. The whole of it diverges.
RATE_SHARE = 0.5
# Of 1 / (1 - m), measured there: RATE_SHARE trains from the first step on, 0.7 doesn't, nor does it
# after a rise from far below; the whole diverges at any time.
_LAST_SHARE = 0.75
# Steps from one to the other, in units of 1 / (1 - m). With 10 two of 15 seeds diverged.
_RISE = 20.0


def constant_rate_times(momentum: float) -> float:
    """The factor by which to raise the learning rate when this momentum is turned off."""
    return max(1.0, RATE_SHARE / (1.0 - momentum)) if momentum < 1 else 1.0


def rate_times(momentum: float, dampening: float, step: int) -> float:
    """The factor of the learning rate that replaces this momentum, in step 0, 1, ...

    It rises first like a velocity, to half of 1 / (1 - momentum), and then to three quarters of
    that, over the first 20 / (1 - momentum) steps. It is never below 1.
    """
    risen = min(1.0, step * (1.0 - momentum) / _RISE)
    share = RATE_SHARE + (_LAST_SHARE - RATE_SHARE) * risen
    velocity = (1.0 - momentum ** (step + 1)) / (1.0 - momentum)
    return (1.0 - dampening) * max(1.0, share * velocity)


class MomentumAsRate(LateRule):
    """Steps the late tensors of a model with SGD without momentum, at a rate higher by
    `rate_times`.

    In the optimizer's state the velocity of late tensors is kept, as 0: tools that save and load
    states expect one for every tensor, and a step without this rule may go on from it.
    """

    def __init__(self, optimizer: torch.optim.SGD, late: CodedTensors) -> None:
        super().__init__(optimizer, late)
        self._zero: dict[int, torch.Tensor] = {}  # velocities that are 0, by id(parameter)
        self._late_before: dict[int, str] = {}

    @property
    def name(self) -> str:
        """For the comparison between ranks."""
        return f"{type(self._optimizer).__name__}, momentum as rate"

    def _prepare(self, late: dict[int, str], parameters: list[torch.Tensor]) -> None:
        if late is not self._late_before:  # what was not late has had a velocity
            self._zero, self._late_before = {}, late
        for each in parameters:
            self._keep_at_zero(each)

    def _keep_at_zero(self, parameter: torch.Tensor) -> None:
        state = self._optimizer.state[parameter]
        velocity = state.get("momentum_buffer")
        if velocity is None:
            velocity = state["momentum_buffer"] = torch.zeros_like(parameter)
        elif velocity is not self._zero.get(id(parameter)):
            velocity.zero_()
        self._zero[id(parameter)] = velocity

    def _applies_to(self, group: dict) -> bool:
        return 0 < group["momentum"] < 1

    def _settings(self, group: dict) -> dict:
        rate = group["lr"] * _times_of(group, self.step)
        return {"momentum": 0.0, "nesterov": False, "lr": rate}

    def _change(self, group: dict) -> str:
        return (
            f"momentum={group['momentum']:g} becomes a learning rate up to "
            f"{rate_times(group['momentum'], group['dampening'], sys.maxsize):.3g} times as high, "
            f"after {_RISE / (1.0 - group['momentum']):.0f} steps"
        )

    def _shown(self, group: dict, step: int) -> dict[str, float]:
        return {"rate_times": _times_of(group, step)}


def _times_of(group: dict, step: int) -> float:
    return rate_times(float(group["momentum"]), float(group["dampening"]), step)
