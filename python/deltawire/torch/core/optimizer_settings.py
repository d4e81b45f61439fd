"""Translates torch's optimizers into the core's settings."""

from collections.abc import Callable

import torch

from deltawire import _core

KNOWN = "torch.optim.SGD, Adagrad, RMSprop, Adam and AdamW"


def _sgd(group: dict) -> str:
    return "sgd" if not group["momentum"] else "nesterov" if group["nesterov"] else "momentum"


# The core's name of an optimizer with a group's settings.
KINDS: dict[type[torch.optim.Optimizer], Callable[[dict], str]] = {
    torch.optim.SGD: _sgd,
    torch.optim.Adagrad: lambda group: "adagrad",
    torch.optim.RMSprop: lambda group: "rmsprop",
    torch.optim.Adam: lambda group: "adamw" if group.get("decoupled_weight_decay") else "adam",
    torch.optim.AdamW: lambda group: "adamw",
}
# What else than torch the core calls its settings, of which each optimizer has some.
_NAMES = {"lr": "learning_rate", "initial_accumulator_value": "initial_accumulator"}
_SETTINGS = {
    **dict.fromkeys(("momentum", "nesterov"), ("momentum", "dampening")),
    "adagrad": ("lr_decay", "eps", "initial_accumulator_value"),
    "rmsprop": ("alpha", "eps"),
    **dict.fromkeys(("adam", "adamw"), ("eps",)),
}


def settings_of(kind: type[torch.optim.Optimizer], group: dict) -> _core.OptimizerSettings:
    """The current settings of one of an optimizer's param_groups.

    Args:
        kind: one of KINDS.
        group: the group. The caller must refuse what the core doesn't support (`maximize`,
            `amsgrad`, a centered RMSprop, momentum in RMSprop).
    """
    name = KINDS[kind](group)
    settings = _core.OptimizerSettings(name)
    for each in ("lr", "weight_decay", *_SETTINGS.get(name, ())):
        setattr(settings, _NAMES.get(each, each), float(group[each]))
    if name in ("adam", "adamw"):
        settings.beta1, settings.beta2 = map(float, group["betas"])
    return settings
