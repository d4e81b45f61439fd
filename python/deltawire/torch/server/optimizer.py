"""A torch optimizer as the spec of the servers' optimizer."""

import torch

from deltawire.errors import invalid, wrong_state, wrong_type
from deltawire.torch.core.optimizer_settings import KINDS, KNOWN, settings_of

# What a param_group may ask for, but servers don't support.
_REFUSED = ("maximize", "amsgrad", "centered")


def spec_of(optimizer: torch.optim.Optimizer, names: dict[int, str]) -> str:
    """The optimizer as a spec of the core, such as "momentum:lr=0.1,momentum=0.9".

    Args:
        optimizer: new, with one setting for all parameters.
        names: id -> name of the parameters that servers step.

    Raises:
        DTypeError (a TypeError): another optimizer, or a subclass, whose step may differ.
        InvalidArgumentError (a ValueError): settings that differ between groups or that servers
            don't support; an optimizer that has stepped before; parameters that only the optimizer
            or only the model has.
    """
    if type(optimizer) not in KINDS:
        raise wrong_type(
            f"ParameterServer steps {KNOWN} themselves, not {type(optimizer).__name__}: the "
            "servers have no other step; take one of these, or LocalSteps, which takes any"
        )
    _check_parameters(optimizer, names)
    specs = settings_now(optimizer)
    if len(specs) > 1:
        raise invalid(
            f"the optimizer's groups differ: {specs[0]} and {specs[1]}; servers have one setting "
            "for all parameters: make the optimizer from model.parameters()"
        )
    # Adagrad has a state even before its first step.
    if any(state and float(state.get("step", 1)) > 0 for state in optimizer.state.values()):
        raise invalid(
            "the optimizer has stepped already, and servers would begin without its state; make a "
            "new one, and go on with load_state_dict() of the ParameterServer"
        )
    return specs[0]


def settings_now(optimizer: torch.optim.Optimizer) -> list[str]:
    """The specs of its groups, without duplicates: one for an optimizer that `spec_of` accepted."""
    specs = [_spec_of_group(optimizer, group) for group in optimizer.param_groups]
    return list(dict.fromkeys(specs))


def rate_of(optimizer: torch.optim.Optimizer) -> float:
    """The current learning rate. Raises InvalidArgumentError if the groups differ."""
    rates = {float(group["lr"]) for group in optimizer.param_groups}
    if len(rates) > 1:
        raise invalid(
            f"the optimizer's groups have the learning rates {sorted(rates)}; servers have one"
        )
    return rates.pop()


def _spec_of_group(optimizer: torch.optim.Optimizer, group: dict) -> str:
    kind = type(optimizer)
    refused = [*_REFUSED, *(["momentum"] if kind is torch.optim.RMSprop else [])]
    for name in refused:
        if group.get(name):
            raise invalid(
                f"{kind.__name__}({name}={group[name]}) is not supported: servers step without "
                f"{name}; leave it out"
            )
    return settings_of(kind, group).spec


def _check_parameters(optimizer: torch.optim.Optimizer, names: dict[int, str]) -> None:
    stepped = {id(each): each for group in optimizer.param_groups for each in group["params"]}
    for key, name in names.items():
        if key not in stepped:
            raise invalid(
                f"parameter '{name}' is not in the optimizer, and servers step all that require "
                "gradients: freeze it (requires_grad_(False)), or make the optimizer from "
                "model.parameters()"
            )
    for key, parameter in stepped.items():
        if key not in names and parameter.requires_grad and parameter.numel():
            raise invalid(
                f"the optimizer has a parameter of shape {tuple(parameter.shape)} that isn't the "
                "model's; make it from model.parameters()"
            )


def refuse_step(optimizer, *_) -> None:
    """The pre-hook of a worker's optimizer: always raises."""
    raise wrong_state(
        f"{type(optimizer).__name__}.step() on a worker would move its parameters away from the "
        "servers': call the ParameterServer's step() in its place"
    )
