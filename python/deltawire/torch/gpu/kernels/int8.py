"""int8: one byte a value. Guesses may be approximate; what decides is exact in float32."""

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
    SLOT,
    floats_at,
    load_part_sum,
    put_floats,
    store_residual,
    unit_of,
)


@triton.jit
def smallest_steps(most, LEVELS: tl.constexpr, GREATEST: tl.constexpr):
    """For each of several M the bits of the smallest float32 with LEVELS * step >= M, at most
    GREATEST.

    It is among the neighbours of a guess, which are compared in float64, exactly.
    """
    largest = most.to(tl.float32, bitcast=True)
    guess = (largest * (1.0 / LEVELS)).to(tl.int32, bitcast=True)
    near = guess[:, None] - 3 + tl.arange(0, 8)[None, :]
    near = tl.minimum(tl.maximum(near, 0), GREATEST)
    product = near.to(tl.float32, bitcast=True).to(tl.float64) * LEVELS
    fits = (product >= largest[:, None].to(tl.float64)) | (near == GREATEST)
    return tl.min(tl.where(fits, near, 0x7FFFFFFF), axis=1)


@triton.jit
def smallest_step(most):
    """That of int8, for one M."""
    return tl.min(smallest_steps(tl.zeros((1,), tl.int32) + most, 127, 0x7C010203), axis=0)


@triton.jit
def nearest_code(x, bits):
    """x / step to the nearest whole number, ties to even, as float32; bits are the step's."""
    step = bits.to(tl.float32, bitcast=True)
    lift = tl.where(bits < 0x20000000, 18446744073709551616.0, 1.0)  # 2^64: 1 / step stays finite
    divisor = step * lift
    inverse = 1.0 / tl.where(bits == 0, 1.0, divisor)  # may be approximate
    high = (divisor.to(tl.int32, bitcast=True) & 0x7FFFF000).to(tl.float32, bitcast=True)
    low = divisor - high
    y = x * lift
    code = (y * inverse + 12582912.0) - 12582912.0  # to the nearest whole number, or one next to it
    rest = (y - code * high) - code * low  # exact: 12 bits times 7, differences below a step
    odd = (code.to(tl.int32) & 1) != 0
    up = (rest + rest > divisor) | ((rest + rest == divisor) & odd)
    down = (rest + rest < -divisor) | ((rest + rest == -divisor) & odd)
    return tl.where(x == 0, 0.0, code + up.to(tl.float32) - down.to(tl.float32))


@triton.jit
def encode_parts(
    table_ptr,
    units_ptr,
    facts_ptr,
    out_ptr,
    KIND: tl.constexpr,
    SCALED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Codes and residual; nothing is written if a value is refused."""
    part, block = unit_of(units_ptr)
    row = table_ptr + part * 8
    most = tl.load(facts_ptr + part * 4 + LARGEST)
    bits = smallest_step(most)
    tl.store(facts_ptr + part * 4 + SCALAR, bits)
    at = block * BLOCK + tl.arange(0, BLOCK)
    ok = at < tl.where(most < 0x7F800000, tl.load(row + COUNT), 0)
    x = load_part_sum(row, at, ok, KIND, SCALED)
    code = nearest_code(x, bits)
    tl.store(out_ptr + tl.load(row + OUT) + at, code.to(tl.int8), mask=ok)
    value = tl.where(code == 0.0, 0.0, code * bits.to(tl.float32, bitcast=True))
    store_residual(row, at, ok, x - value)


@triton.jit(do_not_specialize=["errors_ptr"])
def decode_parts(
    table_ptr, units_ptr, data_ptr, errors_ptr, scale, ADD: tl.constexpr, BLOCK: tl.constexpr
):
    """Values, or sums with them."""
    part, block = unit_of(units_ptr)
    row = table_ptr + part * 4
    at = block * BLOCK + tl.arange(0, BLOCK)
    ok = at < tl.load(row + ELEMENTS)
    bits = tl.load(row + GIVEN).to(tl.int32)
    code = tl.load(data_ptr + tl.load(row + PAYLOAD) + at, mask=ok, other=0).to(tl.int32)
    bad = (code == -128) | tl.where(bits == 0, code != 0, False)
    if tl.max(bad.to(tl.int32), axis=0) > 0:
        tl.atomic_or(errors_ptr + part, 1, sem="relaxed")
    value = code.to(tl.float32) * bits.to(tl.float32, bitcast=True) * scale
    put_floats(floats_at(tl.load(row + SLOT)), at, ok, value, ADD)
