"""blockint and fp8: a step or a power of two for each block of elements, then a code each."""

import triton
import triton.language as tl

from deltawire.torch.gpu.kernels.int8 import nearest_code
from deltawire.torch.gpu.kernels.magnitude import load_sum


@triton.jit
def places_of(n, BLOCK: tl.constexpr, ROWS: tl.constexpr, HEAD: tl.constexpr, BITS: tl.constexpr):
    """Where the elements, heads and codes of a program's rows begin; a row is a block."""
    in_chunk: tl.constexpr = 65536 // BLOCK
    block = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    chunk = block // in_chunk
    inside = block - chunk * in_chunk
    count = tl.maximum(tl.minimum(n - chunk * 65536, 65536), 0)
    begin = chunk * (in_chunk * HEAD + 65536 * BITS // 8)
    codes = begin + (count + BLOCK - 1) // BLOCK * HEAD + inside * (BLOCK * BITS // 8)
    return block * BLOCK, begin + inside * HEAD, codes


@triton.jit
def fp8_scale(most, E4M3: tl.constexpr):
    """A block's byte s, of 2^(s - 127)."""
    exponent = 8 if E4M3 else 15
    field = (most + 0x1FFFFF) >> 23
    return tl.minimum(tl.maximum(field - exponent, 0), 246 if E4M3 else 239)


@triton.jit
def power_of_two(s):
    """2^(s - 127), for s of 0 to 254."""
    return tl.where(s == 0, 0x00400000, s << 23).to(tl.float32, bitcast=True)


@triton.jit
def fp8_code(y, E4M3: tl.constexpr):
    """The code of the nearest number, ties to even, at most the largest."""
    mantissa: tl.constexpr = 3 if E4M3 else 2
    bias: tl.constexpr = 120 if E4M3 else 112  # 127 less the format's
    ruler: tl.constexpr = (141 if E4M3 else 134) << 23
    dropped: tl.constexpr = 23 - mantissa
    bits = y.to(tl.int32, bitcast=True)
    magnitude = bits & 0x7FFFFFFF
    even = (magnitude >> dropped) & 1
    normal = (magnitude - (bias << 23) + ((1 << (dropped - 1)) - 1) + even) >> dropped
    # The last bit of this sum is the format's smallest number.
    least = tl.full((), ruler, tl.int32).to(tl.float32, bitcast=True)
    total = magnitude.to(tl.float32, bitcast=True) + least
    small = total.to(tl.int32, bitcast=True) - ruler
    code = tl.where((magnitude >> 23) > bias, normal, small)
    return tl.minimum(code, 0x7E if E4M3 else 0x7B) | (((bits >> 31) & 1) << 7)


@triton.jit
def fp8_number(code, E4M3: tl.constexpr):
    """A code's number in float32."""
    mantissa: tl.constexpr = 3 if E4M3 else 2
    bias: tl.constexpr = 120 if E4M3 else 112
    least: tl.constexpr = 0.001953125 if E4M3 else 1.52587890625e-05
    magnitude = code & 0x7F
    normal = ((magnitude << (23 - mantissa)) + (bias << 23)).to(tl.float32, bitcast=True)
    number = tl.where((magnitude >> mantissa) > 0, normal, magnitude.to(tl.float32) * least)
    bits = number.to(tl.int32, bitcast=True) | ((code >> 7) << 31)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def smallest_steps(most, LEVELS: tl.constexpr, GREATEST: tl.constexpr):
    """As int8's smallest step, for each block."""
    largest = most.to(tl.float32, bitcast=True)
    guess = (largest * (1.0 / LEVELS)).to(tl.int32, bitcast=True)
    near = guess[:, None] - 3 + tl.arange(0, 8)[None, :]
    near = tl.minimum(tl.maximum(near, 0), GREATEST)
    product = near.to(tl.float32, bitcast=True).to(tl.float64) * LEVELS
    fits = (product >= largest[:, None].to(tl.float64)) | (near == GREATEST)
    return tl.min(tl.where(fits, near, 0x7FFFFFFF), axis=1)


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


@triton.jit(do_not_specialize=["n"])
def encode(
    x_ptr,
    r_ptr,
    left_ptr,
    status_ptr,
    out_ptr,
    n,
    HAS_R: tl.constexpr,
    KIND: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Heads, codes and residual; the residual is left alone if a value is refused."""
    HEAD: tl.constexpr = 1 if KIND == "e4m3" or KIND == "e5m2" else 4
    BITS: tl.constexpr = 4 if KIND == "int4" else 8
    start, head, codes = places_of(n, BLOCK, ROWS, HEAD, BITS)
    j = tl.arange(0, BLOCK)[None, :]
    at = start[:, None] + j
    ok = at < n
    x = tl.where(ok, load_sum(x_ptr, r_ptr, at, ok, HAS_R), 0.0)
    most = tl.max(x.to(tl.int32, bitcast=True) & 0x7FFFFFFF, axis=1)
    if HEAD == 1:
        step = fp8_scale(most, KIND == "e4m3")
        code = fp8_code(x * power_of_two(254 - step)[:, None], KIND == "e4m3")
        value = fp8_number(code, KIND == "e4m3") * power_of_two(step)[:, None]
    else:
        LEVELS: tl.constexpr = 7 if KIND == "int4" else 127
        GREATEST: tl.constexpr = 0x7E124924 if KIND == "int4" else 0x7C010203
        step = smallest_steps(most, LEVELS, GREATEST)
        number = nearest_code(x, step[:, None])
        code = number.to(tl.int32)
        value = code.to(tl.float32) * step[:, None].to(tl.float32, bitcast=True)
    for byte in tl.static_range(HEAD):
        part = ((step >> (8 * byte)) & 0xFF).to(tl.uint8)
        tl.store(out_ptr + head + byte, part, mask=start < n)
    store_codes(out_ptr, codes, code, tl.maximum(n - start, 0), BLOCK, BITS)
    if HAS_R:
        finite = tl.load(status_ptr) < 0x7F800000
        tl.store(left_ptr + at, x - value, mask=at < tl.where(finite, n, 0))


@triton.jit(do_not_specialize=["n"])
def decode(
    data_ptr,
    out_ptr,
    error_ptr,
    scale,
    n,
    ADD: tl.constexpr,
    KIND: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Values, or sums with them."""
    HEAD: tl.constexpr = 1 if KIND == "e4m3" or KIND == "e5m2" else 4
    BITS: tl.constexpr = 4 if KIND == "int4" else 8
    start, head, codes = places_of(n, BLOCK, ROWS, HEAD, BITS)
    j = tl.arange(0, BLOCK)[None, :]
    at = start[:, None] + j
    ok = at < n
    step = tl.zeros((ROWS,), tl.int32)
    for byte in tl.static_range(HEAD):
        part = tl.load(data_ptr + head + byte, mask=start < n, other=0).to(tl.int32)
        step |= part << (8 * byte)
    code = tl.load(data_ptr + codes[:, None] + j * BITS // 8, mask=ok, other=0).to(tl.int32)
    if HEAD == 1:
        largest: tl.constexpr = 0x7E if KIND == "e4m3" else 0x7B
        bad = ((code & 0x7F) > largest) | (step > (246 if KIND == "e4m3" else 239))[:, None]
        value = fp8_number(code, KIND == "e4m3") * power_of_two(step)[:, None]
    else:
        GREATEST: tl.constexpr = 0x7E124924 if KIND == "int4" else 0x7C010203
        if KIND == "int4":
            unused = ok & (at + 1 == n) & (j % 2 == 0) & (code > 15)
            code = ((code >> (4 * (j % 2))) << 28) >> 28
            bad = (code == -8) | unused
        else:
            code = (code << 24) >> 24
            bad = code == -128
        bad = bad | (step < 0)[:, None] | (step > GREATEST)[:, None]
        bad = bad | ((step == 0)[:, None] & (code != 0))
        value = code.to(tl.float32) * step[:, None].to(tl.float32, bitcast=True)
    if tl.max(tl.max((bad & ok).to(tl.int32), axis=1), axis=0) > 0:
        tl.atomic_or(error_ptr, 1, sem="relaxed")
    value = value * scale
    if ADD:
        value = tl.load(out_ptr + at, mask=ok, other=0.0) + value
    tl.store(out_ptr + at, value, mask=ok)
