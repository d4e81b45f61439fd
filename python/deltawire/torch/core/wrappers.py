"""torch's wrappers around a model, and which of them deltawire supports."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from deltawire.errors import wrong_type
from deltawire.weights.store.model_tensors import plain_name as plain_name

# Who calls it, and what it does that keeps deltawire out. By class names: to import these classes,
# only to compare with them, would take seconds.
_EXCHANGING = {
    "FullyShardedDataParallel": "FullyShardedDataParallel shards parameters and gradients",
    "ReplicateModule": "replicate() exchanges gradients",
    "FSDPModule": "fully_shard() shards parameters and gradients",
    "DDP": "replicate() exchanges gradients through a DistributedDataParallel that it hides",
}


def check_ddp(model: object) -> None:
    """Raises DTypeError for anything but a DistributedDataParallel model."""
    if isinstance(model, DistributedDataParallel):
        return
    advice = "wrap the model in it first"
    if (does := _exchanging(model)) is not None:
        advice = (
            f"{does}, which is not supported: pass DistributedDataParallel(module), where each "
            "rank has room for the model, or fully_shard(module, mesh=...) on a mesh of two "
            "dimensions"
        )
    elif isinstance(getattr(model, "_orig_mod", None), DistributedDataParallel):
        advice = (
            "it is compiled: register the DistributedDataParallel model itself, and go on with "
            "torch.compile(ddp_model)"
        )
    elif hasattr(model, "_orig_mod"):
        advice = "it is compiled: wrap it first, DistributedDataParallel(torch.compile(module))"
    raise wrong_type(
        f"register takes a DistributedDataParallel model, not {type(model).__name__}; {advice}"
    )


def is_fsdp2(module: object) -> bool:
    """Whether it is an FSDPModule: made by fully_shard or the FSDP-based replicate."""
    return "FSDPModule" in _torch_bases(module)


def has_fsdp2(model: object) -> bool:
    """Whether any submodule is an FSDPModule."""
    return isinstance(model, torch.nn.Module) and any(map(is_fsdp2, model.modules()))


def check_bare(model: object, owner: str = "LocalSteps") -> None:
    """Raises DTypeError unless it is a module that exchanges nothing by itself."""
    if not isinstance(model, torch.nn.Module):
        raise wrong_type(f"{owner} takes a torch.nn.Module, not {type(model).__name__}")
    for name, module in model.named_modules():
        where = f"its module '{plain_name(name)}'" if name else "this"
        if isinstance(module, DistributedDataParallel):
            raise wrong_type(
                f"{owner} takes the bare module, and {where} is a DistributedDataParallel, "
                "which averages gradients in every step; pass model.module"
            )
        if (does := _exchanging(module)) is not None:
            raise wrong_type(
                f"{owner} takes the bare module, and {where} is a {type(module).__name__}: "
                f"{does}; leave it out"
            )


def unwrapped(model: object) -> tuple[torch.nn.Module, dist.ProcessGroup | None]:
    """The module inside DistributedDataParallel and torch.compile, and DDP's process group.

    Raises DTypeError unless it is a module whose gradients are complete on each rank.
    """
    group = None
    while True:
        if isinstance(model, DistributedDataParallel):
            group, model = model.process_group, model.module
        elif hasattr(model, "_orig_mod"):
            model = model._orig_mod
        else:
            break
    if not isinstance(model, torch.nn.Module):
        raise wrong_type(f"trace takes a torch.nn.Module, not {type(model).__name__}")
    for module in model.modules():
        does = _exchanging(module)
        if does is not None and "shards" in does:
            raise wrong_type(
                f"trace takes models whose gradients are whole on each rank, and {does}; trace "
                "DistributedDataParallel(module), or the bare module in one process"
            )
    return model, group


def _exchanging(model: object) -> str | None:
    """What the model's wrapper class of torch does to gradients; None for other classes."""
    return next((_EXCHANGING[name] for name in _torch_bases(model) if name in _EXCHANGING), None)


def _torch_bases(model: object) -> list[str]:
    return [base.__name__ for base in type(model).__mro__ if base.__module__.startswith("torch.")]
