"""Opens the exchanges of `auto`, one after another."""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from deltawire import _core
from deltawire.session.history import History
from deltawire.session.terms import Terms
from deltawire.torch.auto.clocks import clock_of
from deltawire.torch.core import arguments, bootstrap
from deltawire.torch.core.device.staging import is_forced
from deltawire.torch.core.optimizer_rules.momentum_advice import Taken
from deltawire.torch.core.optimizer_rules.momentum_choice import (
    IN_OPTIMIZER,
    OptimizerRules,
    fitted_to,
    unfit_for,
)
from deltawire.torch.core.optimizer_rules.tensors import CodedTensors
from deltawire.torch.core.settings import ExchangeSettings, OptimizerUses, Settings
from deltawire.torch.ddp.hook import Hook
from deltawire.torch.ddp.parameters import DDPParameters

LAST_STEP = 1 << 40  # of an exchange that is left: see `Connector.hook`


class Connector:
    """Opens exchanges between the ranks of a group, one after another. Each call is a collective on
    the group and opens new connections.

    Attributes:
        group, place: the model's group, and (rank, world size) in it.
        settings: those of all exchanges.
        tier: what the codecs may lose.
        device, clock: of the model.
        is_staged: whether buckets are copied to other memory to be coded, and back.
        parameters: the model's; set by the check of the first `session`.
        optimizers: those that were given or, from their first steps on, those that step the model.
    """

    def __init__(self, ddp_model: DistributedDataParallel, tier: str, settings: Settings) -> None:
        self.group = ddp_model.process_group
        self.place = dist.get_rank(self.group), dist.get_world_size(self.group)
        self.settings = settings
        self.device = next(ddp_model.parameters()).device
        self.is_staged = is_forced() or self.device.type != "cpu"
        self.clock = clock_of(self.device, settings.timeout, self.place[0])
        self.tier = tier
        self.parameters: DDPParameters | None = None
        self.optimizers: list[torch.optim.Optimizer] = []
        self._rules = OptimizerRules([])  # of the latest hook

    def take(self, optimizer: torch.optim.Optimizer) -> Taken:
        """What `watch` asks before an optimizer's first step."""
        if optimizer not in self.optimizers:
            self.optimizers.append(optimizer)
        return self._rules.take(optimizer)

    def fitted(self, spec: str) -> str:
        """A candidate, with means as fine as the optimizer's rule needs them."""
        momentum, parsed = self.settings.momentum, _core.Spec(spec)
        fine = fitted_to(self.optimizers, momentum, parsed)
        return spec if fine == parsed else fine.text

    def unfit(self, spec: str) -> str:
        """Why training would lose by a candidate with an optimizer; "": it would not, or none is
        known."""
        if self.settings.momentum == IN_OPTIMIZER:
            return ""
        least, parameters = self.settings.coding.min_elements, self.parameters
        named = parameters.names, parameters.tensors
        model = CodedTensors(_core.Spec(spec), least, *named, self.place[1])
        reasons = (unfit_for(each, model) for each in self.optimizers)
        return next(filter(None, reasons), "")

    def session(self, spec: str, check: Callable[[], None] = lambda: None) -> _core.Session:
        """Opens a session. Raises like `register`, on every rank alike, also what `check()` raises
        on this rank."""
        return self._connected(spec, check)[0]

    def hook(self, spec: str, history: History) -> Hook:
        """Opens an exchange that can be left without loss: from step `LAST_STEP` on it sends
        float32, which includes all residuals.

        Args:
            spec: pattern and codec, canonical.
            history: the one that the hook continues.
        """
        return self.hook_of(_spec_to_leave(spec), history)

    def hook_of(self, spec: str, history: History) -> Hook:
        """Like `hook`, with the complete spec, for example one from a checkpoint."""
        session, made, uses = self._connected(spec)
        rules = made.step_rules(uses, self.group)
        hook = Hook(session, self.parameters, self.place, rules, history, group=self.group)
        self._rules = uses.rules
        for each in self.optimizers:
            self._rules.take(each)
        return hook

    def _connected(
        self, spec: str, check: Callable[[], None] = lambda: None
    ) -> tuple[_core.Session, ExchangeSettings, OptimizerUses]:
        with bootstrap.Meeting(self.group, self.device) as meeting:
            check()
            made = self.settings.exchange(spec, self.group)
            chosen = {"spec": arguments.AUTO, "tier": self.tier, "exchange": made.spec.text}
            uses = made.step_uses(self.parameters.names, self.parameters.tensors, self.place[1])
            # Where it is staged, copies are measured, too.
            chosen |= {"staged": self.is_staged, "optimizer": uses.name}
            meeting.agree_on(Terms("register", self.parameters.lines(), **made.terms() | chosen))
            meeting.listen(self.settings.connection)
        return made.connect(meeting), made, uses


def _spec_to_leave(spec: str) -> str:
    parsed = _core.Spec(spec)
    if not parsed.keeps_residual:
        return spec
    if len(parsed.rules) > 1:  # of which the first that fits decides
        return f"{parsed.pattern}(step>={LAST_STEP}: fp32, {parsed.codecs})"
    return f"{parsed.pattern}(step<{LAST_STEP}: {parsed.codecs}, rest fp32)"
