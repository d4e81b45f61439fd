"""The parameters that a parameter server owns, in the same order on all ranks."""

import torch

from deltawire.errors import make_error
from deltawire.torch.core import arguments, wrappers
from deltawire.torch.core.module_parameters import ModuleParameters, row_major_shape


class ServedModel:
    """A module's parameters that require gradients.

    Attributes:
        module: the model.
        names: names of the parameters, in the model's order; a shared one appears once.
        parameters: the model's own tensors.
        indices: id(parameter) -> index in that order.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        wrappers.check_bare(module, "ParameterServer")
        self.module = module
        self.names: list[str] = []
        self.parameters: list[torch.nn.Parameter] = []
        for name, parameter in module.named_parameters():
            if parameter.requires_grad and parameter.numel():
                self.names.append(wrappers.plain_name(name))
                self.parameters.append(parameter)
                arguments.check_served(self.names[-1], parameter)
                _check_dense(self.names[-1], parameter)
        if not self.names:
            raise make_error(
                "InvalidArgument", "the model has no parameter that requires gradients"
            )
        self.indices = {id(parameter): at for at, parameter in enumerate(self.parameters)}
        self._in_module = ModuleParameters(module, "ParameterServer")
        self._dtypes = {id(parameter): parameter.dtype for parameter in self.parameters}
        self._addresses = [parameter.data_ptr() for parameter in self.parameters]

    @property
    def names_by_id(self) -> dict[int, str]:
        """id(parameter) -> name."""
        return dict(zip(self.indices, self.names, strict=True))

    @property
    def elements(self) -> int:
        """The number of elements of all parameters."""
        return sum(parameter.numel() for parameter in self.parameters)

    def tensors(self) -> list[tuple[str, int, tuple[int, ...]]]:
        """(name, address, shape) of each, as the core takes them."""
        return [
            (name, parameter.data_ptr(), row_major_shape(parameter))
            for name, parameter in zip(self.names, self.parameters, strict=True)
        ]

    def check_in_place(self) -> None:
        """Raises DeltawireError ("State") if a parameter has left the memory that the core writes
        to, or is trained but not served."""
        for name, parameter, address in zip(
            self.names, self.parameters, self._addresses, strict=True
        ):
            if parameter.data_ptr() != address:
                raise make_error(
                    "State",
                    f"parameter '{name}' has other memory than when the ParameterServer was made "
                    "(.data was set, or the model moved); load into it in place, or make a new "
                    "ParameterServer",
                )
        self._in_module.check(self._dtypes, "close this one and make a new ParameterServer")


def gradient_of(name: str, parameter: torch.nn.Parameter):
    """A parameter's gradient in the order of the parameter's memory, as a flat NumPy array; zeros
    if it has none. Raises DTypeError for a sparse one."""
    gradient = parameter.grad
    if gradient is None:
        return torch.zeros(parameter.numel()).numpy()
    if gradient.layout != torch.strided:
        raise make_error(
            "UnsupportedDType",
            f"the gradient of parameter '{name}' is sparse; ParameterServer takes dense ones: "
            "leave sparse=True out",
        )
    if gradient.stride() != parameter.stride():
        gradient = torch.empty_like(parameter).copy_(gradient)
    return gradient.detach().as_strided((gradient.numel(),), (1,)).numpy()


def _check_dense(name: str, parameter: torch.nn.Parameter) -> None:
    without_gaps = torch.empty_like(parameter, device="meta").stride()
    if parameter.stride() != without_gaps:
        raise make_error(
            "UnsupportedDType",
            f"parameter '{name}' has gaps in its memory or shares elements; give it memory of its "
            "own with .contiguous()",
        )
