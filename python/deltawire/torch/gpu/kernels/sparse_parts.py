"""topk and sbc of many parts in one launch: their chunks of 16,384 positions, and what is sent
besides. Selections are those of `selection`.

Tensors that are slices of others aren't specialized: each alignment would be compiled anew.
"""

import triton
import triton.language as tl

from deltawire.torch.gpu.kernels.bit_streams import CORRUPT
from deltawire.torch.gpu.kernels.int8 import smallest_step
from deltawire.torch.gpu.kernels.part_tables import (
    ELEMENTS,
    GIVEN,
    LARGEST,
    SCALAR,
    SLOT,
    floats_at,
    store_residual,
    unit_of,
)
from deltawire.torch.gpu.kernels.positions_decoding import (
    add_gaps,
    has_wrong,
    order_error,
    put_sent,
    read_gaps,
)
from deltawire.torch.gpu.kernels.positions_encoding import coded_by, load_position, put_gaps
from deltawire.torch.gpu.kernels.selection import FIRST, SUMS, K
from deltawire.torch.gpu.kernels.sent_values import (
    larger_side,
    put_codes,
    sent_code,
    tree_of_64,
)


@triton.jit
def sent_of(plan_ptr, sent_ptr, part):
    """Where in the list a part's positions begin that are sent, and how many they are."""
    begin = tl.load(plan_ptr + part * 4 + FIRST) + tl.load(sent_ptr + 2 * part)
    return begin, tl.load(sent_ptr + 2 * part + 1)


@triton.jit
def sent_of_chunk(plan_ptr, sent_ptr, part, c):
    """The same of chunk c, if it is there."""
    begin, count = sent_of(plan_ptr, sent_ptr, part)
    return begin + c * 16384, tl.minimum(count - c * 16384, 16384).to(tl.int32)


@triton.jit(do_not_specialize=["begins_ptr", "sizes_ptr", "all_words"])
def encode_parts_positions(
    chunks_ptr,
    plan_ptr,
    sent_ptr,
    list_ptr,
    bounds_ptr,
    words_ptr,
    begins_ptr,
    sizes_ptr,
    all_words,
    ROWS: tl.constexpr,
    LANES: tl.constexpr,
):
    """A chunk into its zeroed words, if LANES is its number of lanes. words: of all payloads, and
    how many they are."""
    part, c = unit_of(chunks_ptr)
    g = tl.program_id(0)
    begin, n = sent_of_chunk(plan_ptr, sent_ptr, part, c)
    if coded_by(n, c, LANES):
        word = tl.load(begins_ptr + g) >> 2
        positions = list_ptr + begin
        size = put_gaps(words_ptr + word, all_words - word, positions, n, bounds_ptr, ROWS, LANES)
        tl.store(sizes_ptr + g, size)


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
    step = smallest_step(most, 127, 0x7C010203)
    for first in range(0, n, BLOCK):
        i = first + tl.arange(0, BLOCK)
        ok = i < n
        at = load_position(list_ptr + begin, i, ok)
        bits = tl.load(values_ptr + begin + i, mask=ok, other=0)
        x = bits.to(tl.float32, bitcast=True)
        code, value = sent_code(x, step, VALUE_BITS)
        put_codes(out, i, ok, code, VALUE_BITS)
        store_residual(row, at, ok, x - value)
    if n > 0:
        tl.store(sizes_ptr + g, size + n * (VALUE_BITS // 8))
        if VALUE_BITS == 8:
            tl.store(facts_ptr + part * 4 + SCALAR, step)


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
    a program. blocks: of all parts."""
    part = tl.load(parts_ptr + tl.program_id(0)).to(tl.int64)
    plan = plan_ptr + part * 4
    k = tl.load(plan + K)
    a = tl.load(chosen_ptr + part * 16 + 2)
    b = tl.load(chosen_ptr + part * 16 + 10)
    plus = sums_ptr + tl.load(plan + SUMS)
    first, mean = larger_side(plus, plus + blocks, ((k + 4095) // 4096).to(tl.int32), a, b)
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
def is_last_of_part(chunks_ptr, part):
    """Whether the next chunk is another part's."""
    g = tl.program_id(0)
    inside = g + 1 < tl.num_programs(0)
    return tl.load(chunks_ptr + 2 * g + 2, mask=inside, other=-1) != part


@triton.jit(do_not_specialize=["errors_ptr"])
def decode_parts_gaps(
    table_ptr,
    chunks_ptr,
    spans_ptr,
    data_ptr,
    list_ptr,
    counts_ptr,
    errors_ptr,
    VALUE_BITS: tl.constexpr,
):
    """A chunk's gaps, and how many positions it has. spans: where each chunk begins and ends."""
    part, c = unit_of(chunks_ptr)
    g = tl.program_id(0)
    n = tl.load(table_ptr + part * 4 + ELEMENTS)
    begin = tl.load(spans_ptr + 2 * g)
    size = (tl.load(spans_ptr + 2 * g + 1) - begin).to(tl.int32)
    listed = list_ptr + g.to(tl.int64) * 16384
    is_last = is_last_of_part(chunks_ptr, part)
    found, error = read_gaps(data_ptr + begin, size, c, is_last, n, listed, VALUE_BITS)
    tl.store(counts_ptr + g, found)
    tl.atomic_or(errors_ptr + part, error, sem="relaxed")


@triton.jit(do_not_specialize=["errors_ptr"])
def sum_parts_gaps(
    table_ptr, chunks_ptr, list_ptr, counts_ptr, lasts_ptr, errors_ptr, BLOCK: tl.constexpr
):
    """Positions from gaps."""
    part, _ = unit_of(chunks_ptr)
    g = tl.program_id(0)
    count = tl.load(counts_ptr + g)
    position = add_gaps(list_ptr + g.to(tl.int64) * 16384, count, BLOCK)
    tl.store(lasts_ptr + g, tl.where(count > 0, position, -1))
    n = tl.load(table_ptr + part * 4 + ELEMENTS)
    tl.atomic_or(errors_ptr + part, tl.where(position >= n, CORRUPT, 0), sem="relaxed")


@triton.jit(do_not_specialize=["errors_ptr"])
def check_parts_order(
    table_ptr, chunks_ptr, list_ptr, counts_ptr, lasts_ptr, errors_ptr, SCALAR: tl.constexpr
):
    """Positions grow from chunk to chunk; a scalar that goes with positions is 0 without them."""
    part, c = unit_of(chunks_ptr)
    g = tl.program_id(0)
    count = tl.load(counts_ptr + g)
    before = tl.load(lasts_ptr + g - 1, mask=c > 0, other=-1)
    scalar = tl.load(table_ptr + part * 4 + GIVEN).to(tl.int32)
    error = order_error(list_ptr + g.to(tl.int64) * 16384, count, before, scalar, SCALAR)
    good = tl.load(errors_ptr + part) == 0  # a refused chunk has no count
    tl.atomic_or(errors_ptr + part, tl.where(good, error, 0), sem="relaxed")


@triton.jit
def values_of_chunk(
    table_ptr, chunks_ptr, spans_ptr, data_ptr, counts_ptr, VALUE_BITS: tl.constexpr
):
    """Where the program's chunk has its values, how many they are, and the part's scalar."""
    part, _ = unit_of(chunks_ptr)
    g = tl.program_id(0)
    count = tl.load(counts_ptr + g)
    data = data_ptr + tl.load(spans_ptr + 2 * g + 1) - count * (VALUE_BITS // 8)
    return data, count, tl.load(table_ptr + part * 4 + GIVEN).to(tl.int32)


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
    part, _ = unit_of(chunks_ptr)
    data, count, scalar = values_of_chunk(
        table_ptr, chunks_ptr, spans_ptr, data_ptr, counts_ptr, VALUE_BITS
    )
    wrong = has_wrong(data, count, scalar, VALUE_BITS, BLOCK)
    tl.atomic_or(errors_ptr + part, wrong, sem="relaxed")


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
    """A chunk's values to their places; nothing if the part is refused."""
    part, _ = unit_of(chunks_ptr)
    data, count, scalar = values_of_chunk(
        table_ptr, chunks_ptr, spans_ptr, data_ptr, counts_ptr, VALUE_BITS
    )
    listed = list_ptr + tl.program_id(0).to(tl.int64) * 16384
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    good = tl.where(tl.load(errors_ptr + part) == 0, count, 0)
    out = floats_at(tl.load(table_ptr + part * 4 + SLOT))
    put_sent(data, listed, i, good, out, scalar, scale, VALUE_BITS, ADD)
