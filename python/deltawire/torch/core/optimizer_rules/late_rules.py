"""SGD and Adam without momentum, for tensors whose gradients arrive late.

SGD's momentum of m adds up to 1 / (1 - m) of each gradient, spread over the next steps. Error
feedback spreads them as well, and momentum on top of it diverges. Adam's first moment is a weighted
mean: beta1 delays each gradient by beta1 / (1 - beta1) steps on average and adds nothing to it;
with error feedback's delay that is too late (docs/results/training/late-codecs.md).
"""

import abc
import sys
from collections.abc import Iterator

import torch

from deltawire import _core
from deltawire.torch.core.optimizer_rules.rule import OptimizerRule
from deltawire.torch.core.optimizer_rules.tensors import CodedTensors


class LateRule(OptimizerRule):
    """Replaces the momentum with which an optimizer steps what arrives late: the late tensors of a
    group with momentum are a group of their own, with other settings."""

    def _way(self) -> str:
        return f"without momentum, because '{self._coded.codecs[0]}' sends most of a gradient later"

    def _parts(
        self, own: torch.optim.Optimizer, group: dict, coded: dict[int, str]
    ) -> Iterator[dict]:
        parameters = [each for each in group["params"] if id(each) in coded]
        if not parameters or not self._applies_to(group):
            yield group
            return
        self._prepare(coded, [each for each in parameters if each.grad is not None])
        others = [each for each in group["params"] if id(each) not in coded]
        if others:
            yield {**group, "params": others}
        yield {**group, "params": parameters, **self._settings(group)}

    def _prepare(self, late: dict[int, str], parameters: list[torch.Tensor]) -> None:
        """Changes the state of those of the late tensors that are about to be stepped."""

    @abc.abstractmethod
    def _settings(self, group: dict) -> dict:
        """What late tensors of a group have in place of its settings, in the coming step."""


class MomentumAsRate(LateRule):
    """Steps the late tensors of a model with SGD without momentum, at a rate higher by
    `_core.MomentumRate`.

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
            state = self._optimizer.state[each]
            velocity = state.get("momentum_buffer")
            if velocity is None:
                velocity = state["momentum_buffer"] = torch.zeros_like(each)
            elif velocity is not self._zero.get(id(each)):
                velocity.zero_()
            self._zero[id(each)] = velocity

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


class AdamWithoutMomentum(LateRule):
    """Steps the late tensors of a model by Adam or AdamW with beta1 = 0, at a share of the rate:
    without the mean over steps each one is longer.

    In the optimizer's state their first moment is then the last gradient, from which a step without
    this rule may go on.
    """

    _named = "beta1 0 for what arrives late"

    def _applies_to(self, group: dict) -> bool:
        return float(group["betas"][0]) > 0

    def _settings(self, group: dict) -> dict:
        return {"betas": (0.0, group["betas"][1]), "lr": self._advice.rate_share * group["lr"]}

    def _change(self, group: dict) -> str:
        beta1 = float(group["betas"][0])
        return f"beta1={beta1:g} becomes 0, at {self._advice.rate_share:g} times the learning rate"

    def _shown(self, group: dict, step: int) -> dict[str, float]:
        return {"beta1": 0.0, "rate_times": self._advice.rate_share}
