"""The rule by which an optimizer steps what arrives late."""

import logging

import torch

from deltawire import _core
from deltawire.errors import make_error
from deltawire.torch.core.late.adam_without_momentum import AdamWithoutMomentum
from deltawire.torch.core.late.momentum_as_rate import MomentumAsRate
from deltawire.torch.core.late.rule import LateRule
from deltawire.torch.core.late.tensors import LateTensors, late_rules

logger = logging.getLogger("deltawire")

AS_RATE, IN_OPTIMIZER = "rate", "optimizer"
_RULES: dict[type, type[LateRule]] = {
    torch.optim.SGD: MomentumAsRate,
    torch.optim.Adam: AdamWithoutMomentum,
    torch.optim.AdamW: AdamWithoutMomentum,
}
# Points of accuracy that LeNet-5 lost under AdamW in spite of the rule
# (docs/results/training/late-codecs.md).
_LOST_UNDER_ADAM = {"twobit": 11}
_OTHERWISE = (
    "int8 sends nearly everything at once and goes with any optimizer, 3lc with SGD; LocalSteps "
    'exchanges after several steps of it (docs/guides/pytorch.md, "Momentum")'
)


def check_momentum(momentum: str) -> None:
    """Raises InvalidArgumentError for a momentum= that `register` doesn't know."""
    if momentum not in (AS_RATE, IN_OPTIMIZER):
        raise make_error(
            "InvalidArgument", f'momentum={momentum!r} is neither "{AS_RATE}" nor "{IN_OPTIMIZER}"'
        )


def stays_in_optimizer(momentum: str, spec: _core.Spec) -> bool:
    """Whether there are late gradients, and momentum= says that the optimizer keeps its momentum
    for them."""
    return momentum == IN_OPTIMIZER and bool(late_rules(spec))


def rule_for(
    optimizer: torch.optim.Optimizer | None, momentum: str, late: LateTensors
) -> LateRule | None:
    """The rule for register's optimizer= and momentum=; None if nothing arrives late, without an
    optimizer, or with momentum="optimizer".

    Raises InvalidArgumentError for an optimizer that holds none of the parameters, or for which
    there is no rule. If the spec has another use for such a one, a warning says so instead.
    """
    if optimizer is None or momentum == IN_OPTIMIZER or not late_rules(late.spec):
        return None
    kind = type(optimizer)
    if kind not in _RULES:
        _refuse(late.spec, kind.__name__)
        return None
    rule = _RULES[kind](optimizer, late)
    if rule.held.isdisjoint(late.names):
        raise make_error(
            "InvalidArgument",
            f"optimizer={kind.__name__} holds none of the model's parameters; pass the optimizer "
            "that steps this model",
        )
    if kind is not torch.optim.SGD:
        _warn_of_loss(late.spec)
    return rule


def _warn_of_loss(spec: _core.Spec) -> None:
    for each in spec.rules:
        if each.info.name in _LOST_UNDER_ADAM and each.is_late:
            logger.warning(
                "'%s' lost %d points under AdamW on LeNet-5, where topk:k=1%% and sbc:p=1%% lost "
                "none (docs/results/training/late-codecs.md): take one of these",
                each.codec,
                _LOST_UNDER_ADAM[each.info.name],
            )


def _refuse(spec: _core.Spec, kind: str) -> None:
    """Raises InvalidArgumentError, or warns if the spec has another use for the optimizer."""
    text = (
        f"'{late_rules(spec)[0]}' sends most of a gradient later, which an optimizer's momentum "
        "multiplies or delays; what can take its place is known for torch.optim.SGD, Adam and "
        f"AdamW, not for {kind}"
    )
    if not spec.uses_significance:
        raise make_error("InvalidArgument", f"{text}; leave optimizer= out, or: {_OTHERWISE}")
    logger.warning("%s: %s", text, _OTHERWISE)
