"""The rows and columns of a tensor: what they are in its gradient's memory, and their means."""

import dataclasses
from collections.abc import Sequence

import torch

_TINY = torch.finfo(torch.float32).tiny
_CACHED = 1 << 18  # elements
_SUMMED_AT_ONCE = 64


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


def _cached(table: torch.Tensor) -> Sequence[torch.Tensor]:
    """A tensor's rows in parts that stay in the cache of a CPU."""
    if table.device.type != "cpu":
        return (table,)
    return table.split(max(1, _CACHED // max(1, table[0].numel())))


def _folded(squares: torch.Tensor) -> torch.Tensor:
    """The sums of rows in float64, half upon half."""
    while (width := squares.shape[1]) > _SUMMED_AT_ONCE:
        half = width // 2
        folded = squares[:, :half] + squares[:, half : 2 * half]
        if width % 2:
            folded[:, 0] += squares[:, -1]
        squares = folded
    return squares.sum(1, dtype=torch.float64)


@dataclasses.dataclass(frozen=True)
class Lines:
    """A tensor's rows (dimension 0) and columns (dimension 1; of a convolution an input channel),
    where its gradient has rows one after the other in memory. A vector, and a matrix in the order
    of its columns, is one row.

    Numbers of lines are flat, float32: one a row, then, where there are several rows, one a column.

    Attributes:
        rows, columns: how many; no columns where there is one row.
        shape, strides: of the gradient.
    """

    rows: int
    columns: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def count(self) -> int:
        """Of rows and columns together."""
        return self.rows + self.columns

    @property
    def in_a_row(self) -> tuple[int, ...]:
        """The dimensions within a row."""
        return tuple(range(1 if self.columns else 0, len(self.shape)))

    def of(self, numbers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(Those of the rows, those of the columns)."""
        return numbers[: self.rows], numbers[self.rows :]

    def upright(self, of_rows: torch.Tensor) -> torch.Tensor:
        """One number a row, to be broadcast over such a tensor."""
        return of_rows.view(-1, *[1] * len(self.in_a_row)) if self.columns else of_rows.view(())

    def root_mean_squares(self, tensor: torch.Tensor) -> torch.Tensor:
        """Of the rows of such a tensor, in float64. Every processor adds in the same order, however
        wide its vectors are, so that replicas on unlike ones stay alike."""
        table = tensor.reshape(self.rows, -1)
        sums = [_folded(part.float().square()) for part in _cached(table)]
        return torch.cat(sums).div_(table.shape[1]).sqrt_()

    def mean_squares(self, values: torch.Tensor, out: torch.Tensor) -> None:
        """Writes the lines' mean squares to `out`. `values`: flat, in the order of memory."""
        if not self.columns:
            norm = torch.linalg.vector_norm(values, dtype=torch.float32)
            out.copy_(norm.square_().div_(len(values)))
            return
        rows, columns = self.of(out)
        ones, sums = torch.ones_like(rows), []
        columns.zero_()
        for part in _cached(values.as_strided(self.shape, self.strides)):
            squares = part.float().square()
            if squares.dim() > 2:
                squares = squares.flatten(2).sum(2)
            sums.append(squares.sum(1))
            columns.addmv_(squares.T, ones[: len(part)])
        torch.mul(torch.cat(sums), self.rows / len(values), out=rows)
        columns.mul_(self.columns / len(values))

    def means(self, tensor: torch.Tensor) -> torch.Tensor:
        """The lines' means of such a tensor, in float32. Of a row of equal values it is that value
        exactly."""
        parts = [self.in_a_row] + [(0, *range(2, tensor.dim()))] * bool(self.columns)
        means = (tensor.mean(each, dtype=torch.float64) if each else tensor for each in parts)
        return torch.cat([each.float().view(-1) for each in means])

    def crossing(self, means: torch.Tensor) -> torch.Tensor:
        """The tensor of rank one whose lines have these means has its largest element in one row
        and one column: these two, the column first. Their own largest are the same number."""
        if not self.columns:
            return means
        rows, columns = self.of(means)
        total = rows.mean(dtype=torch.float64).float().clamp_(min=_TINY)
        column, row = rows * (columns.max() / total), columns * (rows.max() / total)
        top = column.max().view(1)
        row.clamp_(max=top).index_copy_(0, row.argmax().view(1), top)
        return torch.cat([column, row])

    def means_of(self, crossing: torch.Tensor) -> torch.Tensor:
        """The means of the tensor of such a `crossing`."""
        if not self.columns:
            return crossing
        column, row = self.of(crossing)
        means = (each.mean(dtype=torch.float64).float() for each in (row, column))
        top = column.max().clamp_(min=_TINY)
        return torch.cat(
            [each * (mean / top) for each, mean in zip((column, row), means, strict=True)]
        )

    def outer(self, crossing: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """Writes the tensor of rank one of such a `crossing`, or of its elements' roots."""
        if not self.columns:
            return out.copy_(self.upright(crossing))
        column, row = self.of(crossing)
        shares = (row / row.max().clamp_(min=_TINY)).view(1, -1, *[1] * (out.dim() - 2))
        return torch.mul(self.upright(column).expand_as(out), shares, out=out)

    def spread(self, crossing: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """The same so that `found_in` finds the `crossing` there again, to the bit in float32."""
        self.outer(crossing, out)
        if self.columns:
            column, row = self.of(crossing)
            row = row.view(1, -1, *[1] * (out.dim() - 2)).expand(1, *out.shape[1:])
            out.index_copy_(0, column.argmax().view(1), row.to(out.dtype))
        return out

    def found_in(self, tensor: torch.Tensor) -> torch.Tensor:
        """The `crossing` of a tensor of rank one; of any other, that of the one with its means."""
        of_means = self.crossing(self.means(tensor))
        if not self.columns:
            return of_means
        table = tensor.flatten(2)[..., 0] if tensor.dim() > 2 else tensor
        at_row, at_column = divmod(int(table.argmax()), self.columns)
        found = torch.cat([table[:, at_column], table[at_row]]).float()
        is_of_it = torch.equal(self.spread(found, torch.empty_like(tensor)), tensor)
        return found if is_of_it else of_means


def lines_of(parameter: torch.Tensor) -> Lines:
    """Those of a parameter that has elements."""
    shape, strides = tuple(parameter.shape), gradient_strides(parameter)
    if parameter.dim() > 1 and shape[0] > 1 and strides[0] * shape[0] == parameter.numel():
        return Lines(shape[0], shape[1], shape, strides)
    return Lines(1, 0, shape, strides)
