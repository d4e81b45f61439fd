"""Opens the exchanges of `auto`, one after another."""

from collections.abc import Callable

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from deltawire import _core
from deltawire.session.history import History
from deltawire.session.terms import Terms
from deltawire.torch.auto.clocks import clock_of
from deltawire.torch.core import arguments, bootstrap
from deltawire.torch.core.device.staging import is_forced
from deltawire.torch.core.replica_check import check_for
from deltawire.torch.core.settings import ExchangeSettings, Settings
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
        session, made = self._connected(spec)
        return Hook(
            session,
            self.parameters,
            self.place,
            made.timeout_ms,
            loss_scale=made.loss_scale,
            history=history,
            check=check_for(self.settings.compare_every, self.group),
            group=self.group,
            summary_every=self.settings.summary_every,
        )

    def _connected(
        self, spec: str, check: Callable[[], None] = lambda: None
    ) -> tuple[_core.Session, ExchangeSettings]:
        with bootstrap.Meeting(self.group, self.device) as meeting:
            check()
            made = self.settings.exchange(spec, self.group)
            chosen = {"spec": arguments.AUTO, "tier": self.tier, "exchange": made.spec.text}
            chosen |= {"staged": self.is_staged}  # then copies are measured, too
            meeting.agree_on(Terms("register", self.parameters.lines(), **made.terms() | chosen))
            meeting.listen(self.settings.connection)
        return made.connect(meeting), made


def _spec_to_leave(spec: str) -> str:
    parsed = _core.Spec(spec)
    if not parsed.keeps_residual:
        return spec
    if len(parsed.rules) > 1:  # of which the first that fits decides
        return f"{parsed.pattern}(step>={LAST_STEP}: fp32, {parsed.codecs})"
    return f"{parsed.pattern}(step<{LAST_STEP}: {parsed.codecs}, rest fp32)"
