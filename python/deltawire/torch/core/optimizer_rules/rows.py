"""The rows of a tensor: what they are in its gradient's memory, and their mean squares."""

import torch


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's part of a sharded tensor; any other tensor unchanged."""
    return tensor.detach().to_local() if hasattr(tensor, "device_mesh") else tensor.detach()


def gradient_strides(parameter: torch.Tensor) -> tuple[int, ...]:
    """The strides of a gradient in DDP's bucket: those of the parameter if it has no gaps and
    overlaps, whatever the order of its dimensions (channels_last); else contiguous. (The strides of
    GradBucket.gradients() are always contiguous, and wrong for such parameters.)"""
    without_gaps = torch.empty_like(parameter, device="meta").stride()
    if parameter.stride() == without_gaps:
        return without_gaps
    return torch.empty(parameter.shape, dtype=parameter.dtype, device="meta").stride()


def in_memory_order(tensor: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """The tensor's values, flat, in the order of these strides, without a copy if it has them, as
    it usually does."""
    if tensor.stride() != strides:
        tensor = tensor.new_empty_strided(tensor.shape, strides).copy_(tensor)
    return tensor.as_strided((tensor.numel(),), (1,))


def row_count(parameter: torch.Tensor) -> int:
    """Rows (dimension 0) of a parameter whose gradient has them one after the other in memory; 1
    for any other: a vector, or a matrix in the order of its columns."""
    if parameter.dim() < 2 or not parameter.numel():
        return 1
    rows = parameter.shape[0]
    first, *_ = gradient_strides(parameter)
    return rows if first * rows == parameter.numel() else 1


def mean_squares(values: torch.Tensor, out: torch.Tensor) -> None:
    """Writes the mean square of each row to `out` (float32, one number a row). `values`: flat,
    the rows one after the other."""
    rows = values.view(len(out), -1)
    torch.linalg.vector_norm(rows, dim=1, dtype=torch.float32, out=out)
    out.square_().div_(rows.shape[1])


def means_of_rows(tensor: torch.Tensor, count: int) -> torch.Tensor:
    """The mean of each of so many rows, in float32. Of equal values it is that value exactly."""
    dims = tuple(range(1 if count > 1 else 0, tensor.dim()))
    exact = tensor.mean(dims, dtype=torch.float64) if dims else tensor.double()
    return exact.float().reshape(count)


def spread(rows: torch.Tensor, over: torch.Tensor) -> torch.Tensor:
    """One number a row, to be broadcast over such a tensor."""
    return rows.view(-1, *[1] * (over.dim() - 1)) if over.dim() else rows.view(())
