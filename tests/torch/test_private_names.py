"""What deltawire.torch takes from torch beyond its documentation: each name is here, with where
torch has it. One that torch renames fails here; one that is new in our code must be added."""

import ast
import inspect
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from models import Net, wrapped
from ranks import results
from sharded import IS_SUPPORTED

PACKAGE = Path(__file__).resolve().parents[2] / "python" / "deltawire" / "torch"


def of_ddp(ddp):
    return {
        "_build_params_for_reducer": ddp,
        "_comm_hooks": ddp,
        "_divide_by_initial_world_size": joined(ddp),
        "_get_ddp_logging_data": ddp,
        "_get_zeros_like_grad_buckets": ddp.reducer,
        "_join_config": ddp,
        "_use_python_reducer": ddp,
        "mixed_precision": ddp,
        "parameters_to_ignore": ddp,
    }


def joined(ddp):
    """What `with ddp.join(...)` does to it."""
    ddp.join_hook(divide_by_initial_world_size=False)
    return ddp if ddp._divide_by_initial_world_size is False else None


def of_group(ddp):
    group = ddp.process_group
    backend = group._get_backend(torch.device("cpu"))
    store = dist.distributed_c10d
    return {
        "_get_default_store": store,
        "_device_types": group,
        "_get_backend": group,
        "_timeout": backend.options,
        "bound_device_id": group,
    }


def of_tensors(ddp):
    from torch.distributed.optim import ZeroRedundancyOptimizer  # it takes a while

    scaler = inspect.getsource(torch.amp.GradScaler)
    zero = inspect.getsource(ZeroRedundancyOptimizer)
    compiled = torch.compile(torch.nn.Linear(1, 1), backend="eager")
    spread = dist.tensor.DTensor if hasattr(dist, "tensor") else None
    foreach = ("_add", "_add_", "_copy_", "_neg_", "_sub", "_sub_")
    return {
        "_execution_engine": torch.autograd.Variable,
        "_call_end_callbacks_on_future": torch.profiler.record_function,
        "_C": torch,
        "_current_graph_task_id": torch._C,
        "_forward_hooks": ddp,
        "_forward_pre_hooks": ddp,
        "_is_profiler_enabled": torch.autograd.profiler,
        "_modules": ddp,
        "_orig_mod": compiled,
        "_post_accumulate_grad_hooks": next(ddp.parameters()),
        "_pytree": torch.utils,
        "_version": next(ddp.parameters()),
        "device_mesh": spread,
        "found_inf": torch.nn.Module if "optimizer.found_inf" in scaler else None,
        "get_scale": torch.amp.GradScaler,
        "grad_scale": torch.nn.Module if "optimizer.grad_scale" in scaler else None,
        "optim": ZeroRedundancyOptimizer if "self.optim.step(" in zero else None,
        **{f"_foreach{name}": torch for name in foreach},
    }


# Set on optimizers by GradScaler alone, and by ZeroRedundancyOptimizer on itself.
IN_TEXT = {"found_inf", "grad_scale", "optim"}
# Of fully_shard: register refuses a torch without them, naming what it lacks (test_fsdp_failures).
FSDP2 = {
    "_all_reduce_hook",
    "_fsdp_common",
    "_fsdp_param_groups",
    "_fully_shard",
    "_get_fsdp_state",
    "_module_info",
    "fsdp_params",
}
# Of a store, of FSDP2, and of Triton: asked for, and done without.
OPTIONAL = {"clone", "_reset_iter_state", "_unsharded_param", "knobs"}
# Python's, of our own classes, and of others' wrappers of an optimizer.
OURS = {"__self__", "_session", "optimizer", "sched_getaffinity"}


def what_torch_has(rank, world_size, report):
    ddp = wrapped(Net())
    table = {**of_group(ddp), **of_tensors(ddp), **of_ddp(ddp)}
    missing = [
        name
        for name, owner in table.items()
        if owner is None or (name not in IN_TEXT and not hasattr(owner, name))
    ]
    return missing, sorted(table)


@pytest.fixture(scope="module")
def found():
    (one,) = results(what_torch_has, 1)
    return one


def test_torch_has_all_of_them(found):
    missing, _ = found
    assert missing == [], f"PyTorch {torch.__version__} has renamed these"


@pytest.mark.skipif(not IS_SUPPORTED, reason="register takes no fully_shard")
def test_torch_has_fully_shards_own():
    from torch.distributed.fsdp._fully_shard import _fsdp_common, _fsdp_state

    assert _fsdp_common.FSDPMeshInfo and _fsdp_common.DataParallelMeshInfo
    assert "_fsdp_param_groups" in inspect.getsource(_fsdp_state)


def test_no_other_is_used(found):
    _, table = found
    used = names_in(PACKAGE)
    assert "_comm_hooks" in used and "mixed_precision" in used, "the search finds nothing"
    unknown = used - set(table) - FSDP2 - OPTIONAL - OURS
    assert not unknown, f"{unknown}: give each an entry in this file"


def names_in(folder) -> set[str]:
    """Private names of others, and those that getattr and hasattr ask for."""
    trees = [ast.parse(path.read_text()) for path in folder.rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    own = {n.name for n in nodes if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    own |= {
        n.attr
        for n in nodes
        if isinstance(n, ast.Attribute)
        and isinstance(n.value, ast.Name)
        and n.value.id in ("self", "cls")
    }
    names = set()
    for node in nodes:
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            names |= {node.attr} - own
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch"):
            parts = [*node.module.split("."), *(alias.name for alias in node.names)]
            names |= set(filter(is_private, parts))
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("getattr", "hasattr"):
            names |= {each.value for each in node.args[1:2] if isinstance(each, ast.Constant)}
    return names | ({"mixed_precision"} if "ddp_model.mixed_precision" in code(folder) else set())


def code(folder) -> str:
    return "\n".join(path.read_text() for path in folder.rglob("*.py"))


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")
