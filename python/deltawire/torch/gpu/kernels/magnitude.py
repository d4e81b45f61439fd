"""The largest magnitude of a part, which most codecs begin with."""

import torch
import triton
import triton.language as tl

from deltawire.torch.gpu.kernels.launching import BLOCK, INTERPRETED, blocks, launch

TILES = 1 if INTERPRETED else 8


@triton.jit
def load_sum(x_ptr, r_ptr, at, ok, HAS_R: tl.constexpr):
    """Input plus residual in float32."""
    x = tl.load(x_ptr + at, mask=ok, other=0.0).to(tl.float32)
    if HAS_R:
        x = x + tl.load(r_ptr + at, mask=ok, other=0.0)
    return x


@triton.jit(do_not_specialize=["n"])
def largest_magnitude(
    x_ptr, r_ptr, most_ptr, n, HAS_R: tl.constexpr, TILES: tl.constexpr, BLOCK: tl.constexpr
):
    """The bits of max |x|; NaN and Inf give at least 0x7F800000."""
    most = tl.zeros((BLOCK,), tl.int32)
    first = tl.program_id(0).to(tl.int64) * (TILES * BLOCK)
    for tile in tl.static_range(TILES):
        at = first + tile * BLOCK + tl.arange(0, BLOCK)
        x = load_sum(x_ptr, r_ptr, at, at < n, HAS_R)
        most = tl.maximum(most, x.to(tl.int32, bitcast=True) & 0x7FFFFFFF)
    tl.atomic_max(most_ptr, tl.max(most, axis=0), sem="relaxed")


def find_largest(
    values: torch.Tensor, residual: torch.Tensor | None, status: torch.Tensor
) -> torch.Tensor:
    """Puts the bits of the largest magnitude into status[0]; gives kernels a residual."""
    r = values if residual is None else residual
    n = values.numel()
    has = residual is not None
    programs = blocks(n, TILES * BLOCK)
    launch(largest_magnitude, programs, values, r, status, n, HAS_R=has, TILES=TILES, BLOCK=BLOCK)
    return r
