"""Warns once if the optimizer and the codec don't go together."""

import dataclasses
import logging
import warnings
import weakref
from collections.abc import Callable, Collection, Iterable

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from deltawire import _core
from deltawire.torch.core.arguments import held_by

logger = logging.getLogger("deltawire")


class MomentumWarning(UserWarning):
    """An optimizer's momentum acts on gradients that arrive late, or a second time; or its second
    moment on a few large values in place of a gradient. To silence it:
    `warnings.filterwarnings("ignore", category=deltawire.torch.MomentumWarning)`."""


@dataclasses.dataclass(frozen=True)
class Taken:
    """What becomes of an optimizer that was not given.

    Attributes:
        by_rule: what happens, if a rule steps it from now on.
        in_the_way: why none does, where one might; "": none is needed.
        waits: whether that is known only when another one, or this one again, steps the model.
    """

    by_rule: str = ""
    in_the_way: str = ""
    waits: bool = False


def traits_of(optimizer: torch.optim.Optimizer, groups: Iterable[dict]) -> _core.OptimizerTraits:
    """An optimizer as the table of codecs and optimizers knows it, by its class and groups."""
    kind, groups = type(getattr(optimizer, "optim", optimizer)), list(groups)  # in ZeRO's
    name = kind.__name__
    if getattr(torch.optim, name, kind) is not kind:  # others' AdamW may keep another state
        name = f"{kind.__module__}.{name}"
    momentum = max((float(each.get("momentum", 0.0)) for each in groups), default=0.0)
    beta1 = max((float(each["betas"][0]) for each in groups if each.get("betas")), default=0.0)
    return _core.OptimizerTraits(name, momentum, beta1)


def watch(
    spec: _core.Spec,
    parameters: Iterable[torch.nn.Parameter],
    rank: int,
    take: Callable[[torch.optim.Optimizer], Taken] = lambda _: Taken(),
    is_provided: Callable[[torch.optim.Optimizer], bool] = lambda _: False,
) -> None:
    """Warns, on rank 0, of optimizers that step these parameters and don't go with the spec.

    Args:
        take: called before the first step of each: `OptimizerRules.take`.
        is_provided: whether one needs no warning: a rule steps some of its tensors.
    """
    trained = {id(each): weakref.ref(each) for each in parameters if each.requires_grad}
    _watches.append(_Watch(spec, trained, rank, take, is_provided))
    if len(_handles) == 0:
        _handles.append(register_optimizer_step_pre_hook(_look))


def _look(optimizer: torch.optim.Optimizer, _args, _kwargs) -> None:
    # One hook for all, never removed: torch iterates over the dict of hooks while it calls them,
    # and a hook that removed itself would end the user's step() with a RuntimeError.
    for each in list(_watches):
        if each.is_over(optimizer):
            _watches.remove(each)


@dataclasses.dataclass(frozen=True, eq=False)
class _Watch:
    """Watches the steps of all optimizers until each parameter of the model has one."""

    spec: _core.Spec
    parameters: dict[int, weakref.ref]  # by id, of which no optimizer was seen
    rank: int
    take: Callable[[torch.optim.Optimizer], Taken]
    is_provided: Callable[[torch.optim.Optimizer], bool]
    told: set[str] = dataclasses.field(default_factory=set)

    def is_over(self, optimizer: torch.optim.Optimizer) -> bool:
        """Whether there is nothing left to watch: all optimizers were seen, or the model is
        gone."""
        if all(kept() is None for kept in self.parameters.values()):
            return True
        groups = [group for group in optimizer.param_groups if self._steps_ours(group)]
        if not groups:
            return False
        taken = self.take(optimizer)
        if taken.waits:
            return False
        if self.rank == 0:
            self._tell(optimizer, groups, taken)
        for each in held_by(optimizer):
            self.parameters.pop(each, None)
        return not self.parameters

    def _tell(self, optimizer: torch.optim.Optimizer, groups: list[dict], taken: Taken) -> None:
        if taken.by_rule:
            logger.warning("%s", taken.by_rule)
        why = f". This is not done by itself: {taken.in_the_way}" if taken.in_the_way else ""
        traits, place = traits_of(optimizer, groups), _core.OptimizerPlace.REGISTER
        texts = _core.optimizer_warnings(self.spec, traits, place, self.is_provided(optimizer))
        new = [each for each in texts if each not in self.told]
        self.told.update(new)
        _warn((each + why for each in new), stacklevel=6)

    def _steps_ours(self, group: dict) -> bool:
        return any(
            id(each) in self.parameters and self.parameters[id(each)]() is each
            for each in group["params"]
        )


_watches: list[_Watch] = []
_handles: list = []  # the hook's handle, once there is one


def of_diverging(spec: _core.Spec, stepped_by_rule: Collection[int]) -> str:
    """What to do first, where the optimizer has momentum, about values that are not finite; "" if
    momentum goes with the spec."""
    late = next((rule.codec for rule in spec.rules if rule.is_late), None)
    if late is None or stepped_by_rule:
        return ""
    return (
        f"if the optimizer has momentum, which multiplies what '{late}' sends later, such runs "
        'diverge: give register optimizer= (docs/guides/pytorch.md, "Momentum")'
    )


def warn_of(
    spec: _core.Spec,
    optimizer: torch.optim.Optimizer,
    place: _core.OptimizerPlace,
    *,
    stacklevel: int,
) -> None:
    """Warns if the spec doesn't go with an optimizer that steps there. `stacklevel` as
    warnings.warn has it, from here."""
    traits = traits_of(optimizer, optimizer.param_groups)
    _warn(_core.optimizer_warnings(spec, traits, place), stacklevel=stacklevel + 1)


def _warn(texts: Iterable[str], *, stacklevel: int) -> None:
    for text in texts:
        warnings.warn(text, MomentumWarning, stacklevel=stacklevel)
