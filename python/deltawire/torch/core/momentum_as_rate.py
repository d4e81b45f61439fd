"""SGD's momentum as a higher learning rate, for tensors whose gradients arrive late.

A momentum of m adds up to 1 / (1 - m) of each gradient, spread over the next steps. Error feedback
spreads them as well, and momentum on top of it diverges (docs/results/training.md, "Late codecs and
momentum"). So such tensors are stepped without momentum, at a rate higher by `rate_times`.
"""

import logging
import sys
from collections.abc import Iterator

import torch

from deltawire import _core
from deltawire.errors import make_error
from deltawire.late_codecs import RATE_SHARE, is_late, late_rules
from deltawire.torch.core import arguments

logger = logging.getLogger("deltawire")

# Of 1 / (1 - m), measured (docs/results/training.md): RATE_SHARE trains from the first step on, 0.7
# doesn't, nor does it after a rise from far below; the whole diverges at any time.
_LAST_SHARE = 0.75
_RISE = 10.0  # steps from one to the other, in units of 1 / (1 - m)

AS_RATE, IN_OPTIMIZER = "rate", "optimizer"
_OTHERWISE = (
    "3lc sends nearly everything at once and goes with any optimizer, and LocalSteps exchanges "
    'after several steps of it (docs/guides/pytorch.md, "Momentum")'
)


def rate_times(momentum: float, dampening: float, step: int) -> float:
    """By how much to multiply the learning rate in place of this momentum, in step 0, 1, ...

    At first as a velocity would rise, to half of 1 / (1 - momentum); then to three quarters of it,
    over the first 10 / (1 - momentum) steps. Not below 1.
    """
    risen = min(1.0, step * (1.0 - momentum) / _RISE)
    share = RATE_SHARE + (_LAST_SHARE - RATE_SHARE) * risen
    velocity = (1.0 - momentum ** (step + 1)) / (1.0 - momentum)
    return (1.0 - dampening) * max(1.0, share * velocity)


class LateTensors:
    """Which tensors of a model arrive late, step by step.

    Args:
        spec: canonical.
        min_elements: as for `register`.
        names: id(parameter) -> name.
        tensors: (name, shape, name of the dtype) of each.
    """

    def __init__(
        self, spec: str, min_elements: int, names: dict[int, str], tensors: list[tuple]
    ) -> None:
        self.spec = spec
        self._options = arguments.reducer_options(min_elements, "exact", 1)
        self.names = names
        self.tensors = tensors
        self._range = range(0)  # the steps for which `_late` is right
        self._late: dict[int, str] = {}

    def at(self, step: int) -> dict[int, str]:
        """Those of this step: id(parameter) -> name."""
        if step not in self._range:
            uses = _core.explain(self.spec, self._options, self.tensors, step)
            late = {
                name
                for (name, *_), use in zip(self.tensors, uses, strict=True)
                if not use.raw and is_late(use.codec)
            }
            self._late = {key: name for key, name in self.names.items() if name in late}
            changes = (use.changes_at for use in uses if use.changes_at is not None)
            self._range = range(step, min(changes, default=sys.maxsize))
        return self._late


class MomentumAsRate:
    """Steps the late tensors of a model without momentum, at a higher rate.

    The optimizer's step() runs on a stand-in with the optimizer's state and other param_groups: the
    late tensors of a group with momentum are a group of their own, with momentum 0 and `rate_times`
    the rate. The optimizer's own param_groups keep what the user or a scheduler wrote there, which
    is read in every step. In its state the velocity of late tensors is kept, as 0: tools that save
    and load states expect one for every tensor, and a step without this rule may go on from it.

    Attributes:
        step: number of the step whose gradients the optimizer gets next; the hook sets it.

    Thread rule: the thread of optimizer.step(); `step` is set between two of them.
    """

    def __init__(self, optimizer: torch.optim.SGD, late: LateTensors) -> None:
        self.step = 0
        self._optimizer = optimizer
        self._late = late
        self._handle = None
        self._zero: dict[int, torch.Tensor] = {}  # velocities that are 0, by id(parameter)
        self._late_before: dict[int, str] = {}

    @property
    def name(self) -> str:
        """For the comparison between ranks."""
        return f"{type(self._optimizer).__name__}, momentum as rate"

    @property
    def held(self) -> set[int]:
        """id(parameter) of all that the optimizer steps."""
        return {id(each) for group in self._optimizer.param_groups for each in group["params"]}

    def text(self) -> str:
        """What will happen, in one line."""
        late = self._late.at(0)
        of_ours = self.held & late.keys()
        changes = {
            f"momentum={group['momentum']:g} becomes a learning rate up to "
            f"{rate_times(group['momentum'], group['dampening'], sys.maxsize):.3g} times as high, "
            f"after {_RISE / (1.0 - group['momentum']):.0f} steps"
            for group in self._optimizer.param_groups
            if _has_momentum(group) and not of_ours.isdisjoint(map(id, group["params"]))
        }
        return (
            f"{type(self._optimizer).__name__} steps {len(of_ours)} of {len(self._late.tensors)} "
            f"tensors without momentum, because '{late_rules(self._late.spec)[0]}' sends most of a "
            f"gradient later: {'; '.join(sorted(changes)) or 'it has none now'} "
            '(momentum="optimizer": it keeps its momentum)'
        )

    def attach(self) -> None:
        """Begins."""
        self._handle = self._optimizer.register_step_pre_hook(self._before_step)

    def remove(self) -> None:
        """Leaves the optimizer's step as it was; idempotent."""
        if self._handle is not None:
            self._handle.remove()

    def times(self, step: int) -> dict[str, float]:
        """By how much the rate of each late tensor with momentum is multiplied in a step."""
        late = self._late.at(step)
        return {
            late[id(parameter)]: _times_of(group, step)
            for group in self._optimizer.param_groups
            if _has_momentum(group)
            for parameter in group["params"]
            if id(parameter) in late
        }

    def _before_step(self, _, args: tuple, kwargs: dict) -> tuple:
        own = args[0]  # the optimizer, or a stand-in for it, if it steps two models
        late = self._late.at(self.step)
        if late is not self._late_before:  # what was not late has had a velocity
            self._zero, self._late_before = {}, late
        groups = [part for group in own.param_groups for part in self._parts(group, late)]
        stand_in = object.__new__(type(own))
        stand_in.__dict__ = {**own.__dict__, "param_groups": groups}
        return (stand_in, *args[1:]), kwargs

    def _keep_at_zero(self, parameter: torch.Tensor) -> None:
        state = self._optimizer.state[parameter]
        velocity = state.get("momentum_buffer")
        if velocity is None:
            velocity = state["momentum_buffer"] = torch.zeros_like(parameter)
        elif velocity is not self._zero.get(id(parameter)):
            velocity.zero_()
        self._zero[id(parameter)] = velocity

    def _parts(self, group: dict, late: dict[int, str]) -> Iterator[dict]:
        parameters = [each for each in group["params"] if id(each) in late]
        if not parameters or not _has_momentum(group):
            yield group
            return
        for each in parameters:
            if each.grad is not None:
                self._keep_at_zero(each)
        others = [each for each in group["params"] if id(each) not in late]
        if others:
            yield {**group, "params": others}
        yield {
            **group,
            "params": parameters,
            "momentum": 0.0,
            "nesterov": False,
            "lr": group["lr"] * _times_of(group, self.step),
        }


def _has_momentum(group: dict) -> bool:
    return 0 < group["momentum"] < 1


def _times_of(group: dict, step: int) -> float:
    return rate_times(float(group["momentum"]), float(group["dampening"]), step)


def check_momentum(momentum: str) -> None:
    """Raises InvalidArgumentError for a momentum= that `register` doesn't know."""
    if momentum not in (AS_RATE, IN_OPTIMIZER):
        raise make_error(
            "InvalidArgument", f'momentum={momentum!r} is neither "{AS_RATE}" nor "{IN_OPTIMIZER}"'
        )


def rule_for(
    optimizer: torch.optim.Optimizer | None, momentum: str, late: LateTensors
) -> MomentumAsRate | None:
    """The rule for register's optimizer= and momentum=; None if nothing arrives late, without an
    optimizer, or with momentum="optimizer".

    Raises InvalidArgumentError for an optimizer that holds none of the parameters or isn't SGD. If
    the spec has another use for that one, a warning says so instead.
    """
    if optimizer is None or momentum == IN_OPTIMIZER or not late_rules(late.spec):
        return None
    if type(optimizer) is not torch.optim.SGD:
        refuse(late.spec, type(optimizer).__name__)
        return None
    rule = MomentumAsRate(optimizer, late)
    if rule.held.isdisjoint(late.names):
        raise make_error(
            "InvalidArgument",
            "optimizer=SGD holds none of the model's parameters; pass the optimizer that steps "
            "this model",
        )
    return rule


def refuse(spec: str, where: str) -> None:
    """Raises InvalidArgumentError, or warns if the spec has another use for the optimizer, because
    there is no rule for late tensors there."""
    text = (
        f"'{late_rules(spec)[0]}' sends most of a gradient later, which an optimizer's momentum "
        "multiplies; a learning rate in place of it is known for torch.optim.SGD under "
        f"DistributedDataParallel, not for {where}"
    )
    if not _core.uses_significance(spec):
        raise make_error("InvalidArgument", f"{text}; leave optimizer= out, or: {_OTHERWISE}")
    logger.warning("%s: %s", text, _OTHERWISE)
