"""The arguments of `register`: as they were given, and as an exchange is made from them."""

import dataclasses
from collections.abc import Iterable, Sequence

import torch
import torch.distributed as dist

from deltawire import _core
from deltawire.errors import invalid
from deltawire.torch.core import arguments, bootstrap
from deltawire.torch.core.device.choice import BY_CPU, Choice, Exchange, Twins, choose
from deltawire.torch.core.line_energies import LineEnergies
from deltawire.torch.core.loss_scale import LossScale, Scaler
from deltawire.torch.core.optimizer_rules.momentum_choice import (
    AS_RATE,
    OptimizerRules,
    check_momentum,
    fitted_to,
    may_have_rule,
    rules_for,
)
from deltawire.torch.core.optimizer_rules.tensors import CodedTensors
from deltawire.torch.core.replica_check import EVERY, ReplicaCheck
from deltawire.torch.core.significance import SignificanceSource, source_for


@dataclasses.dataclass(frozen=True)
class OptimizerUses:
    """What an exchange and the optimizer's step do for each other.

    Attributes:
        rules: how the optimizer steps some parameters.
        energies: what travels beside gradients for that; None: nothing.
        source: computes what the optimizer can see; None: nothing is cut by it.
    """

    rules: OptimizerRules
    energies: LineEnergies | None = None
    source: SignificanceSource | None = None

    @property
    def name(self) -> str:
        """For the comparison between ranks."""
        return self.rules.name or (self.source.name if self.source is not None else "none")


@dataclasses.dataclass(frozen=True)
class StepRules:
    """The settings of every step.

    Attributes:
        timeout_ms: for a bucket.
        loss_scale: read once a step.
        uses: of the optimizer's step for the exchange, and of the exchange for that step.
        choice: who codes gradients.
        check: compares what replicas have in common; None: nothing does.
    """

    timeout_ms: int
    loss_scale: LossScale
    uses: OptimizerUses
    choice: Choice = BY_CPU
    check: ReplicaCheck | None = None


@dataclasses.dataclass(frozen=True)
class Settings:
    """Arguments of `register`, by their names there."""

    connection: arguments.Connection
    coding: arguments.Coding  # its `nonfinite` is the exchange's to choose
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None
    timeout: float
    arrival_timeout: float | None
    scaler: Scaler | None
    nonfinite: str | None
    summary_every: int | None
    tier: str | None
    twins: Twins = False
    momentum: str = AS_RATE
    compare_every: int | None = EVERY

    def check_no_fold(self, what: str) -> None:
        """Raises InvalidArgumentError for revert="fold", if `what` is in the exchange, which can't
        keep a failed step's gradients."""
        if self.coding.revert == "fold":
            raise invalid(
                f'revert="fold" does not go with {what}, which keeps nothing of a failed step; '
                'leave it out: with "exact", the default, such a step never happened'
            )

    def check_no_tier(self) -> None:
        """Raises InvalidArgumentError for a tier given together with a codec."""
        if self.tier is not None:
            raise invalid(
                f'tier={self.tier!r} is for "auto", which chooses within it; leave it out where '
                "you name a codec"
            )

    def exchange(self, spec: str, group: dist.ProcessGroup) -> "ExchangeSettings":
        """Parses and checks what an exchange between the group's ranks is made from. Raises
        InvalidArgumentError; TypeError for what is no optimizer, no scaler or no link."""
        arguments.check_every("summary_every", self.summary_every)
        check_momentum(self.momentum)
        arguments.check_every("compare_every", self.compare_every)
        optimizers = arguments.bare_optimizers(self.optimizer, "optimizer=")
        parsed = arguments.spec_of(spec)
        spec = fitted_to(optimizers, self.momentum, parsed, dist.get_world_size(group))
        scale = LossScale(self.scaler, self.nonfinite, spec.keeps_residual)
        coding = dataclasses.replace(self.coding, nonfinite=scale.nonfinite)
        made = ExchangeSettings(
            given=self,
            spec=spec,
            optimizers=optimizers,
            loss_scale=scale,
            coding=coding,
            options=coding.options(),
            timeout_ms=arguments.timeout_in_ms(self.timeout),
            arrival_timeout_ms=arguments.arrival_timeout_in_ms(self.arrival_timeout, group),
        )
        arguments.check_reducer(spec.text, made.options)
        return made


@dataclasses.dataclass(frozen=True)
class ExchangeSettings:
    """What an exchange is made from; made by `Settings.exchange`.

    Attributes:
        given: the arguments of `register`.
        spec: parsed once, and handed on to whoever needs it.
        optimizers: those given, out of their wrappers.
        choice: who codes what is exchanged; see `coded_for`.
    """

    given: Settings
    spec: _core.Spec
    optimizers: tuple[torch.optim.Optimizer, ...]
    loss_scale: LossScale
    coding: arguments.Coding
    options: _core.ReducerOptions
    timeout_ms: int
    arrival_timeout_ms: int
    choice: Choice = BY_CPU

    def coded_for(
        self,
        devices: Iterable[torch.device],
        dtypes: Iterable[torch.dtype],
        rank: int,
        *,
        has_sparse: bool = False,
    ) -> "ExchangeSettings":
        """The same, with whoever the caller wants to code such gradients: arguments of `Exchange`.
        Raises as `choose`."""
        exchange = Exchange(
            self.spec,
            devices,
            dtypes,
            self.timeout_ms / 1e3,
            rank,
            self.coding.revert,
            has_sparse=has_sparse,
        )
        choice = choose(self.given.twins, exchange)
        return dataclasses.replace(self, options=self.coding.options(choice.parts), choice=choice)

    def optimizer_uses(
        self, names: dict[int, str], tensors: list[tuple], world_size: int
    ) -> OptimizerUses:
        """`names` and `tensors` as of `CodedTensors`. Raises as `step_uses` and `source_for`."""
        uses = self.step_uses(names, tensors, world_size)
        source = source_for(self.optimizers, self.spec, names, may_have_rule(self.spec))
        return dataclasses.replace(uses, source=source)

    def step_uses(
        self, names: dict[int, str], tensors: list[tuple], world_size: int
    ) -> OptimizerUses:
        """The same without what the optimizer can see of a gradient. Raises as `rules_for` and
        `LineEnergies`."""
        least = self.given.coding.min_elements
        model = CodedTensors(self.spec, least, names, tensors, world_size)
        rules = rules_for(self.optimizers, self.given.momentum, model)
        energies = LineEnergies(rules, least, world_size) if rules.use_squares else None
        return OptimizerUses(rules, energies)

    def step_rules(self, uses: OptimizerUses, replicas: dist.ProcessGroup) -> StepRules:
        """Those of its steps; `replicas`: the ranks that have the same parameters."""
        every = self.given.compare_every
        check = None if every is None else ReplicaCheck(every, replicas)
        return StepRules(self.timeout_ms, self.loss_scale, uses, self.choice, check)

    def terms(self) -> dict[str, object]:
        """What must be equal on all ranks, by name."""
        return self.coding.terms(self.spec.text) | {
            "scaler": self.loss_scale.setting,
            "coder": self.choice.coder,
            "compare_every": self.given.compare_every,
            "carrier": self.given.connection.carrier,
        }

    def connect(self, meeting: bootstrap.Meeting) -> _core.Session:
        """The session with all ranks that have met."""
        return meeting.connect(self.spec, self.options, self.arrival_timeout_ms)
