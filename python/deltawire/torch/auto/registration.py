"""register(model, "auto"): what the chosen exchanges are made of."""

from collections.abc import Callable

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from deltawire import _core
from deltawire.errors import make_error
from deltawire.history import History
from deltawire.policy import pattern_and_codec
from deltawire.terms import Terms, exchange_settings
from deltawire.torch.auto.hook import LAST_STEP, AutoHook
from deltawire.torch.auto.measuring import PROBE_SPEC
from deltawire.torch.core import arguments, bootstrap
from deltawire.torch.core.loss_scale import LossScale
from deltawire.torch.core.settings import Settings
from deltawire.torch.ddp.hook import Hook
from deltawire.torch.ddp.parameters import DDPParameters

DEFAULT_TIER = "near-lossless"


class Connector:
    """Opens exchanges between the ranks of a group, one after the other. Each call is a collective
    on the group, and connects anew.

    Attributes:
        group, place: (rank, world size) in it.
        settings: of all exchanges.
        exchanged: the model's tensors, once the first `session`'s check has set it.
    """

    def __init__(self, group: dist.ProcessGroup, tier: str, settings: Settings) -> None:
        self.group = group
        self.place = dist.get_rank(group), dist.get_world_size(group)
        self.settings = settings
        self.exchanged: DDPParameters | None = None
        self._tier = tier

    def session(self, spec: str, check: Callable[[], None] = lambda: None) -> _core.Session:
        """Raises as `register`, alike on every rank; so it does with what `check()` raises here."""
        return self._connected(spec, check)[0]

    def hook(self, spec: str, exchanged: DDPParameters, history: History) -> Hook:
        """For an exchange that can be left without loss: from `LAST_STEP` on it sends float32, what
        waits in residuals with it.

        Args:
            spec: of a pattern and a codec, canonical.
            exchanged: the model's tensors.
            history: that the hook goes on with.
        """
        return self.hook_of(_spec_to_leave(spec), exchanged, history)

    def hook_of(self, spec: str, exchanged: DDPParameters, history: History) -> Hook:
        """With the whole spec, e.g. a saved one."""
        session, scale = self._connected(spec)
        timeout_ms = arguments.timeout_in_ms(self.settings.timeout)
        return Hook(
            session,
            exchanged,
            self.place,
            timeout_ms,
            loss_scale=scale,
            history=history,
            group=self.group,
            summary_every=self.settings.summary_every,
        )

    def _connected(
        self, spec: str, check: Callable[[], None] = lambda: None
    ) -> tuple[_core.Session, LossScale]:
        given = self.settings
        with bootstrap.Meeting(self.group) as meeting:
            check()
            scale = LossScale(given.scaler, spec, given.nonfinite)
            options = arguments.reducer_options(
                given.min_elements, given.revert, given.threads, scale.nonfinite
            )
            arrival_ms = arguments.arrival_timeout_in_ms(given.arrival_timeout, self.group)
            settings = exchange_settings(spec, given.min_elements, given.revert, scale.nonfinite)
            chosen = {"spec": arguments.AUTO, "tier": self._tier, "exchange": settings["spec"]}
            settings |= chosen | {"scaler": scale.setting}
            meeting.agree_on(Terms("register", self.exchanged.lines(), **settings))
            meeting.listen(given.interface, given.port, given.connect_timeout, given.token)
        return meeting.connect(spec, options, None, arrival_ms), scale


def register_auto(ddp_model: DistributedDataParallel, settings: Settings) -> AutoHook:
    """`register`, whose documentation says the rest, of a model that was checked.

    The ranks connect here, as they will later: who can't be reached is told of now.
    """
    tier = DEFAULT_TIER if settings.tier is None else settings.tier
    connector = Connector(ddp_model.process_group, tier, settings)

    def check() -> None:
        _core.check_tier(tier)
        _check_settings(settings)
        connector.exchanged = DDPParameters(ddp_model)
        _check_tensors(connector.exchanged, ddp_model)

    probe = connector.session(PROBE_SPEC, check)
    return AutoHook(connector, connector.exchanged, tier, probe)


def _check_settings(settings: Settings) -> None:
    arguments.timeout_in_ms(settings.timeout)
    arguments.check_summary_every(settings.summary_every)
    settings.check_no_fold('"auto", which begins with the process group\'s own all-reduce')
    if settings.optimizer is not None:
        raise make_error(
            "InvalidArgument",
            'optimizer= and "auto" don\'t go together: of the codecs that it tries none makes use '
            'of one; leave it out, or name "gcomp"',
        )
    if settings.link is not None:
        raise make_error(
            "InvalidArgument",
            "link= and \"auto\" don't go together: it slows deltawire's messages alone, and the "
            "native all-reduce would always win; leave it out, or name a codec",
        )


def _check_tensors(exchanged: DDPParameters, ddp_model: DistributedDataParallel) -> None:
    if exchanged.sparse:
        name = exchanged.sparse[0][0]
        raise make_error(
            "InvalidArgument",
            f"\"auto\" plans for dense gradients, and those of '{name}' are sparse; name a codec",
        )
    if any(parameter.device.type != "cpu" for parameter in ddp_model.parameters()):
        raise make_error(
            "InvalidArgument",
            '"auto" times backward by the CPU\'s clock, and the model is on a GPU; name a codec '
            "(`deltawire plan` says which)",
        )


def _spec_to_leave(spec: str) -> str:
    if not _core.keeps_residual(spec):
        return spec
    pattern, codec = pattern_and_codec(spec)
    if ", rest " in codec:  # rules, of which the first that fits decides
        return f"{pattern}(step>={LAST_STEP}: fp32, {codec})"
    return f"{pattern}(step<{LAST_STEP}: {codec}, rest fp32)"
