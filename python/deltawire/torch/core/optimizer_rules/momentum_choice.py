"""The rules by which an optimizer steps what its own way does not suit."""

import logging
from collections.abc import Callable, Iterator, Sequence

import torch

from deltawire import _core
from deltawire.errors import DeltawireError, invalid
from deltawire.torch.core import arguments
from deltawire.torch.core.optimizer_rules.factored_second_moment import (
    FactoredSecondMoment,
    Received,
)
from deltawire.torch.core.optimizer_rules.late_rules import AdamWithoutMomentum, MomentumAsRate
from deltawire.torch.core.optimizer_rules.lines import Lines
from deltawire.torch.core.optimizer_rules.momentum_advice import Taken, traits_of
from deltawire.torch.core.optimizer_rules.rule import OptimizerRule
from deltawire.torch.core.optimizer_rules.tensors import CodedTensors

logger = logging.getLogger("deltawire")

AS_RATE, IN_OPTIMIZER = "rate", "optimizer"
_RULES: dict[_core.StepRule, type[OptimizerRule]] = {
    _core.StepRule.MOMENTUM_AS_RATE: MomentumAsRate,
    _core.StepRule.WITHOUT_FIRST_MOMENT: AdamWithoutMomentum,
    _core.StepRule.FACTORED_SECOND_MOMENT: FactoredSecondMoment,
}


def check_momentum(momentum: str) -> None:
    """Raises InvalidArgumentError for a momentum= that `register` doesn't know."""
    if momentum not in (AS_RATE, IN_OPTIMIZER):
        raise invalid(f'momentum={momentum!r} is neither "{AS_RATE}" nor "{IN_OPTIMIZER}"')


def has_rule(optimizer: str, spec: _core.Spec) -> bool:
    """Whether there is a rule for an optimizer of that name."""
    traits = _core.OptimizerTraits(optimizer)
    return any(_core.optimizer_rule(rule, traits).rule in _RULES for rule in spec.rules)


def may_have_rule(spec: _core.Spec) -> bool:
    """Whether there is a rule for some optimizer, so that any may be given."""
    return any(has_rule(kind, spec) for kind in ("SGD", "AdamW"))


def fitted_to(
    optimizers: Sequence[torch.optim.Optimizer],
    momentum: str,
    spec: _core.Spec,
    world_size: int | None = None,
) -> _core.Spec:
    """The spec as the rules of these optimizers need it among so many ranks, where it leaves that
    open. None: after the first steps."""
    for each in () if momentum == IN_OPTIMIZER else optimizers:
        traits = traits_of(each, each.param_groups)
        if world_size is None:
            spec = _core.with_means_for(spec, traits)
        else:
            spec = _core.fitted_to(spec, traits, world_size)
    return spec


class OptimizerRules:
    """The rules of a model's optimizers, as one.

    Attributes:
        seek: whether all ranks ask `take`.
        received: of each tensor of a `FactoredSecondMoment`; whoever exchanges sets it.
        recode: `Session.recode` of the exchange, which sets it.
    """

    seek = False
    recode: Callable[[_core.Spec], None]
    _idle = "optimizers are left alone"

    def __init__(self, rules: list[OptimizerRule]) -> None:
        self._rules = rules
        self.received: dict[int, Received] = {}
        for each in self._factored:
            each.received = self.received

    @property
    def _factored(self) -> list[FactoredSecondMoment]:
        return [each for each in self._rules if isinstance(each, FactoredSecondMoment)]

    @property
    def use_squares(self) -> bool:
        """Whether mean squares travel beside the coded gradients."""
        return self.seek or bool(self._factored)

    def needs(self) -> set[int]:
        """As of `FactoredSecondMoment`."""
        return set().union(*(each.needs() for each in self._factored))

    def scales_of(self, parameter: torch.Tensor, lines: Lines) -> torch.Tensor | None:
        """As of `FactoredSecondMoment`."""
        found = (each.scales_of(parameter, lines) for each in self._factored)
        return next((each for each in found if each is not None), None)

    def take(self, _optimizer: torch.optim.Optimizer) -> Taken:
        """What becomes of an optimizer that was not given, before a step of it."""
        return Taken()

    @property
    def name(self) -> str:
        """For the comparison between ranks; "" if there are none."""
        return "; ".join(each.name for each in self._rules)

    @property
    def held(self) -> set[int]:
        """id(parameter) of all that their optimizers step."""
        return set().union(*(each.held for each in self._rules))

    def step_some_of(self, optimizer: torch.optim.Optimizer) -> bool:
        """Whether an optimizer has tensors that an optimizer with a rule has."""
        return not arguments.held_by(optimizer).isdisjoint(self.held)

    def text(self) -> str:
        """What will happen, in one line."""
        return "; ".join(each.text() for each in self._rules) or self._idle

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

    def forget_means(self) -> None:
        """The gradients of the coming step come without this exchange."""
        self.received.clear()

    def shown(self, step: int) -> dict[str, dict[str, float]]:
        """What `explain` shows of each tensor that is stepped in another way: fields of its row."""
        return {name: row for each in self._rules for name, row in each.shown(step).items()}


class SoughtRules(OptimizerRules):
    """The factored second moment for optimizers that were not given: for those that step the model
    and for which the table has that rule, once all that were seen hold all of its tensors (on no
    rank only a share). All ranks see theirs between the same two exchanges, so that what travels
    for it, and how finely, begins alike.
    """

    seek = True
    _idle = "of optimizers only Adam and AdamW are stepped in another way, once they are seen"

    def __init__(self, model: CodedTensors) -> None:
        super().__init__([])
        self._model = model
        self._seen: list[torch.optim.Optimizer] = []
        self._found: list[FactoredSecondMoment] = []  # not yet attached
        self._step, self._is_over = 0, False

    def go_to(self, step: int) -> None:
        """As of any rules."""
        self._step = step
        super().go_to(step)

    def take(self, optimizer: torch.optim.Optimizer) -> Taken:
        """Makes its rule, if it has one, and attaches all once nothing is missed."""
        if self._is_over:
            return Taken()
        is_new = optimizer not in self._seen
        found, in_the_way = None, ""
        if is_new:
            self._seen.append(optimizer)
            try:
                found = _unasked(optimizer, self._model)
            except DeltawireError as cause:
                in_the_way = str(cause)
            if found is not None:
                self._found.append(found)
        ours = self._model.names.keys()
        if missed := ours - set().union(*map(arguments.held_by, self._seen)):
            held = f"{len(ours) - len(missed)} of {len(ours)}"
            if not is_new:
                in_the_way = f"the optimizers that step the model have {held} tensors"
            return Taken(in_the_way=in_the_way, waits=found is not None)
        return Taken(self._attached() if self._found else "", in_the_way)

    def _attached(self) -> str:
        self.recode(self._found[0].spec)
        self._rules, self._found = self._found, []
        for each in self._factored:
            each.begins_late(self.received)
        self.go_to(self._step)
        self.attach()
        return self.text()

    def remove(self) -> None:
        """As of any rules; none is sought any more."""
        self._is_over = True
        super().remove()


def _unasked(optimizer: torch.optim.Optimizer, model: CodedTensors) -> FactoredSecondMoment | None:
    """The factored rule of an optimizer that nobody gave for this; None: it needs none. Raises
    DeltawireError for one that can't be taken."""
    if arguments.steps_a_share(optimizer):
        raise invalid(
            f"{type(optimizer).__name__} steps a share of the model on each rank: nothing is done "
            "to it unasked"
        )
    bare = (arguments.bare_optimizer(optimizer, "the optimizer that steps the model"),)
    fitted = fitted_to(bare, AS_RATE, model.spec, model.world_size)
    rules = _rules_of(*bare, model.by(fitted))
    return next((each for each in rules if isinstance(each, FactoredSecondMoment)), None)


def unfit_for(optimizer: torch.optim.Optimizer, model: CodedTensors) -> str:
    """Why training loses by the model's spec with this optimizer, if no rule provides for it; ""
    if it does not."""
    provided, in_the_way = False, ""
    try:
        provided = _unasked(optimizer, model) is not None
    except DeltawireError as cause:
        in_the_way = f"; {cause}"
    traits, place = traits_of(optimizer, optimizer.param_groups), _core.OptimizerPlace.REGISTER
    warnings = _core.optimizer_warnings(model.spec, traits, place, provided)
    return warnings[0] + in_the_way if warnings else ""


def _sought(model: CodedTensors) -> OptimizerRules:
    """Not where AdamW has no factored rule, or another one, too, or mean squares can't travel."""
    adamw = _core.OptimizerTraits("AdamW")
    rules = {_core.optimizer_rule(each, adamw).rule for each in model.spec.rules} & _RULES.keys()
    if rules != {_core.StepRule.FACTORED_SECOND_MOMENT} or model.min_elements < 2:
        return OptimizerRules([])
    return SoughtRules(model)


def rules_for(
    optimizers: Sequence[torch.optim.Optimizer], momentum: str, model: CodedTensors
) -> OptimizerRules:
    """The rules for register's optimizer= and momentum=, and all tensors of the model.

    Raises InvalidArgumentError for an optimizer that holds none of the parameters, or for which
    there is no rule. If the spec has another use for such a one, a warning says so instead.
    """
    if momentum == IN_OPTIMIZER or not may_have_rule(model.spec):
        return OptimizerRules([])
    if not optimizers:
        return _sought(model)
    for each in optimizers:
        arguments.check_held(each, model.names)
    return OptimizerRules([rule for each in optimizers for rule in _rules_of(each, model)])


def _rules_of(optimizer: torch.optim.Optimizer, model: CodedTensors) -> Iterator[OptimizerRule]:
    spec, traits = model.spec, traits_of(optimizer, optimizer.param_groups)
    found = [_core.optimizer_rule(rule, traits) for rule in spec.rules]
    refusal = next((each.refusal for each in found if each.refusal), "")
    if refusal and not spec.uses_significance:
        raise invalid(f"{refusal}; leave optimizer= out")
    remarks = [refusal, *(each.remark for each in found)] if arguments.is_first() else []
    for text in dict.fromkeys(filter(None, remarks)):
        logger.warning("%s", text)
    for kind, make in _RULES.items():
        chosen = [each for each in zip(spec.rules, found, strict=True) if each[1].rule == kind]
        if chosen:
            advice = min((each for _, each in chosen), key=lambda each: each.beta1)
            yield make(optimizer, model.of([rule.codec for rule, _ in chosen]), advice)
