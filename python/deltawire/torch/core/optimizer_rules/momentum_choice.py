"""The rules by which an optimizer steps what its own way does not suit."""

import logging
from collections.abc import Callable, Iterator

import torch

from deltawire import _core
from deltawire.errors import make_error
from deltawire.torch.core.optimizer_rules.adam_without_momentum import AdamWithoutMomentum
from deltawire.torch.core.optimizer_rules.momentum_advice import traits_of
from deltawire.torch.core.optimizer_rules.momentum_as_rate import MomentumAsRate
from deltawire.torch.core.optimizer_rules.row_second_moment import RowSecondMoment
from deltawire.torch.core.optimizer_rules.rule import OptimizerRule
from deltawire.torch.core.optimizer_rules.tensors import CodedTensors

logger = logging.getLogger("deltawire")

AS_RATE, IN_OPTIMIZER = "rate", "optimizer"
_OTHERWISE = (
    "int8 sends nearly everything at once and goes with any optimizer, 3lc with these three; "
    'LocalSteps exchanges after several steps of it (docs/guides/pytorch.md, "Momentum")'
)
_RULES: dict[_core.StepRule, type[OptimizerRule]] = {
    _core.StepRule.MOMENTUM_AS_RATE: MomentumAsRate,
    _core.StepRule.WITHOUT_FIRST_MOMENT: AdamWithoutMomentum,
    _core.StepRule.SECOND_MOMENT_BY_ROWS: RowSecondMoment,
}


def check_momentum(momentum: str) -> None:
    """Raises InvalidArgumentError for a momentum= that `register` doesn't know."""
    if momentum not in (AS_RATE, IN_OPTIMIZER):
        raise make_error(
            "InvalidArgument", f'momentum={momentum!r} is neither "{AS_RATE}" nor "{IN_OPTIMIZER}"'
        )


def advice_of(optimizer: torch.optim.Optimizer, spec: _core.Spec) -> list[_core.OptimizerRule]:
    """What the table says of each of the spec's rules with this optimizer, in their order."""
    kind = type(optimizer)
    name = kind.__name__
    if getattr(torch.optim, name, kind) is not kind:  # others' AdamW may keep another state
        name = f"{kind.__module__}.{name}"
    traits = traits_of(name, optimizer.param_groups)
    return [_core.optimizer_rule(rule, traits) for rule in spec.rules]


def has_rule(optimizer: str, spec: _core.Spec) -> bool:
    """Whether there is a rule for an optimizer of that name."""
    traits = _core.OptimizerTraits(optimizer)
    return any(_core.optimizer_rule(rule, traits).rule in _RULES for rule in spec.rules)


def may_have_rule(spec: _core.Spec) -> bool:
    """Whether there is a rule for some optimizer, so that any may be given."""
    return any(has_rule(kind, spec) for kind in ("SGD", "AdamW"))


def stays_in_optimizer(momentum: str, spec: _core.Spec) -> bool:
    """Whether there is a rule for some optimizer, and momentum= says that it is left alone."""
    return momentum == IN_OPTIMIZER and may_have_rule(spec)


def with_means_for(
    optimizer: torch.optim.Optimizer | None, momentum: str, spec: _core.Spec
) -> _core.Spec:
    """The spec, with means as fine as the rules of this optimizer need them, where it leaves that
    open."""
    if optimizer is None or momentum == IN_OPTIMIZER:
        return spec
    pull = max(each.pull for each in advice_of(optimizer, spec))
    return spec.with_pull(pull) if pull else spec


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
    if optimizer is None or momentum == IN_OPTIMIZER or not may_have_rule(spec):
        return None
    held = {id(each) for group in optimizer.param_groups for each in group["params"]}
    if held.isdisjoint(coded_as([]).names):
        raise make_error(
            "InvalidArgument",
            f"optimizer={type(optimizer).__name__} holds none of the model's parameters; pass the "
            "optimizer that steps this model",
        )
    rules = list(_rules_of(optimizer, spec, coded_as))
    return OptimizerRules(rules) if rules else None


def _rules_of(
    optimizer: torch.optim.Optimizer,
    spec: _core.Spec,
    coded_as: Callable[[list[str]], CodedTensors],
) -> Iterator[OptimizerRule]:
    found = advice_of(optimizer, spec)
    if refusal := next((each.refusal for each in found if each.refusal), ""):
        _refuse(spec, refusal)
    for remark in dict.fromkeys(each.remark for each in found if each.remark):
        logger.warning("%s", remark)
    for kind, make in _RULES.items():
        chosen = [each for each in zip(spec.rules, found, strict=True) if each[1].rule == kind]
        if chosen:
            yield make(optimizer, coded_as([rule.codec for rule, _ in chosen]), chosen[0][1])


def _refuse(spec: _core.Spec, refusal: str) -> None:
    """Raises InvalidArgumentError, or warns if the spec has another use for the optimizer."""
    if not spec.uses_significance:
        raise make_error("InvalidArgument", f"{refusal}; leave optimizer= out, or: {_OTHERWISE}")
    logger.warning("%s: %s", refusal, _OTHERWISE)
