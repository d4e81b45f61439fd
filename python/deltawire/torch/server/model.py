"""The parameters that a parameter server owns, in the same order on all ranks."""

import torch

from deltawire.errors import wrong_dtype, wrong_state
from deltawire.torch.core import arguments, wrappers
from deltawire.torch.core.module_parameters import (
    ModuleParameters,
    row_major_shape,
    trained_parameters,
)
from deltawire.torch.server.memory import ServedMemory


class ServedModel:
    """A module's parameters that require gradients.

    Attributes:
        module: the model.
        names: names of the parameters, in the model's order; a shared one appears once.
        parameters: the model's own tensors.
        indices, names_by_id: id(parameter) -> index in that order; id(parameter) -> name.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        wrappers.check_bare(module, "ParameterServer")
        self.module = module
        self.names, self.parameters = trained_parameters(module)
        for name, parameter in zip(self.names, self.parameters, strict=True):
            _check_served(name, parameter)
        self.indices = {id(parameter): at for at, parameter in enumerate(self.parameters)}
        self.names_by_id = dict(zip(self.indices, self.names, strict=True))
        self._in_module = ModuleParameters(module, "ParameterServer")
        self._dtypes = {id(parameter): parameter.dtype for parameter in self.parameters}
        self._addresses = [parameter.data_ptr() for parameter in self.parameters]

    @property
    def elements(self) -> int:
        """The number of elements of all parameters."""
        return sum(parameter.numel() for parameter in self.parameters)

    def tensors(self, memory: ServedMemory) -> list[tuple[str, int, int, tuple[int, ...]]]:
        """(name, address, bytes, shape) of each, as the core takes them."""
        return [
            (name, *memory.place(index), row_major_shape(parameter))
            for index, (name, parameter) in enumerate(zip(self.names, self.parameters, strict=True))
        ]

    def check_in_place(self) -> None:
        """Raises DeltawireError ("State") if a parameter has left its memory, or is trained but not
        served."""
        for name, parameter, address in zip(
            self.names, self.parameters, self._addresses, strict=True
        ):
            if parameter.data_ptr() != address:
                raise wrong_state(
                    f"parameter '{name}' has other memory than when the ParameterServer was made "
                    "(.data was set, or the model moved); load into it in place, or make a new "
                    "ParameterServer"
                )
        self._in_module.check(self._dtypes, "close this one and make a new ParameterServer")


def _check_served(name: str, parameter: torch.nn.Parameter) -> None:
    arguments.check_parameter(name, parameter)
    if parameter.dtype != torch.float32:
        raise wrong_dtype(
            f"parameter '{name}' is {parameter.dtype}; ParameterServer serves float32: convert the "
            "model with .float() first (with autocast for a forward pass of 16 bits)"
        )
    without_gaps = torch.empty_like(parameter, device="meta").stride()
    if parameter.stride() != without_gaps:
        raise wrong_dtype(
            f"parameter '{name}' has gaps in its memory or shares elements; give it memory of its "
            "own with .contiguous()"
        )
