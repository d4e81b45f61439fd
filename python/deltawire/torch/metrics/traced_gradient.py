"""A parameter's gradient as a trace holds it: float32 on the CPU, sparse ones as pairs."""

import math

import torch

from deltawire.errors import DTypeError
from deltawire.traces import TracedGradient, TracedTensor


def traced(
    name: str,
    parameter: torch.nn.Parameter,
    scale: torch.Tensor | None,
    significance: torch.Tensor | None,
) -> TracedGradient:
    """The gradient that the parameter has, divided by the scale if there is one; significance of
    the parameter's shape, of a sparse gradient's keys alone in what is returned.

    Raises DTypeError where float32 can't hold it, and for layouts other than strided and COO.
    """
    gradient = parameter.grad.detach()
    if gradient.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise DTypeError(
            f"the gradient of '{name}' is {gradient.dtype}; a trace holds float32, and what widens "
            "to it without a loss (bfloat16, float16)",
            "UnsupportedDType",
        )
    if gradient.layout not in (torch.strided, torch.sparse_coo):
        raise DTypeError(
            f"the gradient of '{name}' has the layout {gradient.layout}; a trace takes strided "
            "ones, and sparse ones of COO",
            "UnsupportedDType",
        )
    tensor = TracedTensor(name, tuple(parameter.shape))
    if gradient.layout == torch.strided:
        seen = None if significance is None else significance.contiguous().numpy()
        return TracedGradient(tensor, _floats(gradient, scale).numpy(), None, seen)
    keys, values = _pairs(gradient)
    seen = None if significance is None else significance.reshape(-1)[keys].numpy()
    return TracedGradient(tensor, _floats(values, scale).numpy(), keys.numpy(), seen)


def _floats(values: torch.Tensor, scale: torch.Tensor | None) -> torch.Tensor:
    """On the CPU, float32, contiguous."""
    values = values.to("cpu", torch.float32)
    if scale is not None:
        values = values * scale.to("cpu", torch.float64).reciprocal().to(torch.float32)
    return values.contiguous()


def _pairs(gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Growing keys, counted in C order, on the CPU, and their values: an embedding's rows come
    whole."""
    gradient = gradient.coalesce()
    sparse = gradient.sparse_dim()
    row_count = math.prod(gradient.shape[sparse:])
    rows = torch.zeros(gradient.indices().shape[1], dtype=torch.int64)
    for indices, extent in zip(gradient.indices().cpu(), gradient.shape[:sparse], strict=True):
        rows = rows * extent + indices
    keys = rows[:, None] * row_count + torch.arange(row_count)
    return keys.reshape(-1), gradient.values().reshape(-1)
