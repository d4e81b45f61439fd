"""onebit and signsgd: a bit for each value, and means from sums in the order of their specs."""

import triton
import triton.language as tl

from deltawire.torch.gpu.kernels.magnitude import load_sum


@triton.jit
def tree_sum(total, BLOCKS: tl.constexpr):
    """Sums of 16 lanes: 8 to 15 are added to 0 to 7, and the same with 4, 2 and 1."""
    t8 = tl.sum(tl.reshape(total, (BLOCKS, 2, 8)), axis=1)
    t4 = tl.sum(tl.reshape(t8, (BLOCKS, 2, 4)), axis=1)
    t2 = tl.sum(tl.reshape(t4, (BLOCKS, 2, 2)), axis=1)
    return tl.sum(t2, axis=1)


@triton.jit(do_not_specialize=["n", "blocks"])
def sum_blocks(
    x_ptr,
    r_ptr,
    status_ptr,
    sums_ptr,
    counts_ptr,
    n,
    blocks,
    HAS_R: tl.constexpr,
    SIDES: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    """Of blocks of 65,536: sums of magnitudes of each side, how many are negative; the largest."""
    block = tl.program_id(0).to(tl.int64) * BLOCKS + tl.arange(0, BLOCKS)
    lane = block[:, None] * 65536 + tl.arange(0, 16)[None, :]
    plus = tl.zeros((BLOCKS, 16), tl.float64)
    minus = tl.zeros((BLOCKS, 16), tl.float64)
    found = tl.zeros((BLOCKS, 16), tl.int32)
    most = tl.zeros((BLOCKS, 16), tl.int32)
    left = n - tl.program_id(0).to(tl.int64) * (BLOCKS * 65536)
    rows = (tl.minimum(left, 65536) + 15) // 16
    for row0 in range(0, rows, 16):
        for row in tl.static_range(16):  # so that loads don't wait for each other
            at = lane + (row0 + row) * 16
            ok = (at < n) & (row0 + row < 4096)
            x = load_sum(x_ptr, r_ptr, at, ok, HAS_R)
            magnitude = tl.abs(x)
            most = tl.maximum(most, magnitude.to(tl.int32, bitcast=True))
            if SIDES == 2:
                minus += tl.where(x < 0, magnitude, 0.0).to(tl.float64)
                magnitude = tl.where(x < 0, 0.0, magnitude)
                found += (x < 0).to(tl.int32)
            plus += magnitude.to(tl.float64)
    ok = block < blocks
    tl.store(sums_ptr + block, tree_sum(plus, BLOCKS), mask=ok)
    if SIDES == 2:
        tl.store(sums_ptr + blocks + block, tree_sum(minus, BLOCKS), mask=ok)
        tl.store(counts_ptr + block, tl.sum(found, axis=1), mask=ok)
    tl.atomic_max(status_ptr, tl.max(tl.max(most, axis=1), axis=0), sem="relaxed")


@triton.jit(do_not_specialize=["n", "blocks"])
def find_means(sums_ptr, counts_ptr, status_ptr, n, blocks, SIDES: tl.constexpr):
    """The scalars: onebit's two means, or signsgd's scale."""
    plus = tl.full((), 0, tl.float64)
    minus = tl.full((), 0, tl.float64)
    negative = tl.full((), 0, tl.int64)
    for group in range(0, blocks, 16):
        for j in tl.static_range(16):  # so that loads don't wait for each other
            i = group + j
            plus += tl.load(sums_ptr + i, mask=i < blocks, other=0.0)
            if SIDES == 2:
                minus += tl.load(sums_ptr + blocks + i, mask=i < blocks, other=0.0)
                negative += tl.load(counts_ptr + i, mask=i < blocks, other=0)
    others = n - negative
    high = (plus / tl.maximum(others, 1).to(tl.float64)).to(tl.float32)
    tl.store(status_ptr + 1, high.to(tl.int32, bitcast=True))
    if SIDES == 2:
        low = (minus / tl.maximum(negative, 1).to(tl.float64)).to(tl.float32)
        low = tl.where(negative > 0, low.to(tl.int32, bitcast=True) | -2147483648, 0)
        tl.store(status_ptr + 2, low)


@triton.jit(do_not_specialize=["n"])
def encode(
    x_ptr,
    r_ptr,
    left_ptr,
    status_ptr,
    out_ptr,
    n,
    HAS_R: tl.constexpr,
    SIDES: tl.constexpr,
    BYTES: tl.constexpr,
):
    """Bits and residual; the residual is left alone if a value is refused."""
    byte = tl.program_id(0).to(tl.int64) * BYTES + tl.arange(0, BYTES)
    j = tl.arange(0, 8)[None, :]
    at = byte[:, None] * 8 + j
    x = load_sum(x_ptr, r_ptr, at, at < n, HAS_R)
    high = tl.load(status_ptr + 1)
    low = tl.load(status_ptr + 2) if SIDES == 2 else high ^ -2147483648
    negative = (at < n) & (x < 0) & ((low & 0x7FFFFFFF) != 0)
    bits = tl.sum(negative.to(tl.int32) << j, axis=1)
    tl.store(out_ptr + byte, bits.to(tl.uint8), mask=byte * 8 < n)
    if HAS_R:
        value = tl.where(negative, low, high).to(tl.float32, bitcast=True)
        finite = tl.load(status_ptr) < 0x7F800000
        tl.store(left_ptr + at, x - value, mask=at < tl.where(finite, n, 0))


@triton.jit(do_not_specialize=["high", "low", "n"])
def decode(
    data_ptr,
    out_ptr,
    error_ptr,
    high,
    low,
    scale,
    n,
    ADD: tl.constexpr,
    BYTES: tl.constexpr,
):
    """Values, or sums with them. high and low are the bits of the values of both bits."""
    byte = tl.program_id(0).to(tl.int64) * BYTES + tl.arange(0, BYTES)
    j = tl.arange(0, 8)[None, :]
    at = byte[:, None] * 8 + j
    code = tl.load(data_ptr + byte, mask=byte * 8 < n, other=0).to(tl.int32)
    negative = ((code[:, None] >> j) & 1) != 0
    none = (low.to(tl.int32) & 0x7FFFFFFF) == 0
    bad = tl.where(negative, tl.where(none, 1, (at >= n).to(tl.int32)), 0)
    if tl.max(tl.max(bad, axis=1), axis=0) > 0:
        tl.atomic_or(error_ptr, 1, sem="relaxed")
    value = tl.where(negative, low.to(tl.int32), high.to(tl.int32)).to(tl.float32, bitcast=True)
    value = value * scale
    if ADD:
        value = tl.load(out_ptr + at, mask=at < n, other=0.0) + value
    tl.store(out_ptr + at, value, mask=at < n)
