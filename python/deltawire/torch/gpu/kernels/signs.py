"""onebit and signsgd: a bit for each value, and means from sums in the order of their specs."""

import triton
import triton.language as tl

from deltawire.torch.gpu.kernels.part_tables import (
    COUNT,
    ELEMENTS,
    GIVEN,
    LARGEST,
    OUT,
    PAYLOAD,
    SCALAR,
    SECOND,
    SLOT,
    floats_at,
    load_part_sum,
    put_floats,
    store_residual,
    unit_of,
)


@triton.jit
def tree_sum(total, BLOCKS: tl.constexpr):
    """Sums of 16 lanes: 8 to 15 are added to 0 to 7, and the same with 4, 2 and 1."""
    t8 = tl.sum(tl.reshape(total, (BLOCKS, 2, 8)), axis=1)
    t4 = tl.sum(tl.reshape(t8, (BLOCKS, 2, 4)), axis=1)
    t2 = tl.sum(tl.reshape(t4, (BLOCKS, 2, 2)), axis=1)
    return tl.sum(t2, axis=1)


@triton.jit
def split_sides(x, SIDES: tl.constexpr):
    """What a value adds to the sum of its side in float64, and whether it is negative: of one side
    nothing is."""
    magnitude = tl.abs(x)
    if SIDES == 2:
        plus = tl.where(x < 0, 0.0, magnitude)
        return plus.to(tl.float64), tl.where(x < 0, magnitude, 0.0).to(tl.float64), x < 0
    return magnitude.to(tl.float64), tl.zeros_like(x).to(tl.float64), magnitude < 0


@triton.jit
def means_of(sums_ptr, minus_ptr, counts_ptr, n, blocks, SIDES: tl.constexpr):
    """The bits of the means of both sides, from the sums of their blocks."""
    plus = tl.full((), 0, tl.float64)
    minus = tl.full((), 0, tl.float64)
    negative = tl.full((), 0, tl.int64)
    for group in range(0, blocks, 16):
        for j in tl.static_range(16):  # so that loads don't wait for each other
            i = group + j
            plus += tl.load(sums_ptr + i, mask=i < blocks, other=0.0)
            if SIDES == 2:
                minus += tl.load(minus_ptr + i, mask=i < blocks, other=0.0)
                negative += tl.load(counts_ptr + i, mask=i < blocks, other=0)
    others = n - negative
    high = (plus / tl.maximum(others, 1).to(tl.float64)).to(tl.float32)
    low = (minus / tl.maximum(negative, 1).to(tl.float64)).to(tl.float32)
    low = tl.where(negative > 0, low.to(tl.int32, bitcast=True) | -2147483648, 0)
    return high.to(tl.int32, bitcast=True), low


@triton.jit
def negatives(x, ok, low):
    """Which values are sent as their side's mean, where that is not 0."""
    return ok & (x < 0) & ((low & 0x7FFFFFFF) != 0)


@triton.jit
def value_of(code, at, n, high, low, error_ptr):
    """Values of bits, eight to a byte. Says if no encoder sends them."""
    negative = ((code[:, None] >> tl.arange(0, 8)[None, :]) & 1) != 0
    none = (low & 0x7FFFFFFF) == 0
    bad = tl.where(negative, tl.where(none, 1, (at >= n).to(tl.int32)), 0)
    if tl.max(tl.max(bad, axis=1), axis=0) > 0:
        tl.atomic_or(error_ptr, 1, sem="relaxed")
    return tl.where(negative, low, high).to(tl.float32, bitcast=True)


@triton.jit
def sum_parts_blocks(
    table_ptr,
    chunks_ptr,
    sums_ptr,
    counts_ptr,
    KIND: tl.constexpr,
    SCALED: tl.constexpr,
    SIDES: tl.constexpr,
):
    """Of a chunk: the sum of magnitudes of each side, and how many values are negative."""
    part, c = unit_of(chunks_ptr)
    row = table_ptr + part * 8
    n = tl.minimum(tl.load(row + COUNT) - c * 65536, 65536).to(tl.int32)
    lane = tl.arange(0, 16)[None, :]
    plus = tl.zeros((1, 16), tl.float64)
    minus = tl.zeros((1, 16), tl.float64)
    found = tl.zeros((1, 16), tl.int32)
    for row0 in range(0, (n + 15) // 16, 16):
        for i in tl.static_range(16):  # so that loads don't wait for each other
            at = (row0 + i) * 16 + lane
            x = load_part_sum(row, c * 65536 + at, at < n, KIND, SCALED)
            above, below, negative = split_sides(x, SIDES)
            plus += above
            if SIDES == 2:
                minus += below
                found += negative.to(tl.int32)
    one = tl.program_id(0) + tl.arange(0, 1)
    tl.store(sums_ptr + one, tree_sum(plus, 1))
    if SIDES == 2:
        tl.store(sums_ptr + tl.num_programs(0) + one, tree_sum(minus, 1))
        tl.store(counts_ptr + one, tl.sum(found, axis=1))


@triton.jit(do_not_specialize=["chunks"])
def find_parts_means(
    table_ptr,
    plan_ptr,
    sums_ptr,
    counts_ptr,
    facts_ptr,
    chunks,
    SIDES: tl.constexpr,
    BARE: tl.constexpr,
):
    """The scalars: onebit's two means, or signsgd's scale. BARE: it is 1."""
    plan = plan_ptr + 3 * tl.program_id(0)
    part = tl.load(plan).to(tl.int64)
    first = tl.load(plan + 1)
    facts = facts_ptr + part * 4
    if BARE:
        tl.store(facts + SCALAR, 0x3F800000)
    else:
        n = tl.load(table_ptr + part * 8 + COUNT)
        plus = sums_ptr + first
        blocks = tl.load(plan + 2)
        high, low = means_of(plus, plus + chunks, counts_ptr + first, n, blocks, SIDES)
        tl.store(facts + SCALAR, high)
        if SIDES == 2:
            tl.store(facts + SECOND, low)


@triton.jit
def encode_parts(
    table_ptr,
    units_ptr,
    facts_ptr,
    out_ptr,
    KIND: tl.constexpr,
    SCALED: tl.constexpr,
    SIDES: tl.constexpr,
    BYTES: tl.constexpr,
):
    """Bits and residual; the residual is left alone if a value is refused."""
    part, block = unit_of(units_ptr)
    row = table_ptr + part * 8
    facts = facts_ptr + part * 4
    n = tl.load(row + COUNT)
    byte = block * BYTES + tl.arange(0, BYTES)
    j = tl.arange(0, 8)[None, :]
    at = byte[:, None] * 8 + j
    x = load_part_sum(row, at, at < n, KIND, SCALED)
    high = tl.load(facts + SCALAR)
    low = tl.load(facts + SECOND) if SIDES == 2 else high ^ -2147483648
    negative = negatives(x, at < n, low)
    bits = tl.sum(negative.to(tl.int32) << j, axis=1)
    tl.store(out_ptr + tl.load(row + OUT) + byte, bits.to(tl.uint8), mask=byte * 8 < n)
    value = tl.where(negative, low, high).to(tl.float32, bitcast=True)
    finite = tl.load(facts + LARGEST) < 0x7F800000
    store_residual(row, at, at < tl.where(finite, n, 0), x - value)


@triton.jit(do_not_specialize=["errors_ptr"])
def decode_parts(
    table_ptr,
    units_ptr,
    data_ptr,
    errors_ptr,
    scale,
    ADD: tl.constexpr,
    SIDES: tl.constexpr,
    BYTES: tl.constexpr,
):
    """Values, or sums with them."""
    part, block = unit_of(units_ptr)
    row = table_ptr + part * 4
    n = tl.load(row + ELEMENTS)
    given = tl.load(row + GIVEN)
    high = given.to(tl.int32)
    low = (given >> 32).to(tl.int32) if SIDES == 2 else high ^ -2147483648
    byte = block * BYTES + tl.arange(0, BYTES)
    at = byte[:, None] * 8 + tl.arange(0, 8)[None, :]
    data = data_ptr + tl.load(row + PAYLOAD)
    code = tl.load(data + byte, mask=byte * 8 < n, other=0).to(tl.int32)
    value = value_of(code, at, n, high, low, errors_ptr + part) * scale
    put_floats(floats_at(tl.load(row + SLOT)), at, at < n, value, ADD)
