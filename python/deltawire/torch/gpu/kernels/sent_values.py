"""What topk and sbc send besides positions, of many parts in one launch: a value each, or one mean
for all.

Tensors that are slices of others aren't specialized: each alignment would be compiled anew.
"""

import triton
import triton.language as tl

from deltawire.torch.gpu.kernels.candidates import FIRST, SUMS, K
from deltawire.torch.gpu.kernels.int8 import nearest_code, smallest_step
from deltawire.torch.gpu.kernels.part_tables import (
    ELEMENTS,
    GIVEN,
    LARGEST,
    SCALAR,
    SLOT,
    floats_at,
    put_floats,
    store_residual,
    unit_of,
)
from deltawire.torch.gpu.kernels.positions import load_position, sent_of, sent_of_chunk


@triton.jit
def nearest_bf16(x):
    """The upper half of the nearest bfloat16, ties to even, but never Inf."""
    bits = x.to(tl.int32, bitcast=True)
    magnitude = bits & 0x7FFFFFFF
    rounded = (magnitude + 0x7FFF + ((magnitude >> 16) & 1)) >> 16
    return tl.minimum(rounded, 0x7F7F) | ((bits >> 16) & 0x8000)


@triton.jit
def sent_code(x, step, VALUE_BITS: tl.constexpr):
    """A value's code, and what it stands for."""
    if VALUE_BITS == 32:
        code = x.to(tl.int32, bitcast=True)
        value = x
    elif VALUE_BITS == 16:
        code = nearest_bf16(x)
        value = (code << 16).to(tl.float32, bitcast=True)
    else:
        number = nearest_code(x, step)
        code = number.to(tl.int32)
        value = tl.where(code == 0, 0.0, number * step.to(tl.float32, bitcast=True))
    return code, value


@triton.jit(do_not_specialize=["begins_ptr", "sizes_ptr"])
def append_parts_values(
    table_ptr,
    chunks_ptr,
    plan_ptr,
    facts_ptr,
    sent_ptr,
    list_ptr,
    values_ptr,
    out_ptr,
    begins_ptr,
    sizes_ptr,
    VALUE_BITS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """topk's values behind the positions of each chunk, and what they leave. values: bits of what
    is listed."""
    part, c = unit_of(chunks_ptr)
    g = tl.program_id(0)
    row = table_ptr + part * 8
    most = tl.load(facts_ptr + part * 4 + LARGEST)
    begin, n = sent_of_chunk(plan_ptr, sent_ptr, part, c)
    n = tl.where(most < 0x7F800000, tl.maximum(n, 0), 0)
    size = tl.load(sizes_ptr + g)
    out = out_ptr + tl.load(begins_ptr + g) + size
    step = smallest_step(most)
    bytes_: tl.constexpr = VALUE_BITS // 8
    for first in range(0, n, BLOCK):
        i = first + tl.arange(0, BLOCK)
        ok = i < n
        at = load_position(list_ptr + begin, i, ok)
        bits = tl.load(values_ptr + begin + i, mask=ok, other=0)
        x = bits.to(tl.float32, bitcast=True)
        code, value = sent_code(x, step, VALUE_BITS)
        for byte in tl.static_range(bytes_):
            part_of = ((code >> (8 * byte)) & 0xFF).to(tl.uint8)
            tl.store(out + i * bytes_ + byte, part_of, mask=ok)
        store_residual(row, at, ok, x - value)
    if n > 0:
        tl.store(sizes_ptr + g, size + n * bytes_)
        if VALUE_BITS == 8:
            tl.store(facts_ptr + part * 4 + SCALAR, step)


@triton.jit
def tree_of_64(total):
    """The sum of 64 lanes: 32 to 63 are added to 0 to 31, and the same with 16, 8, 4, 2 and 1."""
    t32 = tl.sum(tl.reshape(total, (2, 32)), axis=0)
    t16 = tl.sum(tl.reshape(t32, (2, 16)), axis=0)
    t8 = tl.sum(tl.reshape(t16, (2, 8)), axis=0)
    t4 = tl.sum(tl.reshape(t8, (2, 4)), axis=0)
    t2 = tl.sum(tl.reshape(t4, (2, 2)), axis=0)
    return tl.sum(t2, axis=0)


@triton.jit
def sum_parts_sides(units_ptr, plan_ptr, chosen_ptr, values_ptr, sums_ptr):
    """Sums of 4,096 magnitudes of a side, in the order of sbc's spec: 64 lanes, then their tree."""
    part, block = unit_of(units_ptr)
    side = tl.program_id(1)
    count = tl.load(chosen_ptr + (part * 2 + side) * 8 + 2)
    plan = plan_ptr + part * 4
    values = values_ptr + tl.load(plan + FIRST) + side * tl.load(plan + K)
    lane = tl.arange(0, 64)
    total = tl.zeros((64,), tl.float64)
    if block * 4096 < count:
        for group in range(4):
            for row in tl.static_range(16):  # so that loads don't wait for each other
                i = block * 4096 + (group * 16 + row) * 64 + lane
                bits = tl.load(values + i, mask=i < count, other=0) & 0x7FFFFFFF
                total += bits.to(tl.float32, bitcast=True).to(tl.float64)
    one = side * tl.num_programs(0) + tl.program_id(0)
    tl.store(sums_ptr + one, tree_of_64(total))


@triton.jit(do_not_specialize=["blocks"])
def choose_parts_side(parts_ptr, plan_ptr, chosen_ptr, sums_ptr, facts_ptr, sent_ptr, blocks):
    """The side with the larger mean; what is sent of it, and the mean as the part's scalar. A part
    a program. sums: of blocks of both sides. blocks: of all parts."""
    part = tl.load(parts_ptr + tl.program_id(0)).to(tl.int64)
    plan = plan_ptr + part * 4
    k = tl.load(plan + K)
    a = tl.load(chosen_ptr + part * 16 + 2)
    b = tl.load(chosen_ptr + part * 16 + 10)
    sums = sums_ptr + tl.load(plan + SUMS)
    of_part = ((k + 4095) // 4096).to(tl.int32)
    plus = tl.full((), 0, tl.float64)
    minus = tl.full((), 0, tl.float64)
    for group in range(0, of_part, 16):
        for j in tl.static_range(16):  # so that loads don't wait for each other
            i = group + j
            plus += tl.load(sums + i, mask=i < of_part, other=0.0)
            minus += tl.load(sums + blocks + i, mask=i < of_part, other=0.0)
    plus = plus / tl.maximum(a, 1).to(tl.float64)
    minus = minus / tl.maximum(b, 1).to(tl.float64)
    first = plus >= minus
    mean = tl.where(first, plus, -minus).to(tl.float32)
    tl.store(facts_ptr + part * 4 + SCALAR, mean.to(tl.int32, bitcast=True))
    tl.store(sent_ptr + 2 * part, tl.where(first, 0, k).to(tl.int32))
    tl.store(sent_ptr + 2 * part + 1, tl.where(first, a, b))


@triton.jit
def take_parts_mean(
    table_ptr, units_ptr, plan_ptr, facts_ptr, sent_ptr, list_ptr, values_ptr, BLOCK: tl.constexpr
):
    """What the mean leaves where it is sent."""
    part, block = unit_of(units_ptr)
    facts = facts_ptr + part * 4
    mean = tl.load(facts + SCALAR).to(tl.float32, bitcast=True)
    finite = tl.load(facts + LARGEST) < 0x7F800000
    begin, count = sent_of(plan_ptr, sent_ptr, part)
    i = block * BLOCK + tl.arange(0, BLOCK)
    ok = i < tl.where(finite, count, 0)
    at = load_position(list_ptr + begin, i, ok)
    bits = tl.load(values_ptr + begin + i, mask=ok, other=0)
    store_residual(table_ptr + part * 8, at, ok, bits.to(tl.float32, bitcast=True) - mean)


@triton.jit
def values_of_chunk(
    table_ptr, chunks_ptr, spans_ptr, data_ptr, counts_ptr, VALUE_BITS: tl.constexpr
):
    """Of the program's chunk that is decoded: its part, where it has its values, how many they are,
    and the part's scalar. spans: where each chunk begins and ends."""
    part, _ = unit_of(chunks_ptr)
    g = tl.program_id(0)
    count = tl.load(counts_ptr + g)
    data = data_ptr + tl.load(spans_ptr + 2 * g + 1) - count * (VALUE_BITS // 8)
    return part, data, count, tl.load(table_ptr + part * 4 + GIVEN).to(tl.int32)


@triton.jit
def load_value(data, i, ok, step_bits, VALUE_BITS: tl.constexpr):
    """Sent values, and whether no encoder sends them."""
    bytes_: tl.constexpr = VALUE_BITS // 8
    code = tl.zeros_like(i).to(tl.int32)
    for byte in tl.static_range(bytes_):
        part = tl.load(data + i * bytes_ + byte, mask=ok, other=0).to(tl.int32)
        code |= part << (8 * byte)
    if VALUE_BITS == 8:
        code = (code << 24) >> 24
        step = step_bits.to(tl.int32).to(tl.float32, bitcast=True)
        bad = (code == -128) | tl.where(step_bits == 0, code != 0, False)
        value = code.to(tl.float32) * step
    else:
        if VALUE_BITS == 16:
            code = code << 16
        bad = (code & 0x7F800000) == 0x7F800000
        value = code.to(tl.float32, bitcast=True)
    return value, bad & ok


@triton.jit(do_not_specialize=["errors_ptr"])
def check_parts_values(
    table_ptr,
    chunks_ptr,
    spans_ptr,
    data_ptr,
    counts_ptr,
    errors_ptr,
    VALUE_BITS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Refuses values that no encoder sends."""
    part, data, count, scalar = values_of_chunk(
        table_ptr, chunks_ptr, spans_ptr, data_ptr, counts_ptr, VALUE_BITS
    )
    wrong = tl.zeros((BLOCK,), tl.int32)
    for first in range(0, count, BLOCK):
        i = first + tl.arange(0, BLOCK)
        _, bad = load_value(data, i, i < count, scalar, VALUE_BITS)
        wrong |= bad.to(tl.int32)
    tl.atomic_or(errors_ptr + part, tl.max(wrong, axis=0), sem="relaxed")


@triton.jit
def clear_parts(table_ptr, units_ptr, BLOCK: tl.constexpr):
    """Zeros in the parts' slots."""
    part, block = unit_of(units_ptr)
    row = table_ptr + part * 4
    at = block * BLOCK + tl.arange(0, BLOCK)
    zeros = tl.zeros((BLOCK,), tl.float32)
    tl.store(floats_at(tl.load(row + SLOT)) + at, zeros, mask=at < tl.load(row + ELEMENTS))


@triton.jit(do_not_specialize=["errors_ptr"])
def scatter_parts(
    table_ptr,
    chunks_ptr,
    spans_ptr,
    data_ptr,
    list_ptr,
    counts_ptr,
    errors_ptr,
    scale,
    VALUE_BITS: tl.constexpr,
    ADD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A chunk's values times scale to their places; nothing if the part is refused."""
    part, data, count, scalar = values_of_chunk(
        table_ptr, chunks_ptr, spans_ptr, data_ptr, counts_ptr, VALUE_BITS
    )
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    ok = i < tl.where(tl.load(errors_ptr + part) == 0, count, 0)
    at = tl.load(list_ptr + tl.program_id(0).to(tl.int64) * 16384 + i, mask=ok, other=0)
    if VALUE_BITS == 0:
        value = tl.where(ok, scalar.to(tl.float32, bitcast=True), 0.0)
    else:
        value, _ = load_value(data, i, ok, scalar, VALUE_BITS)
    out = floats_at(tl.load(table_ptr + part * 4 + SLOT))
    put_floats(out, at, ok & (value != 0), value * scale, ADD)  # zeros go nowhere
