"""Checks of the arguments that every way to train takes."""

import logging
import re
from collections.abc import Iterable

import torch
import torch.distributed as dist

from deltawire import _core
from deltawire.arguments import Coding as Coding
from deltawire.arguments import Connection as Connection
from deltawire.arguments import ConnectionKeywords as ConnectionKeywords
from deltawire.arguments import check_count as check_count
from deltawire.arguments import check_kind as check_kind
from deltawire.arguments import check_positive as check_positive
from deltawire.arguments import check_reducer as check_reducer
from deltawire.arguments import check_spec as check_spec
from deltawire.arguments import encryption as encryption
from deltawire.arguments import require_use as require_use
from deltawire.arguments import spec_of as spec_of
from deltawire.arguments import timeout_in_ms as timeout_in_ms
from deltawire.errors import invalid, wrong_dtype, wrong_type

logger = logging.getLogger("deltawire")
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
DEVICES = ("cpu", "cuda")
AUTO = "auto"
_AUTO = re.compile(rf"\s*{AUTO}(:\S*)?\s*")  # rules for a tensor of that name have spaces


def arrival_timeout_in_ms(seconds: float | None, group: dist.ProcessGroup) -> int:
    """The group's own timeout where `seconds` is None; raises InvalidArgumentError."""
    if seconds is None:
        backend = group._get_backend(device_of(group))
        seconds = min(backend.options._timeout.total_seconds(), 86_400)
    return timeout_in_ms(seconds, "arrival_timeout")


def is_auto(spec: str) -> bool:
    """Whether the spec is "auto", with parameters or without."""
    return isinstance(spec, str) and _AUTO.fullmatch(spec) is not None


def named(spec: str, where: str, advice: str = "`deltawire plan` says which") -> str:
    """Returns the spec. Raises InvalidArgumentError for "auto", which only `register` with a DDP
    model takes."""
    if is_auto(spec):
        raise invalid(
            f'{where} takes no "auto", which measures the steps of a DistributedDataParallel '
            f"model; name a codec: {advice}"
        )
    return spec


def is_first() -> bool:
    """Whether this process says what all would say."""
    return not dist.is_initialized() or dist.get_rank() == 0


def warn_of_rules_without_tensor(spec: _core.Spec, names: Iterable[str], rank: int) -> None:
    """Logs a warning, on rank 0, for each rule whose name pattern matches no tensor: a typo would
    otherwise go unnoticed. It is no error, because one spec may serve several models."""
    known = list(names)
    for rule in spec.rules if rank == 0 else ():
        if any(map(rule.matches, known)):
            continue
        logger.warning(
            "the rule '%s' fits none of the %d tensors, which are named like %s; the model's "
            "named_parameters() lists them",
            rule.text,
            len(known),
            ", ".join(f"'{name}'" for name in known[:3]),
        )


def device_of(group: dist.ProcessGroup, near: torch.device | None = None) -> torch.device:
    """The device of tensors that the group's collectives accept: the CPU, unless the group has only
    GPU backends. Then it is `near` (the model's device) if that is a GPU, else the device that the
    group was made with, else torch's current one."""
    if any(device.type == "cpu" for device in group._device_types):
        return torch.device("cpu")
    if near is not None and near.type == "cuda":
        return near
    bound = getattr(group, "bound_device_id", None)
    return bound or torch.device("cuda", torch.cuda.current_device())


def device_near(model: object) -> torch.device | None:
    """The device of the model's first parameter; None if it has none or is no model."""
    parameters = model.parameters() if isinstance(model, torch.nn.Module) else iter(())
    first = next(parameters, None)
    return None if first is None else first.device


def dtype_name(dtype: torch.dtype) -> str:
    """The core's name of the dtype, such as "bfloat16"."""
    return str(dtype).removeprefix("torch.")


def check_tensor(what: str, tensor: torch.Tensor) -> None:
    """Raises DTypeError for a dtype or device that can't be exchanged."""
    if tensor.dtype not in DTYPES:
        raise wrong_dtype(
            f"{what} is {tensor.dtype}; deltawire exchanges float32, bfloat16 and float16: convert "
            "the model with .float() first"
        )
    check_has_values(what, tensor)
    if tensor.device.type not in DEVICES:
        raise wrong_dtype(
            f"{what} is on {tensor.device}; deltawire exchanges tensors of the CPU and of CUDA "
            "devices: move the model with .cpu() first"
        )


def check_has_values(what: str, tensor: torch.Tensor) -> None:
    """Raises DTypeError for a tensor on the device "meta"."""
    if tensor.device.type == "meta":
        raise wrong_dtype(
            f'{what} is on the device "meta" and has no values yet: call '
            'model.to_empty(device="cpu" or "cuda") and initialize or load the weights first'
        )


def check_every(name: str, steps: object) -> None:
    """Raises InvalidArgumentError unless `steps` is None or a whole number, 1 or more."""
    if steps is not None:
        check_positive(name, steps)


def check_parameter(name: str, parameter: torch.Tensor) -> None:
    """Raises DTypeError for a parameter whose gradients can't be exchanged."""
    if hasattr(parameter, "device_mesh"):
        raise wrong_dtype(
            f"parameter '{name}' is a {type(parameter).__name__}, spread over ranks; deltawire "
            "exchanges whole parameters: leave fully_shard and tensor parallelism out"
        )
    check_tensor(f"parameter '{name}'", parameter)


def steps_a_share(optimizer: object) -> bool:
    """Whether it is a ZeroRedundancyOptimizer, which on each rank has an optimizer of a share of
    the parameters, `optim`, that steps them."""
    return any(base.__name__ == "ZeroRedundancyOptimizer" for base in type(optimizer).__mro__)


def check_is_optimizer(optimizer: object, owner: str, *, may_share: bool = False) -> None:
    """Raises DTypeError for anything but a torch.optim.Optimizer; and, unless it `may_share`, for
    one that has not the state of all its parameters."""
    kind, advice = type(optimizer).__name__, ""
    if steps_a_share(optimizer) and not (may_share and getattr(optimizer, "optim", None)):
        raise wrong_type(
            f"{owner}: {kind} is not supported: on each rank it steps a share of the parameters, "
            "and no rank has the state of all; give an optimizer_class of all parameters itself, "
            "or leave optimizer= out of register"
        )
    if isinstance(optimizer, torch.optim.Optimizer):
        return
    if isinstance(optimizer, type):
        kind, advice = f"the class {optimizer.__name__}", ": make one of model.parameters()"
    elif isinstance(optimizer, list | tuple):
        kind = f"{kind} of {len(optimizer)}"
        advice = ": one may have several param_groups, each with settings of its own"
    elif isinstance(getattr(optimizer, "optimizer", None), torch.optim.Optimizer):
        advice = ", which steps nothing itself: pass its .optimizer"
    raise wrong_type(f"{owner} takes a torch.optim.Optimizer, not {kind}{advice}")


def bare_optimizer(
    optimizer: object, owner: str, *, may_share: bool = False
) -> torch.optim.Optimizer:
    """The optimizer that steps, out of wrappers that are optimizers themselves (Accelerate's,
    Lightning's). Raises like `check_is_optimizer`."""
    check_is_optimizer(optimizer, owner, may_share=may_share)
    while isinstance(inner := getattr(optimizer, "optimizer", None), torch.optim.Optimizer):
        optimizer = inner
        check_is_optimizer(optimizer, owner, may_share=may_share)
    return optimizer


def each_optimizer(
    given: object, owner: str, *, may_share: bool = False
) -> tuple[torch.optim.Optimizer, ...]:
    """One, or those of a list. Raises like `check_is_optimizer`, and InvalidArgumentError for a
    tensor that two of them hold."""
    several = tuple(given) if isinstance(given, list | tuple) and given else (given,)
    for each in several:
        check_is_optimizer(each, owner, may_share=may_share)
    held = list(map(held_by, several))
    if sum(map(len, held)) > len(set().union(*held)):
        raise invalid(f"{owner}: two of the optimizers hold the same tensor; give each to one")
    return several


def bare_optimizers(given: object, owner: str) -> tuple[torch.optim.Optimizer, ...]:
    """As `each_optimizer`, out of their wrappers; () of None. They may share."""
    several = () if given is None else each_optimizer(given, owner, may_share=True)
    return tuple(bare_optimizer(each, owner, may_share=True) for each in several)


def held_by(optimizer: torch.optim.Optimizer) -> set[int]:
    """id(parameter) of all that it steps."""
    return {id(each) for group in optimizer.param_groups for each in group["params"]}


def check_held(optimizer: torch.optim.Optimizer, parameters: Iterable[int]) -> None:
    """Raises InvalidArgumentError for an optimizer that holds none of these, given by their ids."""
    if held_by(optimizer).isdisjoint(parameters):
        raise invalid(
            f"optimizer={type(optimizer).__name__} holds none of the model's parameters; pass the "
            "optimizer that steps this model"
        )


def optimizers_of(model: torch.nn.Module, given: object) -> tuple[torch.optim.Optimizer, ...]:
    """As `each_optimizer`. Raises InvalidArgumentError for parameters that are not the model's."""
    optimizers = each_optimizer(given, "LocalSteps")
    known = {id(parameter) for parameter in model.parameters()}
    for number, group in enumerate(group for each in optimizers for group in each.param_groups):
        for parameter in group["params"]:
            if id(parameter) not in known:
                raise invalid(
                    f"the optimizer's group {number} has a parameter of shape "
                    f"{tuple(parameter.shape)} that isn't the model's and would not be exchanged; "
                    "make the optimizer from model.parameters()"
                )
    return optimizers
