"""Warns once if the optimizer and the codec don't go together."""

import warnings
import weakref
from collections.abc import Collection, Iterable, Iterator

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from deltawire import _core
from deltawire.torch.core.optimizer_rules.tensors import late_rules


class MomentumWarning(UserWarning):
    """An optimizer's momentum acts on gradients that arrive late, or a second time; or its second
    moment on a few large values in place of a gradient. To silence it:
    `warnings.filterwarnings("ignore", category=deltawire.torch.MomentumWarning)`."""


def traits_of(optimizer: str, groups: Iterable[dict]) -> _core.OptimizerTraits:
    """An optimizer as the table of codecs and optimizers knows it, by its class and groups."""
    groups = list(groups)
    momentum = max((float(each.get("momentum", 0.0)) for each in groups), default=0.0)
    beta1 = max((float(each["betas"][0]) for each in groups if each.get("betas")), default=0.0)
    return _core.OptimizerTraits(optimizer, momentum, beta1)


def watch(
    spec: _core.Spec,
    parameters: Iterable[torch.nn.Parameter],
    rank: int,
    stepped_by_rule: Collection[int] = (),
) -> None:
    """Warns, on rank 0, if the optimizer that first steps these parameters doesn't go with the
    spec.

    Args:
        stepped_by_rule: id(parameter) of those that are provided for (`OptimizerRule`). So are
            those that their optimizer gets later.
    """
    if rank != 0:
        return
    parameters = list(parameters)
    others = [each for each in parameters if id(each) not in stepped_by_rule]
    provided = [each for each in parameters if id(each) in stepped_by_rule]
    for watched in filter(None, (others, provided)):
        _watches.append(_Watch(spec, watched, stepped_by_rule))
    if len(_handles) == 0:
        _handles.append(register_optimizer_step_post_hook(_look))


def _look(optimizer: torch.optim.Optimizer, _args, _kwargs) -> None:
    # One hook for all, never removed: torch iterates over the dict of hooks while it calls them,
    # and a hook that removed itself would end the user's step() with a RuntimeError.
    for each in list(_watches):
        if each.is_over(optimizer):
            _watches.remove(each)


class _Watch:
    """Watches the steps of all optimizers until one steps a parameter of the model."""

    def __init__(
        self,
        spec: _core.Spec,
        parameters: Iterable[torch.nn.Parameter],
        provided: Collection[int],
    ) -> None:
        self._spec, self._provided = spec, provided
        self._parameters = {id(each): weakref.ref(each) for each in parameters}

    def is_over(self, optimizer: torch.optim.Optimizer) -> bool:
        """Whether there is nothing left to watch: this was the model's optimizer, for which it has
        warned, or the model is gone."""
        if all(kept() is None for kept in self._parameters.values()):
            return True
        groups = [group for group in optimizer.param_groups if self._steps_ours(group)]
        if groups:
            provided = self._is_provided_for(optimizer)
            traits = traits_of(type(optimizer).__name__, groups)
            _warn(_of_register(self._spec, traits, provided), stacklevel=5)
        return bool(groups)

    def _is_provided_for(self, optimizer: torch.optim.Optimizer) -> bool:
        held = (id(each) for group in optimizer.param_groups for each in group["params"])
        return any(each in self._provided for each in held)

    def _steps_ours(self, group: dict) -> bool:
        return any(
            id(each) in self._parameters and self._parameters[id(each)]() is each
            for each in group["params"]
        )


_watches: list[_Watch] = []
_handles: list = []  # the hook's handle, once there is one


def of_diverging(spec: _core.Spec, stepped_by_rule: Collection[int]) -> str:
    """What to do first, where the optimizer has momentum, about values that are not finite; "" if
    momentum goes with the spec."""
    late = [] if stepped_by_rule else late_rules(spec)
    if not late:
        return ""
    return (
        f"if the optimizer has momentum, which multiplies what '{late[0]}' sends later, such runs "
        'diverge: give register optimizer= (docs/guides/pytorch.md, "Momentum")'
    )


def warn(spec: _core.Spec, optimizer: str, groups: list[dict], *, stacklevel: int) -> None:
    """Warns if what is coded are changes of weights, of single steps by this optimizer, and the
    momentum of these doesn't go with the spec. `stacklevel` as warnings.warn has it, from here."""
    _warn_of(spec, optimizer, groups, _core.OptimizerPlace.LOCAL_STEPS, stacklevel=stacklevel + 1)


def warn_of_outer(spec: _core.Spec, optimizer: str, groups: list[dict], *, stacklevel: int) -> None:
    """Warns if an outer optimizer has momentum and the spec sends most of a change in later rounds.
    `stacklevel` as warnings.warn has it, from here."""
    _warn_of(spec, optimizer, groups, _core.OptimizerPlace.OUTER, stacklevel=stacklevel + 1)


def _of_register(
    spec: _core.Spec, optimizer: _core.OptimizerTraits, provided: bool
) -> Iterator[str]:
    """What the table warns of, but for what a rule of the optimizer provides for."""
    for rule in spec.rules:
        found = _core.optimizer_rule(rule, optimizer)
        if not provided or found.rule == _core.StepRule.AS_IT_IS:
            yield found.warning


def _warn_of(spec, optimizer, groups, place, *, stacklevel) -> None:
    texts = _core.optimizer_warnings(spec, traits_of(optimizer, groups), place)
    _warn(texts, stacklevel=stacklevel + 1)


def _warn(texts: Iterable[str], *, stacklevel: int) -> None:
    for text in dict.fromkeys(filter(None, texts)):
        warnings.warn(text, MomentumWarning, stacklevel=stacklevel)
