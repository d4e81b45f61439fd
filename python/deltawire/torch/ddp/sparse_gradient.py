"""Sparse gradients (of nn.Embedding(sparse=True), for example) as the core takes them: pairs of a
key, the element's index in the flattened parameter, and its value.
"""

import math

import numpy as np
import torch

from deltawire import _core
from deltawire.errors import invalid, wrong_dtype
from deltawire.torch.core import arguments

MOST_ELEMENTS = 2**32 - 1


class SparseGradient:
    """One parameter's sparse gradient during its exchange.

    Whole rows travel as runs of keys: codecs write differences of keys, which are 1 within a row.
    Duplicate rows are added up first, in the gradient's dtype, as torch does.

    Attributes:
        at: what `_core.Session.submit` takes; its memory lives as long as this object.

    Args:
        name: of the parameter.
        gradient: sparse COO, of any number of sparse and dense dimensions, on any device; float32,
            bfloat16 or float16.

    Raises:
        DTypeError (a TypeError): another layout.
    """

    def __init__(self, name: str, gradient: torch.Tensor) -> None:
        if gradient.layout != torch.sparse_coo:
            raise wrong_dtype(
                f"the gradient of '{name}' is {gradient.layout}; deltawire exchanges strided and "
                "sparse_coo gradients"
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
            self._values.nbytes,
            len(self._keys),
            arguments.dtype_name(self._values.dtype),
        )

    def mean(self) -> torch.Tensor:
        """The mean over all ranks, after the exchange: coalesced, with the gradient's shape, dtype
        and device. It has every row of which any rank sent an element."""
        keys, values = (np.asarray(each) for each in self.at.mean)
        rows, row_of = np.unique(keys // self._row_elements, return_inverse=True)
        filled = np.zeros((len(rows), self._row_elements), np.float32)
        filled[row_of, keys % self._row_elements] = values
        indices = np.stack(np.unravel_index(rows, self._shape[: self._sparse_dims]))
        mean = torch.sparse_coo_tensor(
            torch.from_numpy(indices.astype(np.int64)),
            torch.from_numpy(filled).to(self._dtype).view(-1, *self._shape[self._sparse_dims :]),
            self._shape,
            dtype=self._dtype,
            device="cpu",
            is_coalesced=True,
            check_invariants=False,
        )
        return mean.to(self._device)


def check_sparse(
    spec: _core.Spec, options: _core.ReducerOptions, tensors: list[tuple[str, tuple[int, ...], str]]
) -> None:
    """Raises InvalidArgumentError if the spec gives one of these tensors (name, shape, dtype), in
    any step, a codec that takes no pairs, or if one is too large for 32-bit keys."""
    for name, shape, _ in tensors:
        if math.prod(shape) > MOST_ELEMENTS:
            raise invalid(
                f"parameter '{name}' has sparse gradients and {math.prod(shape):,} elements, more "
                f"than {MOST_ELEMENTS:,}; split it, or make it with sparse=False"
            )
    step: int | None = 0
    while tensors and step is not None:
        uses = _core.explain(spec.text, options, tensors, step)
        for (name, *_), use in zip(tensors, uses, strict=True):
            if not use.takes_pairs:
                known = ", ".join(i.name for i in _core.registered_codecs() if i.takes_pairs)
                raise invalid(
                    f"parameter '{name}' has sparse gradients, which {spec.pattern}({use.codec}), "
                    f"its codec in step {step}, doesn't take; in the patterns direct and gather "
                    f"{known} do (a rule may give it one: '{name}: fastsgd'), or make its module "
                    "with sparse=False"
                )
        step = min((use.changes_at for use in uses if use.changes_at is not None), default=None)
