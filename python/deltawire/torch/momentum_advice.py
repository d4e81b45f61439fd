"""Says once what to do where an optimizer's momentum meets a codec that doesn't go with it."""

import warnings
import weakref
from collections.abc import Iterable

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from deltawire.late_codecs import late_rules, rate_times, rules_with_momentum


class MomentumWarning(UserWarning):
    """An optimizer's momentum acts on what arrives late, or a second time. To silence it:
    `warnings.filterwarnings("ignore", category=deltawire.torch.MomentumWarning)`."""


def watch(canonical_spec: str, parameters: Iterable[torch.nn.Parameter], rank: int) -> None:
    """Looks at the optimizer that steps these parameters, when it does so for the first time, and
    warns on rank 0 where its momentum doesn't go with the spec. Nothing is left afterwards."""
    if rank == 0 and (late_rules(canonical_spec) or rules_with_momentum(canonical_spec)):
        _Watch(canonical_spec, parameters)


class _Watch:
    """A hook on the steps of all optimizers, until one steps a parameter of the model."""

    def __init__(self, spec: str, parameters: Iterable[torch.nn.Parameter]) -> None:
        self._spec = spec
        self._parameters = {id(each): weakref.ref(each) for each in parameters}
        self._handle = register_optimizer_step_post_hook(self._look)

    def _look(self, optimizer: torch.optim.Optimizer, _args, _kwargs) -> None:
        if all(kept() is None for kept in self._parameters.values()):
            self._handle.remove()  # the model is gone
            return
        groups = [group for group in optimizer.param_groups if self._steps_ours(group)]
        if groups:
            self._handle.remove()
            warn(self._spec, type(optimizer).__name__, groups, stacklevel=4)

    def _steps_ours(self, group: dict) -> bool:
        return any(
            id(each) in self._parameters and self._parameters[id(each)]() is each
            for each in group["params"]
        )


def warn(canonical_spec: str, optimizer: str, groups: list[dict], *, stacklevel: int) -> None:
    """Warns if one of the optimizer's groups has momentum and the spec doesn't go with it.
    `stacklevel` as warnings.warn has it, from here."""
    momentum = max((float(group.get("momentum", 0.0)) for group in groups), default=0.0)
    if not momentum > 0:
        return
    late = late_rules(canonical_spec)
    if late:
        text = (
            f"'{late[0]}' sends most of a gradient in later steps, and the momentum={momentum:g} "
            f"of {optimizer} multiplies what arrives: such runs diverged (docs/compare.md, "
            f'"What trains"). Give {optimizer} momentum=0 and {rate_times(momentum):.2g} times the '
            "learning rate; or momentum=0, and the momentum before the codec, as in 'dgc' or "
            f"'... with momentum={momentum:g}'; or exchange after several local steps (LocalSteps)"
        )
    elif rules_with_momentum(canonical_spec):
        text = (
            f"'{rules_with_momentum(canonical_spec)[0]}' has momentum before the codec, and "
            f"{optimizer} has momentum={momentum:g} again: give {optimizer} momentum=0"
        )
    else:
        return
    warnings.warn(text, MomentumWarning, stacklevel=stacklevel)
