"""The rules by which an optimizer steps what its own way does not suit."""

import logging
from collections.abc import Callable, Iterator

import torch

from deltawire import _core
from deltawire.errors import make_error
from deltawire.torch.core.late.adam_without_momentum import AdamWithoutMomentum
from deltawire.torch.core.late.momentum_as_rate import MomentumAsRate
from deltawire.torch.core.late.row_second_moment import RowSecondMoment
from deltawire.torch.core.late.rule import OptimizerRule
from deltawire.torch.core.late.tensors import CodedTensors, late_rules, row_rules

logger = logging.getLogger("deltawire")

AS_RATE, IN_OPTIMIZER = "rate", "optimizer"
_FOR_LATE: dict[type, type[OptimizerRule]] = {
    torch.optim.SGD: MomentumAsRate,
    torch.optim.Adam: AdamWithoutMomentum,
    torch.optim.AdamW: AdamWithoutMomentum,
}
_BY_ROWS = (torch.optim.Adam, torch.optim.AdamW)
# s of the means that owners send back, for these: with the push's 1 they would be delayed once more
# (docs/results/training/late-codecs.md).
_PULL = 0.5
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
    """Whether there is a rule for some optimizer, and momentum= says that it is left alone."""
    return momentum == IN_OPTIMIZER and bool(late_rules(spec) or row_rules(spec))


def with_means_for(
    optimizer: torch.optim.Optimizer | None, momentum: str, spec: _core.Spec
) -> _core.Spec:
    """The spec, with means as fine as the rule of this optimizer needs them, where it leaves that
    open."""
    acts = type(optimizer) in _BY_ROWS and momentum == AS_RATE and row_rules(spec)
    return spec.with_pull(_PULL) if acts else spec


class OptimizerRules:
    """The rules of one optimizer, as one.

    Attributes:
        by_rows: the one that needs mean squares beside the coded gradients; None: there is none.
    """

    def __init__(self, rules: list[OptimizerRule]) -> None:
        self._rules = rules
        self.by_rows = next((each for each in rules if isinstance(each, RowSecondMoment)), None)

    @property
    def name(self) -> str:
        """For the comparison between ranks."""
        return "; ".join(each.name for each in self._rules)

    @property
    def held(self) -> set[int]:
        """id(parameter) of all that the optimizer steps."""
        return set().union(*(each.held for each in self._rules))

    def text(self) -> str:
        """What will happen, in one line."""
        return "; ".join(each.text() for each in self._rules)

    def attach(self) -> None:
        """Begins."""
        for each in self._rules:
            each.attach()

    def remove(self) -> None:
        """Leaves the optimizer's step as it was; idempotent."""
        for each in self._rules:
            each.remove()

    def go_to(self, step: int) -> None:
        """Sets the number of the step whose gradients the optimizer gets next."""
        for each in self._rules:
            each.step = step

    def shown(self, step: int) -> dict[str, dict[str, float]]:
        """What `explain` shows of each tensor that is stepped in another way: fields of its row."""
        return {name: row for each in self._rules for name, row in each.shown(step).items()}


def rules_for(
    optimizer: torch.optim.Optimizer | None,
    momentum: str,
    spec: _core.Spec,
    coded_as: Callable[[list[str]], CodedTensors],
) -> OptimizerRules | None:
    """The rules for register's optimizer= and momentum=; None if there is nothing to do, without an
    optimizer, or with momentum="optimizer".

    Args:
        coded_as: gives the tensors that have one of some codecs.

    Raises InvalidArgumentError for an optimizer that holds none of the parameters, or for which
    there is no rule. If the spec has another use for such a one, a warning says so instead.
    """
    if optimizer is None or momentum == IN_OPTIMIZER:
        return None
    rules = list(_rules_of(optimizer, spec, coded_as))
    if not rules:
        return None
    made = OptimizerRules(rules)
    if made.held.isdisjoint(coded_as([]).names):
        raise make_error(
            "InvalidArgument",
            f"optimizer={type(optimizer).__name__} holds none of the model's parameters; pass the "
            "optimizer that steps this model",
        )
    if type(optimizer) is not torch.optim.SGD:
        _warn_of_loss(spec)
    return made


def _rules_of(
    optimizer: torch.optim.Optimizer,
    spec: _core.Spec,
    coded_as: Callable[[list[str]], CodedTensors],
) -> Iterator[OptimizerRule]:
    kind, late, by_rows = type(optimizer), late_rules(spec), row_rules(spec)
    if late and kind in _FOR_LATE:
        yield _FOR_LATE[kind](optimizer, coded_as(late))
    elif late:
        _refuse(spec, kind.__name__)
    if by_rows and kind in _BY_ROWS:
        yield RowSecondMoment(optimizer, coded_as(by_rows))


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
