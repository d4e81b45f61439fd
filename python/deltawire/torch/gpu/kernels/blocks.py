"""blockint, fp8 and fp4: a step or a power of two for each block of elements, then a code each."""

import triton
import triton.language as tl

from deltawire.torch.gpu.kernels.int8 import nearest_code, smallest_steps
from deltawire.torch.gpu.kernels.part_tables import (
    COUNT,
    ELEMENTS,
    LARGEST,
    OUT,
    PAYLOAD,
    SLOT,
    floats_at,
    load_part_sum,
    put_floats,
    store_residual,
    unit_of,
)


@triton.jit
def minifloat_scale(most, CODE: tl.constexpr):
    """A block's byte s: the least with most <= R * 2^(s - 127): R is 1.75 * 2^exponent, or 24."""
    exponent = 8 if CODE == "e4m3" else 15 if CODE == "e5m2" else 2 if CODE == "e2m1" else 4
    below = 0x3FFFFF if CODE == "e3m0" else 0x1FFFFF
    field = (most + below) >> 23
    return tl.minimum(tl.maximum(field - exponent, 0), 254 - exponent)


@triton.jit
def power_of_two(s):
    """2^(s - 127), for s of 0 to 254."""
    return tl.where(s == 0, 0x00400000, s << 23).to(tl.float32, bitcast=True)


@triton.jit
def minifloat_code(y, CODE: tl.constexpr):
    """The code of the nearest number, ties to even, at most the largest."""
    mantissa: tl.constexpr = (
        3 if CODE == "e4m3" else 2 if CODE == "e5m2" else 1 if CODE == "e2m1" else 0
    )
    bias: tl.constexpr = (  # float32's less the format's
        120 if CODE == "e4m3" else 112 if CODE == "e5m2" else 126 if CODE == "e2m1" else 124
    )
    sign: tl.constexpr = 3 if CODE == "e2m1" or CODE == "e3m0" else 7
    dropped: tl.constexpr = 23 - mantissa
    ruler: tl.constexpr = (bias + 1 + dropped) << 23
    bits = y.to(tl.int32, bitcast=True)
    magnitude = bits & 0x7FFFFFFF
    even = (magnitude >> dropped) & 1
    normal = (magnitude - (bias << 23) + ((1 << (dropped - 1)) - 1) + even) >> dropped
    # The last bit of this sum is the format's smallest number.
    least = tl.full((), ruler, tl.int32).to(tl.float32, bitcast=True)
    total = magnitude.to(tl.float32, bitcast=True) + least
    small = total.to(tl.int32, bitcast=True) - ruler
    code = tl.where((magnitude >> 23) > bias, normal, small)
    greatest = 0x7E if CODE == "e4m3" else 0x7B if CODE == "e5m2" else 7
    return tl.minimum(code, greatest) | (((bits >> 31) & 1) << sign)


@triton.jit
def minifloat_number(code, CODE: tl.constexpr):
    """A code's number in float32."""
    mantissa: tl.constexpr = (
        3 if CODE == "e4m3" else 2 if CODE == "e5m2" else 1 if CODE == "e2m1" else 0
    )
    bias: tl.constexpr = (  # float32's less the format's
        120 if CODE == "e4m3" else 112 if CODE == "e5m2" else 126 if CODE == "e2m1" else 124
    )
    sign: tl.constexpr = 3 if CODE == "e2m1" or CODE == "e3m0" else 7
    least = tl.full((), (bias + 1 - mantissa) << 23, tl.int32).to(tl.float32, bitcast=True)
    magnitude = code & ((1 << sign) - 1)
    normal = ((magnitude << (23 - mantissa)) + (bias << 23)).to(tl.float32, bitcast=True)
    number = tl.where((magnitude >> mantissa) > 0, normal, magnitude.to(tl.float32) * least)
    bits = number.to(tl.int32, bitcast=True) | ((code >> sign) << 31)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def invalid(code, s, CODE: tl.constexpr):
    """Whether a code is no finite number, or s is above its format's largest."""
    largest = 0x7E if CODE == "e4m3" else 0x7B if CODE == "e5m2" else 0x7F
    exponent = 8 if CODE == "e4m3" else 15 if CODE == "e5m2" else 2 if CODE == "e2m1" else 4
    return ((code & 0x7F) > largest) | (s > 254 - exponent)


@triton.jit
def places_of(
    unit, n, BLOCK: tl.constexpr, ROWS: tl.constexpr, HEAD: tl.constexpr, BITS: tl.constexpr
):
    """Where the elements, heads and codes of a unit's rows begin; a row is a block."""
    in_chunk: tl.constexpr = 65536 // BLOCK
    block = unit.to(tl.int64) * ROWS + tl.arange(0, ROWS)
    chunk = block // in_chunk
    inside = block - chunk * in_chunk
    count = tl.maximum(tl.minimum(n - chunk * 65536, 65536), 0)
    begin = chunk * (in_chunk * HEAD + 65536 * BITS // 8)
    codes = begin + (count + BLOCK - 1) // BLOCK * HEAD + inside * (BLOCK * BITS // 8)
    return block * BLOCK, begin + inside * HEAD, codes


@triton.jit
def store_codes(out_ptr, codes, code, end, BLOCK: tl.constexpr, BITS: tl.constexpr):
    """A row's codes, two to a byte if they have 4 bits. end: elements that the row has."""
    if BITS == 8:
        j = tl.arange(0, BLOCK)[None, :]
        tl.store(out_ptr + codes[:, None] + j, code.to(tl.uint8), mask=j < end[:, None])
    else:
        pairs = tl.reshape(code & 0xF, (code.shape[0], BLOCK // 2, 2))
        low, high = tl.split(pairs)
        j = tl.arange(0, BLOCK // 2)[None, :]
        both = (low | (high << 4)).to(tl.uint8)
        tl.store(out_ptr + codes[:, None] + j, both, mask=2 * j < end[:, None])


@triton.jit
def codes_of(x, CODE: tl.constexpr, HEAD: tl.constexpr):
    """Of rows of values: the steps, the codes, and the numbers that these stand for."""
    most = tl.max(x.to(tl.int32, bitcast=True) & 0x7FFFFFFF, axis=1)
    if HEAD == 1:
        step = minifloat_scale(most, CODE)
        code = minifloat_code(x * power_of_two(254 - step)[:, None], CODE)
        value = minifloat_number(code, CODE) * power_of_two(step)[:, None]
    else:
        LEVELS: tl.constexpr = 7 if CODE == "int4" else 127
        GREATEST: tl.constexpr = 0x7E124924 if CODE == "int4" else 0x7C010203
        step = smallest_steps(most, LEVELS, GREATEST)
        code = nearest_code(x, step[:, None]).to(tl.int32)
        value = code.to(tl.float32) * step[:, None].to(tl.float32, bitcast=True)
    return step, code, value


@triton.jit
def encode_parts(
    table_ptr,
    units_ptr,
    facts_ptr,
    out_ptr,
    KIND: tl.constexpr,
    SCALED: tl.constexpr,
    CODE: tl.constexpr,
    HEAD: tl.constexpr,
    BITS: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Heads, codes and residual; the residual is left alone if a value is refused."""
    part, unit = unit_of(units_ptr)
    row = table_ptr + part * 8
    n = tl.load(row + COUNT)
    start, head, codes = places_of(unit, n, BLOCK, ROWS, HEAD, BITS)
    at = start[:, None] + tl.arange(0, BLOCK)[None, :]
    ok = at < n
    x = tl.where(ok, load_part_sum(row, at, ok, KIND, SCALED), 0.0)
    step, code, value = codes_of(x, CODE, HEAD)
    out = out_ptr + tl.load(row + OUT)
    for byte in tl.static_range(HEAD):
        tl.store(out + head + byte, ((step >> (8 * byte)) & 0xFF).to(tl.uint8), mask=start < n)
    store_codes(out, codes, code, tl.maximum(n - start, 0), BLOCK, BITS)
    finite = tl.load(facts_ptr + part * 4 + LARGEST) < 0x7F800000
    store_residual(row, at, at < tl.where(finite, n, 0), x - value)


@triton.jit(do_not_specialize=["errors_ptr"])
def decode_parts(
    table_ptr,
    units_ptr,
    data_ptr,
    errors_ptr,
    scale,
    ADD: tl.constexpr,
    CODE: tl.constexpr,
    HEAD: tl.constexpr,
    BITS: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Values, or sums with them. Says if no encoder writes them."""
    part, unit = unit_of(units_ptr)
    row = table_ptr + part * 4
    n = tl.load(row + ELEMENTS)
    data = data_ptr + tl.load(row + PAYLOAD)
    start, head, codes = places_of(unit, n, BLOCK, ROWS, HEAD, BITS)
    j = tl.arange(0, BLOCK)[None, :]
    at = start[:, None] + j
    ok = at < n
    step = tl.zeros((ROWS,), tl.int32)
    for byte in tl.static_range(HEAD):
        of_step = tl.load(data + head + byte, mask=start < n, other=0).to(tl.int32)
        step |= of_step << (8 * byte)
    code = tl.load(data + codes[:, None] + j * BITS // 8, mask=ok, other=0).to(tl.int32)
    bad = ok & False
    if BITS == 4:
        bad = ok & (at + 1 == n) & (j % 2 == 0) & (code > 15)  # an unused upper half
        code = (code >> (4 * (j % 2))) & 0xF
    if HEAD == 1:
        bad = bad | invalid(code, step[:, None], CODE)
        value = minifloat_number(code, CODE) * power_of_two(step)[:, None]
    else:
        GREATEST: tl.constexpr = 0x7E124924 if CODE == "int4" else 0x7C010203
        code = (code << (32 - BITS)) >> (32 - BITS)
        bad = bad | (code == -(1 << (BITS - 1)))
        bad = bad | (step < 0)[:, None] | (step > GREATEST)[:, None]
        bad = bad | ((step == 0)[:, None] & (code != 0))
        value = code.to(tl.float32) * step[:, None].to(tl.float32, bitcast=True)
    if tl.max(tl.max((bad & ok).to(tl.int32), axis=1), axis=0) > 0:
        tl.atomic_or(errors_ptr + part, 1, sem="relaxed")
    put_floats(floats_at(tl.load(row + SLOT)), at, ok, value * scale, ADD)
