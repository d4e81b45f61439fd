"""The parameters that a DDP model exchanges: fixed when DDP was made, even if frozen since."""

import weakref
from collections.abc import Iterator

import torch
from torch.autograd.graph import get_gradient_edge
from torch.nn.parallel import DistributedDataParallel

from deltawire.errors import invalid, wrong_state
from deltawire.session.terms import tensor_line
from deltawire.torch.core import arguments
from deltawire.torch.core.module_parameters import ModuleParameters, row_major_shape


class DDPParameters:
    """Names of the parameters that a DDP model exchanges; notices parameters that would be left
    out.

    Attributes:
        names: id(parameter) -> name, of all that DDP exchanges, frozen or not. Names leave out what
            torch.compile adds, so that residuals survive it.
        tensors: (name, shape, name of the dtype) of each, in the model's order.
        sparse: the same for parameters with sparse gradients.

    Raises:
        DTypeError (a TypeError): a parameter that can't be exchanged.
        InvalidArgumentError (a ValueError): DDP exchanges a tensor that is no longer the module's.
    """

    def __init__(self, ddp_model: DistributedDataParallel) -> None:
        self._ddp = weakref.ref(ddp_model)
        self._module = ddp_model.module
        ignored = ddp_model.parameters_to_ignore
        self._in_module = ModuleParameters(self._module, "DistributedDataParallel", ignored)
        # DDP exchanges some of those that it was told to ignore.
        by_id = ModuleParameters(ddp_model.module).names()
        # Kept, so that no id is given away to another tensor.
        self._parameters, sparse = _parameters_of(ddp_model)
        self.names: dict[int, str] = {}
        for parameter in self._parameters:
            name = by_id.get(id(parameter))
            if name is None:
                raise invalid(
                    f"DistributedDataParallel exchanges a parameter of shape "
                    f"{tuple(parameter.shape)} that isn't the module's any more: one was replaced "
                    f"since it was made; {_AGAIN}"
                )
            arguments.check_parameter(name, parameter)
            self.names[id(parameter)] = name
        shapes = {id(parameter): row_major_shape(parameter) for parameter in self._parameters}
        self._dtypes = {id(parameter): parameter.dtype for parameter in self._parameters}
        named = {key: arguments.dtype_name(dtype) for key, dtype in self._dtypes.items()}
        self.tensors = [
            (name, shapes[key], named[key]) for key, name in by_id.items() if key in shapes
        ]
        self.sparse = [
            (self.names[id(each)], tuple(each.shape), named[id(each)]) for each in sparse
        ]
        self._first_trained: list[bool] | None = None
        self._accumulators = {
            id(each): get_gradient_edge(each).node
            for each in self._parameters
            if each.requires_grad
        }

    @property
    def all(self) -> tuple[torch.Tensor, ...]:
        """Those that DDP exchanges."""
        return tuple(self._parameters)

    def named(self) -> Iterator[tuple[str, torch.Tensor]]:
        """(name, parameter) of these, in the model's order."""
        by_name = {self.names[id(each)]: each for each in self._parameters}
        return ((name, by_name[name]) for name, *_ in self.tensors)

    @property
    def gradient_bytes(self) -> int:
        """Size of all gradients together."""
        return sum(each.numel() * each.element_size() for each in self._parameters)

    @property
    def devices(self) -> set[torch.device]:
        """Where gradients come out."""
        return {each.device for each in self._parameters}

    def lines(self) -> list[str]:
        """One line a tensor, with what must be equal on all ranks, in the same order on all."""
        sparse = {name for name, *_ in self.sparse}
        return [
            tensor_line(name, dtype, shape, *["sparse"] * (name in sparse))
            for name, shape, dtype in self.tensors
        ]

    def name_of(self, parameter: torch.Tensor) -> str:
        """The parameter's name; raises DeltawireError ("State") for one that DDP has from
        elsewhere."""
        name = self.names.get(id(parameter))
        if name is None:
            raise wrong_state(
                f"a bucket has a parameter of shape {tuple(parameter.shape)} that the model didn't "
                f"have when it was registered; {_AGAIN}"
            )
        return name

    def check(self, ddp_model: DistributedDataParallel) -> None:
        """Called before a backward pass whose gradients are exchanged. Raises DeltawireError
        ("State"), naming the parameter, if DDP would exchange only some of the gradients, or those
        of parameters that the module no longer has. DDP itself would let the replicas diverge, and
        report it a step later or never."""
        if ddp_model._join_config.enable and not ddp_model._divide_by_initial_world_size:
            raise wrong_state(
                "join(divide_by_initial_world_size=False) divides by the ranks that still have "
                "data, and DDP doesn't tell a communication hook how many these are: gradients "
                "would be divided by all; leave the argument out, and scale the loss if need be"
            )
        if ddp_model.module is not self._module:
            raise wrong_state(f"DistributedDataParallel has another module now; {_AGAIN}")
        self._in_module.check(self._dtypes, f"{_AGAIN}, or freeze it")
        if not ddp_model.find_unused_parameters:
            self._check_frozen(ddp_model.static_graph)

    @property
    def in_join(self) -> bool:
        """Whether some ranks may have no data any more, by DDP's join()."""
        return (ddp := self._ddp()) is not None and ddp._join_config.enable

    def check_accumulators(self) -> None:
        """Raises DeltawireError ("State"), naming it, for a parameter whose gradients DDP no longer
        sees, because torch has made it a new accumulator. Takes 10 us for each parameter."""
        for parameter in self._parameters:
            before = self._accumulators.get(id(parameter))
            if before is None or not parameter.requires_grad:
                continue
            if get_gradient_edge(parameter).node is not before:
                raise wrong_state(
                    f"parameter '{self.names[id(parameter)]}' was converted (.half().float(), for "
                    "example, or by its .data) since DistributedDataParallel was made, which sees "
                    f"none of its gradients any more: they would not be exchanged; {_AGAIN}"
                )

    def _check_frozen(self, static_graph: bool) -> None:
        """A step in which no parameter is trained is fine: nothing is exchanged. With only some of
        them DDP would wait for gradients that never come."""
        trained = [parameter.requires_grad for parameter in self._parameters]
        if not any(trained):
            return
        if not static_graph:
            expected, then = [True] * len(trained), "when DistributedDataParallel was made"
        else:
            if self._first_trained is None:
                self._first_trained = trained
            expected, then = self._first_trained, "in the first step of a static graph"
        for parameter, now, due in zip(self._parameters, trained, expected, strict=True):
            if now != due:
                change = "requires gradients, and did not" if now else "is frozen, and was not"
                raise wrong_state(
                    f"parameter '{self.names[id(parameter)]}' {change} {then}: gradients would be "
                    "exchanged in part only; give DistributedDataParallel "
                    f"find_unused_parameters=True, or {_AGAIN}"
                )


_AGAIN = "wrap the module in a new DistributedDataParallel and register that"


def _parameters_of(
    ddp_model: DistributedDataParallel,
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The parameters that DDP exchanges, and those of them with sparse gradients.

    Only DDP's reducer knows them. Its answer comes with zero tensors as large as the gradients
    (made for join()), which are freed at once. It can't make them for sparse gradients: then the
    parameters are those that DDP would exchange if it were made now, provided the number is the
    same.
    """
    try:
        buckets = ddp_model.reducer._get_zeros_like_grad_buckets()
    except RuntimeError as cause:
        now, is_sparse = ddp_model._build_params_for_reducer()
        sparse = [each for each, flag in zip(now, is_sparse, strict=True) if flag]
        count = ddp_model._get_ddp_logging_data()["num_parameter_tensors"]
        if not sparse:
            raise
        if len(now) != count:
            raise invalid(
                f"DistributedDataParallel exchanges {count} parameters, some of them sparse, and "
                f"{len(now)} require gradients now: freeze none before register; {_AGAIN}"
            ) from cause
        return now, sparse
    return [parameter for bucket in buckets for parameter in bucket.parameters()], []
