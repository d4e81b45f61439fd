"""fp32, bf16 and fp16: each value as a float of its own."""

import triton
import triton.language as tl

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
def bf16_of(x):
    """The upper half of the nearest bfloat16, ties to even; of a NaN the quiet one of its sign."""
    bits = x.to(tl.int32, bitcast=True)
    magnitude = bits & 0x7FFFFFFF
    rounded = (magnitude + 0x7FFF + ((magnitude >> 16) & 1)) >> 16
    return tl.where(magnitude > 0x7F800000, 0x7FC0, rounded) | ((bits >> 16) & 0x8000)


@triton.jit
def fp16_of(x):
    """The nearest binary16, ties to even, at most 65,504."""
    bits = x.to(tl.int32, bitcast=True)
    magnitude = bits & 0x7FFFFFFF
    normal = (magnitude - 0x38000000 + 0xFFF + ((magnitude >> 13) & 1)) >> 13
    # The last bit of this sum is the smallest binary16, 2^-24.
    small = (magnitude.to(tl.float32, bitcast=True) + 0.5).to(tl.int32, bitcast=True) - 0x3F000000
    rounded = tl.where(magnitude >= 0x38800000, normal, small)
    return tl.minimum(rounded, 0x7BFF) | ((bits >> 16) & 0x8000)


@triton.jit
def fp16_value(code):
    """A binary16 number in float32, exactly."""
    magnitude = code & 0x7FFF
    normal = ((magnitude << 13) + 0x38000000).to(tl.float32, bitcast=True)
    small = magnitude.to(tl.float32) * 5.9604644775390625e-08  # 2^-24
    value = tl.where(magnitude >= 0x0400, normal, small).to(tl.int32, bitcast=True)
    return (value | ((code & 0x8000) << 16)).to(tl.float32, bitcast=True)


@triton.jit
def code_of(x, CODE: tl.constexpr):
    """A value's code, and what the code leaves of it."""
    if CODE == "fp32":
        code = x.to(tl.int32, bitcast=True)
        left = tl.zeros_like(x)
    elif CODE == "bf16":
        code = bf16_of(x)
        left = x - (code << 16).to(tl.float32, bitcast=True)
        left = tl.where((code & 0x7F80) == 0x7F80, 0.0, left)
    else:
        code = fp16_of(x)
        left = x - fp16_value(code)
    return code, left


@triton.jit
def number_of(code, error_ptr, CODE: tl.constexpr):
    """A code's number. Says if fp16 has one that is not finite, which no encoder sends."""
    if CODE == "fp32":
        value = code.to(tl.float32, bitcast=True)
    elif CODE == "bf16":
        value = (code << 16).to(tl.float32, bitcast=True)
    else:
        value = fp16_value(code & 0xFFFF)
        if tl.max(((code & 0x7C00) == 0x7C00).to(tl.int32), axis=0) > 0:
            tl.atomic_or(error_ptr, 1, sem="relaxed")
    return value


@triton.jit
def encode_parts(
    table_ptr,
    units_ptr,
    facts_ptr,
    out_ptr,
    KIND: tl.constexpr,
    CODE: tl.constexpr,
    SCALED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Codes and residual; fp16's is left alone if a value is refused. `out_ptr` counts codes."""
    log_bytes: tl.constexpr = 2 if CODE == "fp32" else 1
    part, block = unit_of(units_ptr)
    row = table_ptr + part * 8
    at = block * BLOCK + tl.arange(0, BLOCK)
    ok = at < tl.load(row + COUNT)
    code, left = code_of(load_part_sum(row, at, ok, KIND, SCALED), CODE)
    out = out_ptr + (tl.load(row + OUT) >> log_bytes)
    tl.store(out + at, code.to(out_ptr.dtype.element_ty), mask=ok)
    if CODE == "fp16":
        ok = ok & (tl.load(facts_ptr + part * 4 + LARGEST) < 0x7F800000)
    store_residual(row, at, ok, left)


@triton.jit(do_not_specialize=["errors_ptr"])
def decode_parts(
    table_ptr,
    units_ptr,
    data_ptr,
    errors_ptr,
    scale,
    ADD: tl.constexpr,
    SCALED: tl.constexpr,
    CODE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Values, or sums with them; their bits as they are without a scale. `data_ptr` counts
    codes."""
    log_bytes: tl.constexpr = 2 if CODE == "fp32" else 1
    part, block = unit_of(units_ptr)
    row = table_ptr + part * 4
    at = block * BLOCK + tl.arange(0, BLOCK)
    ok = at < tl.load(row + ELEMENTS)
    data = data_ptr + (tl.load(row + PAYLOAD) >> log_bytes)
    code = tl.load(data + at, mask=ok, other=0).to(tl.int32)
    value = number_of(code, errors_ptr + part, CODE)
    if SCALED:
        value = value * scale
    put_floats(floats_at(tl.load(row + SLOT)), at, ok, value, ADD)
