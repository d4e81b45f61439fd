"""The weights that a round of local steps starts from, and what has changed since."""

import hashlib

import torch
import torch.distributed as dist

from deltawire.errors import make_error
from deltawire.torch import arguments, wrappers
from deltawire.torch.exchanged import row_major_shape
from deltawire.torch.slots import Slots


class Weights:
    """The trainable parameters of a model, in buckets of a fixed order.

    Holds two more copies of them: the reference (the weights after the last round, equal on all
    ranks) and the changes (scratch memory of a round).

    Attributes:
        names: of the parameters, in the model's order, each shared one once.
        parameters: the model's own.
    """

    def __init__(self, model: torch.nn.Module, bucket_bytes: int) -> None:
        self.names: list[str] = []
        self.parameters: list[torch.nn.Parameter] = []
        for name, parameter in model.named_parameters():
            if parameter.requires_grad and parameter.numel():
                self.names.append(wrappers.plain_name(name))
                self.parameters.append(parameter)
                arguments.check_weights(self.names[-1], parameter)
        if not self.names:
            raise make_error(
                "InvalidArgument", "the model has no parameter that requires gradients"
            )
        self._buckets = self._cut(bucket_bytes)
        self._slots = Slots(model)
        self._exchanged = {id(parameter) for parameter in self.parameters}
        self._changes = [torch.empty(p.shape) for p in self.parameters]
        self._reference = [torch.empty(p.shape) for p in self.parameters]
        self.start_from_here()

    def _cut(self, bucket_bytes: int) -> list[slice]:
        """Neighbours together until a bucket is full; a tensor is never cut."""
        slices, start, size = [], 0, 0
        for i, parameter in enumerate(self.parameters):
            size += 4 * parameter.numel()
            if size >= bucket_bytes or i == len(self.parameters) - 1:
                slices.append(slice(start, i + 1))
                start, size = i + 1, 0
        return slices

    @property
    def bucket_count(self) -> int:
        """At least 1."""
        return len(self._buckets)

    def check_left_out(self) -> None:
        """Raises where a parameter is trained now and isn't exchanged."""
        name = self._slots.left_out(self._exchanged)
        if name is not None:
            raise make_error(
                "State",
                f"parameter '{name}' requires gradients now and did not, or was another tensor, "
                "when LocalSteps was made: it would differ between ranks; close this LocalSteps "
                "and make a new one",
            )

    def tensors(self) -> list[tuple[str, tuple[int, ...]]]:
        """(name, shape) of each change, as it is exchanged."""
        shapes = [row_major_shape(change) for change in self._changes]
        return list(zip(self.names, shapes, strict=True))

    @torch.no_grad()
    def start_from_here(self) -> None:
        """Makes the parameters' present values the reference."""
        torch._foreach_copy_(self._reference, self.parameters)

    @torch.no_grad()
    def changes_of(self, bucket: int) -> list[tuple[str, int, tuple[int, ...]]]:
        """Computes a bucket's changes since the reference: (name, address, shape) of
        each, to be replaced by their means."""
        part = self._buckets[bucket]
        changes = self._changes[part]
        torch._foreach_copy_(changes, self.parameters[part])
        torch._foreach_sub_(changes, self._reference[part])
        return [
            (name, change.data_ptr(), row_major_shape(change))
            for name, change in zip(self.names[part], changes, strict=True)
        ]

    @torch.no_grad()
    def apply_means(self) -> None:
        """Reference and parameters become the old reference plus the means, which stand in the
        changes. Each line is one call into C++: Ctrl-C finds all parameters old or all new."""
        torch._foreach_add_(self._changes, self._reference)
        torch._foreach_copy_(self.parameters, self._changes)
        self._reference, self._changes = self._changes, self._reference

    def state(self) -> dict[str, dict[str, torch.Tensor]]:
        """Copies of the reference and of the parameters, by name."""
        return {
            "reference": dict(zip(self.names, [r.clone() for r in self._reference], strict=True)),
            "parameters": dict(
                zip(self.names, [p.detach().clone() for p in self.parameters], strict=True)
            ),
        }

    def check_state(self, state: dict) -> None:
        """Raises InvalidArgumentError where `state()` of another model is in it."""
        for key in ("reference", "parameters"):
            if list(state[key]) != self.names:
                raise make_error("InvalidArgument", f"the state's {key} are of another model")
            for name, parameter in zip(self.names, self.parameters, strict=True):
                given = state[key][name]
                if given.shape != parameter.shape or given.dtype != torch.float32:
                    raise make_error(
                        "InvalidArgument",
                        f"the state's {key} have '{name}' as {given.dtype} {tuple(given.shape)}, "
                        f"the model as torch.float32 {tuple(parameter.shape)}",
                    )

    @torch.no_grad()
    def load(self, state: dict) -> None:
        """Puts back what `state()` gave, after `check_state`."""
        torch._foreach_copy_(self._reference, [state["reference"][n] for n in self.names])
        torch._foreach_copy_(self.parameters, [state["parameters"][n] for n in self.names])


def layout_digest(model: torch.nn.Module) -> str:
    """Of names, shapes and dtypes of all parameters and buffers, and of what is trained."""
    text = hashlib.sha256()
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        line = f"{name} {tuple(tensor.shape)} {tensor.dtype} {tensor.requires_grad}\n"
        text.update(wrappers.plain_name(line).encode())
    return text.hexdigest()[:12]


def values_digest(tensors: dict[str, torch.Tensor]) -> str:
    """Of every bit of every tensor."""
    values = hashlib.sha256()
    for tensor in tensors.values():
        values.update(tensor.cpu().contiguous().numpy().tobytes())
    return values.hexdigest()[:16]


@torch.no_grad()
def broadcast_model(model: torch.nn.Module, group) -> None:
    """All parameters and buffers become those of the group's rank 0; one collective a tensor."""
    source = dist.get_global_rank(group, 0)
    for tensor in [*model.parameters(), *model.buffers()]:
        values = tensor.detach().contiguous()
        dist.broadcast(values, source, group=group)
        if values.data_ptr() != tensor.data_ptr():
            tensor.copy_(values)
