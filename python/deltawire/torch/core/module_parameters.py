"""A module's parameters: their places, shapes in memory, and layout, equal on all ranks."""

import hashlib
from collections.abc import Callable, Container, Mapping

import torch
import torch.distributed as dist

from deltawire.errors import invalid, make_error, wrong_state
from deltawire.session.terms import tensor_line
from deltawire.torch.core import arguments, wrappers
from deltawire.weights.store.model_tensors import overlaps_itself


class ModuleParameters:
    """The places (module and key) of all parameters of a module, always as it is now, even if
    submodules were replaced. A shared parameter has several places.

    It is asked before every step, so it walks the tree of modules only after a change, which it
    notices by comparing each module's list of children with the previous one.

    Args:
        module: the model.
        owner: the class that exchanges the parameters, for messages.
        ignored: names of parameters to be ignored.
    """

    def __init__(
        self, module: torch.nn.Module, owner: str = "", ignored: Container[str] = ()
    ) -> None:
        self._module = module
        self._owner = owner
        self._ignored = ignored
        self._tree: list[_Node] = []
        self._walk()

    def _walk(self) -> None:
        self._tree = [_Node(name, module) for name, module in self._module.named_modules()]

    def _follow(self) -> None:
        """Walks the tree again if it has changed."""
        for node in self._tree:
            # Most have none, then and now.
            if (node.children or node.ids) and list(map(id, node.children.values())) != node.ids:
                self._walk()
                return

    def names(self) -> dict[int, str]:
        """id(parameter) -> name, the first one of a shared parameter; without ignored ones."""
        self._follow()
        found: dict[int, str] = {}
        for node in self._tree:
            for key, parameter in node.parameters.items():
                if parameter is not None and node.name_of(key) not in self._ignored:
                    found.setdefault(id(parameter), wrappers.plain_name(node.name_of(key)))
        return found

    def left_out(self, is_exchanged: Callable[[torch.nn.Module, str], bool]) -> list[str]:
        """The names of parameters that require gradients and have a place for which
        is_exchanged(module, key) is false."""
        self._follow()
        return [
            wrappers.plain_name(node.name_of(key))
            for node in self._tree
            for key, parameter in node.parameters.items()
            if not is_exchanged(node.module, key) and self._is_trained(node, key, parameter)
        ]

    def check(self, dtypes: Mapping[int, torch.dtype], advice: str) -> None:
        """Raises DeltawireError ("State"), naming the parameter, if one that requires gradients
        isn't exchanged, or has changed its dtype.

        Args:
            dtypes: id(parameter) -> original dtype, of all that are exchanged.
            advice: what to do, for the message.
        """
        self._follow()
        for node in self._tree:
            for key, parameter in node.parameters.items():
                dtype = dtypes.get(id(parameter))
                if dtype is not None and parameter.dtype is dtype:
                    continue
                if not self._is_trained(node, key, parameter):
                    continue
                if dtype is None:
                    what = (
                        f"requires gradients, but {self._owner} doesn't exchange it: it was "
                        "frozen, another tensor or not there"
                    )
                else:
                    what = f"is {parameter.dtype}, but was {dtype}"
                raise wrong_state(
                    f"parameter '{wrappers.plain_name(node.name_of(key))}' {what} when "
                    f"{self._owner} was made, and would differ between ranks; {advice}"
                )

    def _is_trained(self, node: "_Node", key: str, parameter: torch.Tensor | None) -> bool:
        """Whether it requires gradients and is not ignored."""
        if parameter is None or not parameter.requires_grad or not parameter.numel():
            return False
        return node.name_of(key) not in self._ignored


class _Node:
    """A module of the tree.

    Attributes:
        module: the module.
        children, parameters: its own dicts, which change with it.
        ids: ids of its children when the tree was walked.
    """

    __slots__ = ("_name", "_then", "children", "ids", "module", "parameters")

    def __init__(self, name: str, module: torch.nn.Module) -> None:
        self._name = name
        self.module = module
        self.children, self.parameters = module._modules, module._parameters
        self._then = list(self.children.values())  # kept, so that no id is given away
        self.ids = list(map(id, self._then))

    def name_of(self, key: str) -> str:
        """The full name of its parameter with this key."""
        return f"{self._name}.{key}" if self._name else key


def trained_parameters(model: torch.nn.Module) -> tuple[list[str], list[torch.nn.Parameter]]:
    """Names and tensors of the parameters that require gradients and have elements, in the model's
    order; a shared one is there once. Raises InvalidArgumentError if there is none."""
    found = [each for each in model.named_parameters() if each[1].requires_grad and each[1].numel()]
    if not found:
        raise invalid("the model has no parameter that requires gradients")
    return [wrappers.plain_name(name) for name, _ in found], [each for _, each in found]


def row_major_shape(tensor: torch.Tensor) -> tuple[int, ...]:
    """The tensor's shape as codecs see it: one dimension unless its memory is row-major."""
    return tuple(tensor.shape) if tensor.is_contiguous() else (tensor.numel(),)


def layout(model: torch.nn.Module) -> list[str]:
    """A line for each parameter and buffer, with what must be equal on all ranks."""
    kinds = [
        (model.named_parameters(), ("frozen", "trained")),
        (model.named_buffers(), ("buffer",)),
    ]
    return [
        tensor_line(
            wrappers.plain_name(name),
            arguments.dtype_name(tensor.dtype),
            tensor.shape,
            words[tensor.requires_grad],
        )
        for named, words in kinds
        for name, tensor in named
    ]


def layout_digest(model: torch.nn.Module) -> str:
    """A digest of names, shapes, dtypes and requires_grad of all parameters and buffers."""
    text = hashlib.sha256()
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        line = f"{name} {tuple(tensor.shape)} {tensor.dtype} {tensor.requires_grad}\n"
        text.update(wrappers.plain_name(line).encode())
    return text.hexdigest()[:12]


@torch.no_grad()
def share_model(
    model: torch.nn.Module, group, encryption: str, *, on_any_device: bool = False
) -> None:
    """Sets all parameters and buffers to those of the group's rank 0; a collective for each. Ranks
    have them on devices of one kind, or anywhere if all say so (`on_any_device`).

    With encryption="required" they are only compared, by their digests, because the process group
    is not encrypted: raises "Mismatch" on every rank where they differ.
    """
    if encryption == "required":
        return _check_equal(model, group)
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        check_writable(name, tensor)  # before the first write
    source = dist.get_global_rank(group, 0)
    for tensor in [*model.parameters(), *model.buffers()]:
        values = tensor.detach().contiguous()
        if on_any_device:
            values = values.to(arguments.device_of(group, near=tensor.device))
        dist.broadcast(values, source, group=group)
        if values.data_ptr() != tensor.data_ptr():
            tensor.copy_(values)


def check_writable(name: str, tensor: torch.Tensor) -> None:
    """Raises InvalidArgumentError for a tensor whose elements torch would not write one by one."""
    if overlaps_itself(tuple(tensor.shape), tensor.stride()):
        raise invalid(
            f"'{wrappers.plain_name(name)}' can't be written: its elements share memory, as "
            "expand() makes them; give the model a contiguous copy of it"
        )


def _check_equal(model: torch.nn.Module, group) -> None:
    digest = hashlib.sha256()
    for tensor in [*model.parameters(), *model.buffers()]:
        digest.update(tensor.detach().contiguous().cpu().flatten().view(torch.uint8).numpy())
    own = torch.frombuffer(bytearray(digest.digest()), dtype=torch.uint8)
    own = own.to(arguments.device_of(group))
    slots = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
    dist.all_gather(slots, own, group=group)
    odd = next((rank for rank, slot in enumerate(slots) if not torch.equal(slot, slots[0])), None)
    if odd is not None:
        raise make_error(
            "Mismatch",
            f'rank {odd} begins with other weights than rank 0, and encryption="required" does not '
            "let the process group send rank 0's in the clear; begin with equal ones, by a seed or "
            "a checkpoint",
            odd,
        )
