"""Translates torch's optimizers into the core's settings."""

import torch

from deltawire import _core

KNOWN = "torch.optim.SGD, Adagrad, RMSprop, Adam and AdamW"


def settings_of(kind: type[torch.optim.Optimizer], group: dict) -> _core.OptimizerSettings:
    """The current settings of one of an optimizer's param_groups.

    Args:
        kind: one of KINDS.
        group: the group. The caller must refuse what the core doesn't support (`maximize`,
            `amsgrad`, a centered RMSprop, momentum in RMSprop).
    """
    settings = KINDS[kind](group)
    settings.learning_rate = float(group["lr"])
    settings.weight_decay = float(group["weight_decay"])
    return settings


def _sgd(group: dict) -> _core.OptimizerSettings:
    if group["momentum"] == 0:
        return _core.OptimizerSettings("sgd")
    settings = _core.OptimizerSettings("nesterov" if group["nesterov"] else "momentum")
    settings.momentum = float(group["momentum"])
    settings.dampening = float(group["dampening"])
    return settings


def _adagrad(group: dict) -> _core.OptimizerSettings:
    settings = _core.OptimizerSettings("adagrad")
    settings.lr_decay = float(group["lr_decay"])
    settings.eps = float(group["eps"])
    settings.initial_accumulator = float(group["initial_accumulator_value"])
    return settings


def _rmsprop(group: dict) -> _core.OptimizerSettings:
    settings = _core.OptimizerSettings("rmsprop")
    settings.alpha = float(group["alpha"])
    settings.eps = float(group["eps"])
    return settings


def _adam(group: dict) -> _core.OptimizerSettings:
    decoupled = group.get("decoupled_weight_decay")
    return _with_betas(_core.OptimizerSettings("adamw" if decoupled else "adam"), group)


def _adamw(group: dict) -> _core.OptimizerSettings:
    return _with_betas(_core.OptimizerSettings("adamw"), group)


def _with_betas(settings: _core.OptimizerSettings, group: dict) -> _core.OptimizerSettings:
    settings.beta1, settings.beta2 = map(float, group["betas"])
    settings.eps = float(group["eps"])
    return settings


KINDS = {
    torch.optim.SGD: _sgd,
    torch.optim.Adagrad: _adagrad,
    torch.optim.RMSprop: _rmsprop,
    torch.optim.Adam: _adam,
    torch.optim.AdamW: _adamw,
}
