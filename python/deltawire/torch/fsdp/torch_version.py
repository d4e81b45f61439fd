"""Checks that this version of torch has what `groups` uses inside FSDP2."""

from collections.abc import Iterator

import torch

from deltawire.errors import make_error

GROUP_MEMBERS = (
    "_all_reduce_hook",
    "all_reduce_grads",
    "force_sum_reduction_for_comms",
    "fsdp_params",
    "gradient_divide_factor",
    "mesh_info",
    "mp_policy",
    "post_forward_mesh_info",
)
PARAMETER_MEMBERS = ("_module_info", "offload_to_cpu", "sharded_param")


def require_torch(module: torch.nn.Module) -> None:
    """Raises DeltawireError ("State") if this version of torch lacks something."""
    missing = ", ".join(dict.fromkeys(_missing_in(module)))
    if missing:
        raise make_error(
            "State",
            f"PyTorch {torch.__version__} lacks {missing}, which deltawire needs to take over "
            "fully_shard's all-reduce; use PyTorch 2.13, or DistributedDataParallel",
        )


def _missing_in(module: torch.nn.Module) -> Iterator[str]:
    def lacks(thing, names) -> Iterator[str]:
        return (name for name in names if not hasattr(thing, name))

    if missing := [*lacks(module, ("set_all_reduce_hook", "reshard", "_get_fsdp_state"))]:
        yield from missing
        return
    state = module._get_fsdp_state()
    if missing := [*lacks(state, ("_fsdp_param_groups",))]:
        yield from missing
        return
    for inside in state._fsdp_param_groups:
        yield from (f"FSDPParamGroup.{name}" for name in lacks(inside, GROUP_MEMBERS))
        for each in getattr(inside, "fsdp_params", ()):
            yield from (f"FSDPParam.{name}" for name in lacks(each, PARAMETER_MEMBERS))
