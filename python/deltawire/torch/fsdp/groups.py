"""FSDP2's parameter groups, and how their all-reduce between nodes is taken over.

torch has a public setter for an all-reduce hook, but on a two-dimensional mesh the hook runs after
torch's own all-reduce. Everything used here beyond torch's documented interface is in this file:
`require_torch` reports what a version of torch lacks, and tests fail when one renames it.
"""

import math
from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist

from deltawire.errors import invalid, wrong_dtype, wrong_state
from deltawire.torch.core import arguments, wrappers

GROUP_MEMBERS = (
    "_all_reduce_hook",
    "all_reduce_grads",
    "device",
    "force_sum_reduction_for_comms",
    "fsdp_params",
    "gradient_divide_factor",
    "mesh_info",
    "mp_policy",
    "post_forward_mesh_info",
)
PARAMETER_MEMBERS = ("_module_info", "offload_to_cpu", "sharded_param")

_COUNT_UNUSED = "call model.set_reduce_scatter_unused_params(True), which counts the others as zero"


class Shard:
    """This rank's part of one parameter.

    Attributes:
        name: in the model, without what torch.compile adds.
        range: (dimension, first, end) of the rows on this rank; None if the parameter is not cut.
        shape: of this part, row-major.
        dtype: of the gradient's reduction.
        room: elements in the flat gradient, with padding.
    """

    def __init__(self, name: str, inside, index: int, count: int, dtype: torch.dtype) -> None:
        parameter = inside.sharded_param
        self.name = name
        self.dtype = dtype
        self.shape = tuple(parameter.to_local().shape)
        self.range: tuple[int, int, int] | None = None
        self.room = math.prod(self.shape)
        self._inside = inside
        dims = [each.dim for each in parameter.placements if each.is_shard()]
        if dims:
            (dim,) = dims
            length = parameter.shape[dim]
            rows = -(-length // count)  # as torch.chunk
            first = min(index * rows, length)
            self.range = (dim, first, min(first + rows, length))
            self.room = math.prod((*parameter.shape[:dim], rows, *parameter.shape[dim + 1 :]))

    @property
    def dtype_name(self) -> str:
        """The core's name of the dtype."""
        return arguments.dtype_name(self.dtype)

    @property
    def parameter(self) -> torch.Tensor:
        """The sharded parameter, which load_state_dict and to() may replace."""
        return self._inside.sharded_param

    def later_steps_look_at(self) -> bool:
        """Whether torch reads the gradient in this backward pass, after the hook."""
        parameter = self.parameter
        return (
            parameter.grad is not None  # it adds
            or parameter.dtype != self.dtype  # it converts
            or bool(parameter._post_accumulate_grad_hooks)
            or self._inside.offload_to_cpu
        )


class Group:
    """The parameters of one call of the all-reduce hook.

    Attributes:
        module: the FSDPModule.
        name: the module's, for messages.
        shards: in the order of their gradients in memory.
    """

    def __init__(self, module: torch.nn.Module, name: str, inside) -> None:
        self.module = module
        self.name = name
        self._kept: torch.Tensor | None = None  # kept while all-reduce is off
        self._inside = inside
        hook = inside._all_reduce_hook
        # A model that was registered before has its original mesh here.
        self._mesh = hook.group._mesh if isinstance(hook, AllReduce) else inside.mesh_info
        if self._mesh.replicate_mesh_dim is None:
            raise invalid(
                f"{name} is sharded over all ranks (a mesh of one dimension): each rank has other "
                "rows, and there is no all-reduce that could be compressed; give fully_shard a "
                "mesh of two, init_device_mesh(device, (nodes, ranks_per_node), "
                'mesh_dim_names=("replicate", "shard"))'
            )
        self.shards: list[Shard] = []

    def find_shards(self, names: dict[int, str]) -> None:
        """Fills `shards`; takes the names of the model's parameters by id."""
        self.shards = []
        index = 0 if self.shard_group is None else dist.get_rank(self.shard_group)
        for each in self._inside.fsdp_params:
            name = names.get(id(each.sharded_param))
            if name is None:
                raise invalid(
                    f"{self.name} has a parameter of shape {tuple(each.sharded_param.shape)} that "
                    "isn't the model's any more: one was replaced since fully_shard, or register "
                    "was given a part of the model; register all of it"
                )
            dtype = _check_parameter(name, each.sharded_param, self._mesh, self._inside)
            self.shards.append(Shard(name, each, index, self.shard_count, dtype))

    @property
    def device(self) -> torch.device:
        """Where gradients are reduced."""
        return self._inside.device

    @property
    def places(self) -> Iterator[tuple[int, str]]:
        """(id of the module, key in it) of each parameter; a shared one has several."""
        for each in self._inside.fsdp_params:
            at = each._module_info
            yield id(at.module), at.param_name
            shared = zip(at.shared_modules, at.shared_param_names, strict=True)
            yield from ((id(module), key) for module, key in shared)

    @property
    def hook(self) -> "Callable | None":
        """The hook that runs instead of torch's own all-reduce, or after it."""
        return self._inside._all_reduce_hook

    @property
    def replicas(self) -> dist.ProcessGroup:
        """The ranks that have the same rows."""
        return self._mesh.replicate_process_group

    @property
    def shard_group(self) -> dist.ProcessGroup | None:
        """The ranks with the rest of this replica; None if it is not sharded."""
        return None if self._mesh.shard_mesh_dim is None else self._mesh.shard_process_group

    @property
    def shard_count(self) -> int:
        """1 if the replica is not sharded."""
        return dist.get_world_size(self.shard_group) if self.shard_group is not None else 1

    @property
    def all_reduces(self) -> bool:
        """False while `set_requires_all_reduce(False)` holds."""
        return self._inside.all_reduce_grads

    @property
    def sums(self) -> bool:
        """Whether the all-reduce has to be a sum, because the user has set the divisor, which torch
        applies for all ranks."""
        return self._inside.gradient_divide_factor is not None

    def later_steps_look_at(self) -> bool:
        """Whether torch reads the gradient right after the hook instead of after backward."""
        return (
            self.sums
            or self._inside.force_sum_reduction_for_comms  # it divides, as it does float16
            or any(s.dtype == torch.float16 or s.later_steps_look_at() for s in self.shards)
        )

    def tensors_in(
        self, gradient: torch.Tensor
    ) -> list[tuple[str, int, int, tuple[int, ...], str]]:
        """(name, address, bytes, shape, name of the dtype) of each parameter's part of a flat
        gradient, in the order of `trained`.

        Raises DeltawireError ("State") unless it has all trained parameters: torch leaves out those
        that a backward pass doesn't reach, without saying which.
        """
        trained = self.trained
        room = sum(shard.room for shard in trained)
        if room != gradient.numel():
            raise wrong_state(
                f"the backward pass reached only some parameters of {self.name} "
                f"({gradient.numel()} elements of {room} on this rank), and torch doesn't say "
                f"which; {_COUNT_UNUSED}, or freeze them"
            )
        found, at, width = [], gradient.data_ptr(), gradient.element_size()
        dtype = arguments.dtype_name(gradient.dtype)
        for shard in trained:
            found.append((shard.name, at, width * math.prod(shard.shape), shard.shape, dtype))
            at += width * shard.room
        return found

    @property
    def trained(self) -> list[Shard]:
        """The shards that have gradients now."""
        return [shard for shard in self.shards if shard.parameter.requires_grad]

    def keep(self, gradient: torch.Tensor) -> None:
        """Keeps the gradient while all-reduce is off, as torch does, and leaves zeros."""
        self.add_kept(gradient)
        self._kept = gradient.clone()
        gradient.zero_()

    def add_kept(self, gradient: torch.Tensor) -> None:
        """Adds the kept gradient, if there is one."""
        kept, self._kept = self._kept, None
        if kept is None:
            return
        if kept.numel() != gradient.numel():
            raise wrong_state(
                f"the backward passes since set_requires_all_reduce(False) reached different "
                f"parameters of {self.name}; {_COUNT_UNUSED}"
            )
        gradient += kept

    def take_over(self, hook: "AllReduce") -> None:
        """Makes torch reduce only within the node, and call the hook for the rest."""
        native, inside = self._mesh, self._inside
        within = _within_node(native)
        self.module.set_all_reduce_hook(hook)
        if inside.post_forward_mesh_info is inside.mesh_info:
            inside.post_forward_mesh_info = within  # the two are compared
        inside.mesh_info = within
        inside._reset_iter_state = self._reset

    def _reset(self) -> None:
        """The group's part of `model.reset_iter_state()`, after a pass that an exception has cut
        short. torch drops what it reduces, and would add to the next pass's gradients those that
        it has not begun to reduce."""
        self._kept = None
        for each in self._inside.fsdp_params:
            each.unsharded_accumulated_grad = None
            if hasattr(each, "_unsharded_param"):
                each._unsharded_param.grad = None
        type(self._inside)._reset_iter_state(self._inside)


class AllReduce:
    """The callable that FSDP calls for a group: `call(group, gradient)` replaces the flat gradient
    by its mean over the replicas."""

    def __init__(self, group: Group, owner, call: Callable[[Group, torch.Tensor], None]) -> None:
        self.group = group
        self.owner = owner  # a participant
        self._call = call

    def __call__(self, gradient: torch.Tensor) -> None:
        """torch's side of it."""
        self._call(self.group, gradient)


def groups_of(model: torch.nn.Module) -> list[Group]:
    """All groups of a model, in its order, without their shards.

    Raises, alike on all ranks:
        InvalidArgumentError (a ValueError): a mesh without an all-reduce, or different meshes.
        DeltawireError ("State"): this version of torch lacks what is needed.
    """
    modules = [
        (wrappers.plain_name(name), module)
        for name, module in model.named_modules()
        if wrappers.is_fsdp2(module)
    ]
    groups, seen = [], set()
    for name, module in modules:
        require_torch(module)
        insides = module._get_fsdp_state()._fsdp_param_groups
        if len(insides) > 1:
            raise invalid(
                f"module '{name}' has parameters on {len(insides)} meshes (shard_placement_fn), "
                "for which torch takes no all-reduce hook; cut each mesh's parameters as a module "
                "of their own"
            )
        for inside in insides:
            if id(inside) not in seen:  # fully_shard([a, b]): two modules, one group
                seen.add(id(inside))
                groups.append(Group(module, f"module '{name}'" if name else "the root", inside))
    if not groups:
        raise invalid("fully_shard has no parameters to exchange; was all of it ignored?")
    _check_one_mesh(groups)
    return groups


def find_shards(model: torch.nn.Module, groups: list[Group]) -> None:
    """Fills the groups' `shards`.

    Raises DTypeError (a TypeError) for parameters that can't be exchanged, InvalidArgumentError (a
    ValueError) for one that was replaced.
    """
    for group in groups:
        group.module.reshard()  # otherwise the module may hold its gathered parameters
    names = {id(each): wrappers.plain_name(name) for name, each in model.named_parameters()}
    for group in groups:
        group.find_shards(names)


def check_free(groups: list[Group]) -> None:
    """Raises InvalidArgumentError for a group that has a hook in use."""
    for group in groups:
        hook = group.hook
        if isinstance(hook, AllReduce) and not hook.owner.closed:
            raise invalid(f"{group.name} is registered already; close its hook first")
        if hook is not None and not isinstance(hook, AllReduce):
            raise invalid(
                f"{group.name} has an all-reduce hook already, and torch takes only one; leave "
                "set_all_reduce_hook out"
            )


def _within_node(native):
    """The mesh info that makes torch skip the all-reduce."""
    from torch.distributed.fsdp._fully_shard import _fsdp_common

    if native.shard_mesh_dim is None:
        return _fsdp_common.DataParallelMeshInfo(native.mesh, replicate_mesh_dim=0)
    within = _fsdp_common.FSDPMeshInfo(native.mesh, shard_mesh_dim=native.shard_mesh_dim)
    within.reduce_scatter_process_group = native.reduce_scatter_process_group
    return within


def _check_parameter(name: str, parameter: torch.Tensor, mesh, inside) -> torch.dtype:
    """Checks a parameter; returns the dtype in which its gradient is reduced."""
    if parameter.device_mesh.ndim != mesh.mesh.ndim:
        raise wrong_dtype(
            f"parameter '{name}' is spread over a mesh of {parameter.device_mesh.ndim} dimensions; "
            "deltawire exchanges what fully_shard has cut, and nothing else: leave tensor "
            "parallelism out"
        )
    arguments.check_has_values(f"parameter '{name}'", parameter)
    precision = inside.mp_policy
    dtype = precision.reduce_dtype or precision.param_dtype or parameter.dtype
    kinds = {inside.device.type, parameter.device.type}
    can_be_exchanged = dtype in arguments.DTYPES and kinds <= set(arguments.DEVICES)
    if parameter.requires_grad and not can_be_exchanged:
        raise wrong_dtype(
            f"the gradient of parameter '{name}', on {parameter.device}, is reduced as {dtype} on "
            f"{inside.device}; deltawire exchanges float32, bfloat16 and float16 on the CPU and on "
            "CUDA devices: give fully_shard mp_policy=MixedPrecisionPolicy(param_dtype=..., "
            'reduce_dtype=torch.float32), and a mesh of "cpu" or "cuda"'
        )
    return dtype


def _check_one_mesh(groups: list[Group]) -> None:
    def ranks(of) -> list[int]:
        return dist.get_process_group_ranks(of) if of is not None else []

    first = groups[0]
    for group in groups[1:]:
        if ranks(group.replicas) != ranks(first.replicas) or ranks(group.shard_group) != ranks(
            first.shard_group
        ):
            raise invalid(
                f"{group.name} and {first.name} are on different meshes; deltawire exchanges over "
                "one: give fully_shard the same mesh for all modules of the model"
            )


def require_torch(module: torch.nn.Module) -> None:
    """Raises DeltawireError ("State") if this version of torch lacks something."""
    missing = ", ".join(dict.fromkeys(_missing_in(module)))
    if missing:
        raise wrong_state(
            f"PyTorch {torch.__version__} lacks {missing}, which deltawire needs to take over "
            "fully_shard's all-reduce; use PyTorch 2.13, or DistributedDataParallel"
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
