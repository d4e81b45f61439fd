"""Steps the tensors whose gradients arrive late with other settings than the optimizer's."""

import abc
from collections.abc import Iterator

import torch

from deltawire.torch.core.late.tensors import LateTensors, late_rules


class LateRule(abc.ABC):
    """Replaces the momentum with which an optimizer steps the late tensors of a model.

    The optimizer's step() runs on a stand-in with the optimizer's state and other param_groups: the
    late tensors of a group with momentum are a group of their own, with other settings. The
    optimizer's own param_groups keep what the user or a scheduler wrote there, which is read in
    every step.

    Attributes:
        step: number of the step whose gradients the optimizer gets next; the hook sets it.

    Thread rule: the thread of optimizer.step(); `step` is set between two of them.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, late: LateTensors) -> None:
        self.step = 0
        self._optimizer = optimizer
        self._late = late
        self._handle = None
        # One for all steps: torch.compile compiles a step for each optimizer that it sees.
        self._stand_in: torch.optim.Optimizer | None = None

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """For the comparison between ranks."""

    @property
    def held(self) -> set[int]:
        """id(parameter) of all that the optimizer steps."""
        return {id(each) for group in self._optimizer.param_groups for each in group["params"]}

    def text(self) -> str:
        """What will happen, in one line."""
        late = self._late.at(0)
        of_ours = self.held & late.keys()
        changes = {
            self._change(group)
            for group in self._optimizer.param_groups
            if self._has_momentum(group) and not of_ours.isdisjoint(map(id, group["params"]))
        }
        return (
            f"{type(self._optimizer).__name__} steps {len(of_ours)} of {len(self._late.tensors)} "
            f"tensors without momentum, because '{late_rules(self._late.spec)[0]}' sends most of a "
            f"gradient later: {'; '.join(sorted(changes)) or 'it has none now'} "
            '(momentum="optimizer": it keeps its momentum)'
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
        """What `explain` shows of each late tensor that an optimizer with momentum steps: fields of
        its row."""
        late = self._late.at(step)
        return {
            late[id(parameter)]: self._shown(group, step)
            for group in self._optimizer.param_groups
            if self._has_momentum(group)
            for parameter in group["params"]
            if id(parameter) in late
        }

    def _before_step(self, _, args: tuple, kwargs: dict) -> tuple:
        own = args[0]  # the optimizer, or a stand-in for it, if it steps two models
        late = self._late.at(self.step)
        groups = [part for group in own.param_groups for part in self._parts(group, late)]
        if type(self._stand_in) is not type(own):
            self._stand_in = object.__new__(type(own))
        vars(self._stand_in).update(vars(own), param_groups=groups)
        return (self._stand_in, *args[1:]), kwargs

    def _parts(self, group: dict, late: dict[int, str]) -> Iterator[dict]:
        parameters = [each for each in group["params"] if id(each) in late]
        if not parameters or not self._has_momentum(group):
            yield group
            return
        self._prepare(late, [each for each in parameters if each.grad is not None])
        others = [each for each in group["params"] if id(each) not in late]
        if others:
            yield {**group, "params": others}
        yield {**group, "params": parameters, **self._settings(group)}

    @abc.abstractmethod
    def _prepare(self, late: dict[int, str], parameters: list[torch.Tensor]) -> None:
        """Changes the state of those of the late tensors that are about to be stepped."""

    @abc.abstractmethod
    def _has_momentum(self, group: dict) -> bool:
        """Whether there is anything to replace in one of the optimizer's groups."""

    @abc.abstractmethod
    def _settings(self, group: dict) -> dict:
        """What late tensors of a group have in place of its settings, in the coming step."""

    @abc.abstractmethod
    def _change(self, group: dict) -> str:
        """What becomes of a group's momentum, in words."""

    @abc.abstractmethod
    def _shown(self, group: dict, step: int) -> dict[str, float]:
        """Fields of `TensorRow`."""
