"""What `register` does for "auto"."""

from torch.nn.parallel import DistributedDataParallel

from deltawire import _core
from deltawire.errors import invalid
from deltawire.torch.auto.connector import Connector
from deltawire.torch.auto.hook import AutoHook
from deltawire.torch.auto.measuring import PROBE_SPEC
from deltawire.torch.core import arguments
from deltawire.torch.core.optimizer_rules import momentum_advice
from deltawire.torch.core.settings import Settings
from deltawire.torch.core.weak import weakly
from deltawire.torch.ddp.parameters import DDPParameters

DEFAULT_TIER = "near-lossless"


def register_auto(ddp_model: DistributedDataParallel, spec: str, settings: Settings) -> AutoHook:
    """Does the work of `register` for "auto", with a model that was checked.

    The ranks connect once already, so that a rank that can't be reached is reported now.
    """
    tier = DEFAULT_TIER if settings.tier is None else settings.tier
    connector = Connector(ddp_model, tier, settings)

    def check() -> None:
        if spec.strip() != arguments.AUTO:
            raise invalid(
                f'{spec!r}: "auto" has no parameters; write "auto", and what it may lose as tier='
            )
        _core.check_tier(tier)
        _check_settings(settings)
        connector.parameters = DDPParameters(ddp_model)
        _check_tensors(connector.parameters)
        connector.optimizers += arguments.bare_optimizers(settings.optimizer, "optimizer=")
        for each in connector.optimizers:
            arguments.check_held(each, connector.parameters.names)

    probe = connector.session(PROBE_SPEC, check)
    if not connector.optimizers:  # whoever steps the model does so before there is a plan
        parameters, rank = ddp_model.parameters(), connector.place[0]
        take = weakly(connector.take, momentum_advice.Taken())
        momentum_advice.watch(_core.Spec(PROBE_SPEC), parameters, rank, take)
    return AutoHook(connector.place, connector, probe)


def _check_settings(settings: Settings) -> None:
    arguments.timeout_in_ms(settings.timeout)
    arguments.check_every("summary_every", settings.summary_every)
    settings.check_no_fold('"auto", which begins with the process group\'s own all-reduce')
    if arguments.encryption(settings.connection.encryption, has_secret=True) == "required":
        raise invalid(
            'encryption="required" and "auto" don\'t go together: it begins with the process '
            "group's own all-reduce, which is in the clear; name a codec"
        )
    settings.connection.check_by_tcp('"auto"')
    if settings.connection.link is not None:
        raise invalid(
            "link= and \"auto\" don't go together: it slows deltawire's messages alone, and the "
            "native all-reduce would always win; leave it out, or name a codec"
        )


def _check_tensors(parameters: DDPParameters) -> None:
    if parameters.sparse:
        name = parameters.sparse[0][0]
        raise invalid(
            f"\"auto\" plans for dense gradients, and those of '{name}' are sparse; name a codec"
        )
    if len(parameters.devices) > 1:
        raise invalid(
            '"auto" times a step by the clock of its device, and the model is on several; name a '
            "codec (`deltawire plan` says which)"
        )
