"""SGD's momentum as a higher learning rate, for tensors whose gradients arrive late.

A momentum of m adds up to 1 / (1 - m) of each gradient, spread over the next steps. Error feedback
spreads them as well, and momentum on top of it diverges (docs/results/training/late-codecs.md). So
such tensors are stepped without momentum, at a rate higher by `_core.MomentumRate`.
"""

import sys

import torch

from deltawire import _core
from deltawire.torch.core.optimizer_rules.rule import LateRule
from deltawire.torch.core.optimizer_rules.tensors import CodedTensors


class MomentumAsRate(LateRule):
    """Steps the late tensors of a model with SGD without momentum, at a higher rate.

    In the optimizer's state the velocity of late tensors is kept, as 0: tools that save and load
    states expect one for every tensor, and a step without this rule may go on from it.
    """

    _named = "momentum as rate"

    def __init__(
        self, optimizer: torch.optim.SGD, coded: CodedTensors, advice: _core.OptimizerRule
    ) -> None:
        super().__init__(optimizer, coded, advice)
        self._zero: dict[int, torch.Tensor] = {}  # velocities that are 0, by id(parameter)
        self._late_before: dict[int, str] = {}

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
        rate = group["lr"] * _rate_of(group).times(self.step)
        return {"momentum": 0.0, "nesterov": False, "lr": rate}

    def _change(self, group: dict) -> str:
        rate = _rate_of(group)
        return (
            f"momentum={group['momentum']:g} becomes a learning rate up to "
            f"{rate.times(sys.maxsize):.3g} times as high, after {rate.rise_steps:.0f} steps"
        )

    def _shown(self, group: dict, step: int) -> dict[str, float]:
        return {"rate_times": _rate_of(group).times(step)}


def _rate_of(group: dict) -> _core.MomentumRate:
    return _core.MomentumRate(float(group["momentum"]), float(group["dampening"]))
