"""Warns once if the optimizer and the codec don't go together."""

import warnings
import weakref
from collections.abc import Collection, Iterable

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from deltawire import _core
from deltawire.torch.core.late.momentum_as_rate import constant_rate_times
from deltawire.torch.core.late.tensors import late_rules, row_rules


class MomentumWarning(UserWarning):
    """An optimizer's momentum acts on gradients that arrive late, or a second time; or its second
    moment on a few large values in place of a gradient. To silence it:
    `warnings.filterwarnings("ignore", category=deltawire.torch.MomentumWarning)`."""


def _rules_with_momentum(spec: _core.Spec) -> list[str]:
    return [rule.codec for rule in spec.rules if rule.momentum]


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
    if not late_rules(spec) and not _rules_with_momentum(spec) and not row_rules(spec):
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


_WITH_SECOND_MOMENT = ("Adam", "AdamW")  # with a rule for it


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
            kind = type(optimizer).__name__
            provided = self._is_provided_for(optimizer)
            late, rows = ([] if provided else of(self._spec) for of in (late_rules, row_rules))
            _warn(self._spec, late, kind, groups, stacklevel=5)
            if rows and kind in _WITH_SECOND_MOMENT and not (late and any(map(_beta1_of, groups))):
                _warn_of_rows(rows[0], kind, stacklevel=5)
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
    """Warns if one of the optimizer's groups has momentum and the spec doesn't go with it.
    `stacklevel` as warnings.warn has it, from here."""
    late = late_rules(spec)
    _warn(spec, late, optimizer, groups, stacklevel=stacklevel + 1)


def warn_of_outer(spec: _core.Spec, optimizer: str, groups: list[dict], *, stacklevel: int) -> None:
    """Warns if an outer optimizer has momentum and the spec sends most of a change in later rounds.
    `stacklevel` as warnings.warn has it, from here."""
    late, momentum = late_rules(spec), _momentum_of(groups)
    if late and momentum > 0:
        warnings.warn(
            f"'{late[0]}' sends most of a change in later rounds, and the momentum={momentum:g} of "
            f"the outer {optimizer} multiplies what arrives: sbc and sparseloco ended 2 to 4 % "
            "higher with it than without an outer optimizer (docs/results/training/local-steps.md)."
            " Give outer=functools.partial(torch.optim.SGD, lr=2.0), or none",
            MomentumWarning,
            stacklevel=stacklevel,
        )


def _warn(spec, late, optimizer, groups, *, stacklevel) -> None:
    momentum = _momentum_of(groups)
    beta1 = max(map(_beta1_of, groups), default=0.0)
    again = _rules_with_momentum(spec)
    if late and momentum > 0:
        text = (
            f"'{late[0]}' sends most of a gradient in later steps, and the momentum={momentum:g} "
            f"of {optimizer} multiplies what arrives: such runs diverged "
            f"(docs/results/training/late-codecs.md). {_first_advice(optimizer)} {optimizer} "
            f"momentum=0 and {constant_rate_times(momentum):.2g} times the learning rate; or "
            "momentum=0, and the momentum before the codec, as in 'dgc' or "
            f"'... with momentum={momentum:g}'; or exchange after several local steps (LocalSteps)"
        )
    elif late and beta1 > 0:
        text = (
            f"'{late[0]}' sends most of a gradient in later steps, and the beta1={beta1:g} of "
            f"{optimizer} delays it further: LeNet-5 lost 5 to 11 points "
            f"(docs/results/training/late-codecs.md). {_first_advice(optimizer)} "
            f"{optimizer} beta1=0; or exchange after several local steps (LocalSteps)"
        )
    elif again and momentum > 0:
        text = (
            f"'{again[0]}' has momentum before the codec, and {optimizer} has "
            f"momentum={momentum:g} again: give {optimizer} momentum=0"
        )
    else:
        return
    warnings.warn(text, MomentumWarning, stacklevel=stacklevel)


def _warn_of_rows(codec: str, optimizer: str, *, stacklevel: int) -> None:
    warnings.warn(
        f"'{codec}' sends a few values as large as the largest, which the second moment of "
        f"{optimizer} takes for the gradient: its steps become too short, and LeNet-5 lost 8 "
        "points (docs/results/training/late-codecs.md). Give register optimizer=, so that it gets "
        "exact mean squares; or exchange after several local steps (LocalSteps)",
        MomentumWarning,
        stacklevel=stacklevel,
    )


def _momentum_of(groups: list[dict]) -> float:
    """The highest of SGD and its kin; 0 for others."""
    return max((float(group.get("momentum", 0.0)) for group in groups), default=0.0)


def _beta1_of(group: dict) -> float:
    """Of Adam and its kin; 0 for others."""
    betas = group.get("betas")
    return float(betas[0]) if betas else 0.0


def _first_advice(optimizer: str) -> str:
    """The advice that comes first, where it can be followed."""
    if optimizer not in ("SGD", "Adam", "AdamW"):
        return "Give"
    return "Under DistributedDataParallel or FSDP2, give register optimizer=; or give"
