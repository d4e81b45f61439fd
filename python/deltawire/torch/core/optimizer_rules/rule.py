"""Rules by which an optimizer steps tensors whose codec its own way does not suit."""

import abc
from collections.abc import Iterator

import torch

from deltawire import _core
from deltawire.torch.core.arguments import held_by, steps_a_share
from deltawire.torch.core.optimizer_rules.tensors import CodedTensors


class OptimizerRule(abc.ABC):
    """Changes how an optimizer steps those tensors of a model that have one of some codecs.

    The optimizer's step() runs on a stand-in with the optimizer's state and other param_groups. The
    optimizer's own param_groups keep what the user or a scheduler wrote there, which is read in
    every step.

    Attributes:
        step: number of the step whose gradients the optimizer gets next; the hook sets it.

    Thread rule: the thread of optimizer.step(); `step` is set between two of them.
    """

    _named = ""

    def __init__(
        self, optimizer: torch.optim.Optimizer, coded: CodedTensors, advice: _core.OptimizerRule
    ) -> None:
        """`advice`: what the table of codecs and optimizers says, whose constants the rule uses."""
        self.step = 0
        self._advice = advice
        self._given = optimizer
        # Of a ZeroRedundancyOptimizer the one that steps this rank's share.
        self._is_share = steps_a_share(optimizer)
        self._optimizer = optimizer.optim if self._is_share else optimizer
        self._coded = coded
        self._handle = None
        # One for all steps: torch.compile compiles a step for each optimizer that it sees.
        self._stand_in: torch.optim.Optimizer | None = None

    @property
    def name(self) -> str:
        """For the comparison between ranks."""
        return f"{type(self._given).__name__}, {self._named}"

    @property
    def held(self) -> set[int]:
        """id(parameter) of all that the optimizer steps, on any rank."""
        return held_by(self._given)

    def text(self) -> str:
        """What will happen, in one line."""
        first, coded = self._coded.ever()
        of_ours = self.held & coded.keys()
        changes = {
            self._change(group)
            for group in self._given.param_groups
            if self._applies_to(group) and not of_ours.isdisjoint(map(id, group["params"]))
        }
        since = f", from step {first} on," if first else ""
        return (
            f"{type(self._optimizer).__name__} steps {len(of_ours)} of {len(self._coded.tensors)} "
            f"tensors{since} {self._way()}: {'; '.join(sorted(changes)) or 'it has none now'} "
            '(momentum="optimizer": it is left alone)'
        )

    def attach(self) -> None:
        """Begins."""
        # Not for torch.compile, which would trace what the hook asks of the core.
        before_step = torch.compiler.disable(self._before_step)
        self._handle = self._optimizer.register_step_pre_hook(before_step)

    def remove(self) -> None:
        """Leaves the optimizer's step as it was; idempotent."""
        if self._handle is not None:
            self._handle.remove()

    def shown(self, step: int) -> dict[str, dict[str, float]]:
        """What `explain` shows of each tensor that is stepped in another way: fields of its row."""
        coded = self._coded.at(step)
        return {
            coded[id(parameter)]: self._shown(group, step)
            for group in self._given.param_groups
            if self._applies_to(group)
            for parameter in group["params"]
            if id(parameter) in coded
        }

    def _before_step(self, _, args: tuple, kwargs: dict) -> tuple:
        own, *args = args  # the optimizer, or a stand-in for it, if it has several rules
        args, kwargs = _evaluated(args, kwargs)
        coded = self._coded.at(self.step)
        groups = [part for group in own.param_groups for part in self._parts(own, group, coded)]
        if type(self._stand_in) is not type(own):
            self._stand_in = object.__new__(type(own))
        vars(self._stand_in).update(vars(own), param_groups=groups)
        return (self._stand_in, *args), kwargs

    @abc.abstractmethod
    def _parts(
        self, own: torch.optim.Optimizer, group: dict, coded: dict[int, str]
    ) -> Iterator[dict]:
        """The groups that take a group's place in the coming step. `coded`: id(parameter) -> name
        of the tensors that the rule is for."""

    @abc.abstractmethod
    def _applies_to(self, group: dict) -> bool:
        """Whether there is anything to change in one of the optimizer's groups."""

    @abc.abstractmethod
    def _way(self) -> str:
        """How the tensors are stepped, and why, in words."""

    @abc.abstractmethod
    def _change(self, group: dict) -> str:
        """What becomes of a group's settings, in words."""

    @abc.abstractmethod
    def _shown(self, group: dict, step: int) -> dict[str, float]:
        """Fields of `TensorRow`."""


def _evaluated(args: list, kwargs: dict) -> tuple[list, dict]:
    """The arguments of step() after its closure, which computes the gradients that a rule needs:
    the closure that is left gives the loss that this one gave."""
    closure = args[0] if args else kwargs.get("closure")
    if closure is None:
        return args, kwargs
    with torch.enable_grad():
        loss = closure()
    if args:
        return [lambda: loss, *args[1:]], kwargs
    return args, {**kwargs, "closure": lambda: loss}
