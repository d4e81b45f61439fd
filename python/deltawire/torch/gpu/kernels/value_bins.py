"""topk's values in 2 bits: four means, and for each value which of them it is sent as
(src/codecs/topk/spec.md, section 5.1). Sums run over the values one after another, as its spec has
them: a part is one program's.
"""

import triton
import triton.language as tl

from deltawire.torch.gpu.kernels.part_tables import LARGEST, store_residual, unit_of
from deltawire.torch.gpu.kernels.positions_decoding import bytes_of_values
from deltawire.torch.gpu.kernels.positions_encoding import load_position
from deltawire.torch.gpu.kernels.sparse_parts import sent_of, sent_of_chunk

# Columns of a row of the table of means, which are float64 numbers.
CENTER = tl.constexpr(0)
SPREAD = tl.constexpr(1)  # the deviation
FIRST_MEAN = tl.constexpr(2)
MEANS = 6


@triton.jit
def load_value_at(values_ptr, i, n):
    """A sent value in float64; 0 behind the last one."""
    bits = tl.load(values_ptr + i, mask=i < n, other=0)
    return bits.to(tl.float32, bitcast=True).to(tl.float64)


@triton.jit
def bin_of(x, center, spread):
    """The number of a value's bin."""
    a = x - center
    upper = tl.where(a >= -0.75 * spread, 2, tl.where(a > -2.25 * spread, 1, 0))
    return tl.where(a > 0.75 * spread, 3, upper)


@triton.jit
def find_means(parts_ptr, plan_ptr, sent_ptr, values_ptr, means_ptr):
    """A part's center and deviation, and the means of its bins. Loops are of 16 values, so that
    loads don't wait for each other."""
    part = tl.load(parts_ptr + tl.program_id(0)).to(tl.int64)
    begin, n = sent_of(plan_ptr, sent_ptr, part)
    values_ptr += begin
    row = means_ptr + part * 6
    total = tl.full((), 0, tl.float64)
    for group in range(0, n, 16):
        for j in tl.static_range(16):
            total += load_value_at(values_ptr, group + j, n)
    center = total / tl.maximum(n, 1).to(tl.float64)
    total = tl.full((), 0, tl.float64)
    for group in range(0, n, 16):
        for j in tl.static_range(16):
            a = load_value_at(values_ptr, group + j, n) - center
            total += tl.where(group + j < n, a * a, 0.0)
    spread = tl.sqrt(total / tl.maximum(n - 1, 1).to(tl.float64))
    tl.store(row + CENTER, center)
    tl.store(row + SPREAD, spread)
    i = tl.arange(0, 4)
    sums = tl.zeros((4,), tl.float64)
    counts = tl.zeros((4,), tl.int32)
    for group in range(0, n, 16):
        for j in tl.static_range(16):
            x = load_value_at(values_ptr, group + j, n)
            mine = (i == bin_of(x, center, spread)) & (group + j < n)
            sums += tl.where(mine, x, 0.0)
            counts += mine.to(tl.int32)
    means = (sums / tl.maximum(counts, 1).to(tl.float64)).to(tl.float32)
    few = load_value_at(values_ptr, i, n).to(tl.float32)
    tl.store(row + FIRST_MEAN + i, tl.where(n > 4, means, few).to(tl.float64))


@triton.jit(do_not_specialize=["begins_ptr", "sizes_ptr"])
def append_bins(
    table_ptr,
    chunks_ptr,
    plan_ptr,
    facts_ptr,
    sent_ptr,
    list_ptr,
    values_ptr,
    means_ptr,
    out_ptr,
    begins_ptr,
    sizes_ptr,
    BLOCK: tl.constexpr,
):
    """The means and codes behind the positions of each chunk, and what they leave."""
    part, c = unit_of(chunks_ptr)
    g = tl.program_id(0)
    begin, n = sent_of_chunk(plan_ptr, sent_ptr, part, c)
    finite = tl.load(facts_ptr + part * 4 + LARGEST) < 0x7F800000
    n = tl.where(finite, tl.maximum(n, 0), 0)
    _, all_sent = sent_of(plan_ptr, sent_ptr, part)
    row = means_ptr + part * 6
    center, spread = tl.load(row + CENTER), tl.load(row + SPREAD)
    size = tl.load(sizes_ptr + g)
    out = out_ptr + tl.load(begins_ptr + g) + size
    byte = tl.arange(0, 16)
    mean = tl.load(row + FIRST_MEAN + byte // 4).to(tl.float32).to(tl.int32, bitcast=True)
    part_of_mean = ((mean >> (8 * (byte % 4))) & 0xFF).to(tl.uint8)
    head = bytes_of_values(n, c, 2) - (n + 3) // 4
    tl.store(out + byte, part_of_mean, mask=byte < head)
    out += head
    for first in range(0, n, BLOCK):
        i = first + tl.arange(0, BLOCK)
        ok = i < n
        at = load_position(list_ptr + begin, i, ok)
        bits = tl.load(values_ptr + begin + i, mask=ok, other=0)
        x = bits.to(tl.float32, bitcast=True)
        code = tl.where(all_sent > 4, bin_of(x.to(tl.float64), center, spread), i)
        code = tl.where(ok, code, 0)
        value = tl.load(row + FIRST_MEAN + code, mask=ok, other=0.0).to(tl.float32)
        store_residual(table_ptr + part * 8, at, ok, x - value)
        fours = tl.reshape(code, (BLOCK // 4, 4)) << (2 * tl.arange(0, 4)[None, :])
        place = first // 4 + tl.arange(0, BLOCK // 4)
        tl.store(out + place, tl.sum(fours, axis=1).to(tl.uint8), mask=4 * place < n)
    tl.store(sizes_ptr + g, size + bytes_of_values(n, c, 2))
