"""register(native_below=): what native buckets need."""

from torch.nn.parallel import DistributedDataParallel

from deltawire import _core
from deltawire.errors import make_error
from deltawire.torch.native_buckets import NativeBuckets
from deltawire.torch.settings import Settings


def natives_of(
    ddp_model: DistributedDataParallel,
    spec: str,
    given: Settings,
    timeouts: tuple[float, float],
    nonfinite: str,
) -> NativeBuckets | None:
    """None without native_below; raises InvalidArgumentError where it can't be had.

    Args:
        ddp_model, spec, given: of `register`.
        timeouts: in seconds, as for `NativeBuckets`.
        nonfinite: as `LossScale` has it.
    """
    below = given.native_below
    if below is None:
        return None
    if type(below) is not int or below < 1:
        raise make_error(
            "InvalidArgument", f"native_below={below!r} is not a number of bytes, from 1, or None"
        )
    given.check_no_fold("native_below=, the process group's own all-reduce")
    if " with " in _core.canonical_spec(spec):
        raise _refused(
            'a native bucket would miss what stands before the codec ("with ..."): leave it to '
            "the optimizer, or native_below out"
        )
    if given.link is not None:
        raise _refused("link= would slow deltawire's messages alone; leave one of them out")
    if any(parameter.device.type != "cpu" for parameter in ddp_model.parameters()):
        raise _refused("the model is on a GPU, where it was never tried; leave native_below out")
    group = ddp_model.process_group
    return NativeBuckets(below, group, spec, timeouts, nonfinite == "pass")


def _refused(why: str):
    return make_error("InvalidArgument", f"native_below= does not go with this: {why}")
