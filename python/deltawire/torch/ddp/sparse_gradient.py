"""A sparse gradient (of nn.Embedding(sparse=True), say) as the core takes it: pairs of a key and a
value, an element's place in the flattened parameter and what it is.
"""

import math

import numpy as np
import torch

from deltawire import _core
from deltawire.errors import DTypeError, make_error
from deltawire.torch.core import arguments

MOST_ELEMENTS = 2**32 - 1


class SparseGradient:
    """One parameter's sparse gradient on its way.

    Whole rows go as runs of keys: codecs write the distances of keys, which are 1 within a row.
    Rows that stand twice are added up first, as torch does, in the gradient's dtype.

    Attributes:
        at: for `_core.Session.submit`, in memory that lives as long as this.

    Args:
        name: the parameter's.
        gradient: sparse COO, of any number of sparse and dense dimensions, on any device; float32,
            bfloat16 or float16.

    Raises:
        DTypeError (a TypeError): another layout.
    """

    def __init__(self, name: str, gradient: torch.Tensor) -> None:
        if gradient.layout != torch.sparse_coo:
            raise DTypeError(
                f"the gradient of '{name}' is {gradient.layout}; deltawire exchanges strided and "
                "sparse_coo gradients",
                "UnsupportedDType",
            )
        gradient = gradient.coalesce()
        self._shape = tuple(gradient.shape)
        self._sparse_dims = gradient.sparse_dim()
        self._row_elements = math.prod(self._shape[self._sparse_dims :])
        self._dtype, self._device = gradient.dtype, gradient.device
        # Coalesced: rows are sorted, and so are keys.
        first = np.ravel_multi_index(
            tuple(gradient.indices().cpu().numpy()), self._shape[: self._sparse_dims]
        )
        keys = first[:, None] * self._row_elements + np.arange(self._row_elements)
        self._keys = keys.astype(np.uint32).ravel()
        self._values = gradient.values().cpu().contiguous()
        self.at = _core.PairsAt(
            name,
            self._shape,
            self._keys.ctypes.data,
            self._values.data_ptr(),
            len(self._keys),
            arguments.dtype_name(self._values.dtype),
        )

    def mean(self) -> torch.Tensor:
        """Over all ranks, after the exchange: coalesced, of the gradient's shape, dtype and device.
        It has the rows of which any element came."""
        keys, values = (np.asarray(each) for each in self.at.mean)
        rows, row_of = np.unique(keys // self._row_elements, return_inverse=True)
        filled = np.zeros((len(rows), self._row_elements), np.float32)
        filled[row_of, keys % self._row_elements] = values
        indices = np.stack(np.unravel_index(rows, self._shape[: self._sparse_dims]))
        mean = torch.sparse_coo_tensor(
            torch.from_numpy(indices.astype(np.int64)),
            torch.from_numpy(filled).to(self._dtype).view(-1, *self._shape[self._sparse_dims :]),
            self._shape,
            is_coalesced=True,
            check_invariants=False,
        )
        return mean.to(self._device)


def check_sparse(
    spec: str, options: _core.ReducerOptions, tensors: list[tuple[str, tuple[int, ...], str]]
) -> None:
    """Raises InvalidArgumentError where the policy, in any step, has a codec for one of these
    tensors (name, shape, dtype) that takes no pairs, or one is too large for keys of 32 bits."""
    for name, shape, _ in tensors:
        if math.prod(shape) > MOST_ELEMENTS:
            raise make_error(
                "InvalidArgument",
                f"parameter '{name}' has sparse gradients and {math.prod(shape):,} elements, more "
                f"than {MOST_ELEMENTS:,}; split it, or make it with sparse=False",
            )
    step: int | None = 0
    while tensors and step is not None:
        uses = _core.explain(spec, options, tensors, step)
        for (name, *_), use in zip(tensors, uses, strict=True):
            if not use.takes_pairs:
                raise _takes_none(spec, name, use.codec, step)
        step = min((use.changes_at for use in uses if use.changes_at is not None), default=None)


def _takes_none(spec: str, name: str, codec: str, step: int) -> Exception:
    known = ", ".join(info.name for info in _core.registered_codecs() if info.takes_pairs)
    pattern = spec.partition("(")[0]
    return make_error(
        "InvalidArgument",
        f"parameter '{name}' has sparse gradients, which {pattern}({codec}), its codec in step "
        f"{step}, doesn't take; in the patterns direct and gather {known} do (a rule may give it "
        f"one: '{name}: fastsgd'), or make its module with sparse=False",
    )
