"""fastsgd's pairs, and their chunks of 16,384 (src/codecs/fastsgd/spec.md, section 3). Chunks take
the bytes that they need: all are measured before any is written."""

import triton
import triton.language as tl

from deltawire.torch.gpu.kernels.bit_streams import put_code
from deltawire.torch.gpu.kernels.fastsgd_codes import (
    FIRST,
    UNIT,
    code_of,
    elements_of_block,
    is_finite,
    load_block,
)
from deltawire.torch.gpu.kernels.part_tables import COUNT, store_residual, unit_of
from deltawire.torch.gpu.kernels.selection import sum_before

HEAD = tl.constexpr(9)  # bytes of a chunk with pairs
EMPTY = tl.constexpr(2)


@triton.jit
def list_pairs(
    table_ptr,
    units_ptr,
    plan_ptr,
    facts_ptr,
    values_ptr,
    cuts_ptr,
    list_ptr,
    found_ptr,
    KIND: tl.constexpr,
    SCALED: tl.constexpr,
    LOG: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """What is sent of each block of 65,536 elements, in order: the place in the block, above its 16
    bits the code, above its 11 the sign; and what that leaves. A block a program."""
    part, block = unit_of(units_ptr)
    row = table_ptr + part * 8
    count = elements_of_block(row, block)
    values_ptr += part << LOG
    cut = tl.load(cuts_ptr + part)
    keeps = is_finite(facts_ptr, part)
    list_ptr += tl.load(plan_ptr + part * 4 + FIRST) + block * 65536
    total = tl.full((), 0, tl.int32)
    for first in range(0, count, BLOCK):
        i = first + tl.arange(0, BLOCK)
        ok = i < count
        x, magnitude = load_block(row, block, i, ok, KIND, SCALED)
        sent = ok & (magnitude >= cut)
        code = code_of(values_ptr, magnitude, sent, LOG)
        value = tl.load(values_ptr + code, mask=sent, other=0)
        negative = (x.to(tl.int32, bitcast=True) < 0).to(tl.int32)
        value = (value | (negative << 31)).to(tl.float32, bitcast=True)
        left = tl.where(sent, x - value, x)
        store_residual(row, block * 65536 + i, tl.where(keeps, ok, False), left)
        place = total + tl.cumsum(sent.to(tl.int32), 0) - 1
        tl.store(list_ptr + place, i | (code << 16) | (negative << 27), mask=sent)
        total += tl.sum(sent.to(tl.int32), axis=0)
    tl.store(found_ptr + tl.program_id(0), total)


@triton.jit
def join_pairs(units_ptr, plan_ptr, list_ptr, found_ptr, sums_ptr, pairs_ptr, BLOCK: tl.constexpr):
    """The pairs of each part one after another: the key, above its 32 bits code and sign. sums: of
    what was found, over all blocks."""
    part, block = unit_of(units_ptr)
    program = tl.program_id(0)
    count = tl.load(found_ptr + program)
    first_of_part = tl.load(plan_ptr + part * 4 + FIRST)
    list_ptr += first_of_part + block * 65536
    pairs_ptr += first_of_part + sum_before(sums_ptr, program, program - block)
    for first in range(0, count, BLOCK):
        i = first + tl.arange(0, BLOCK)
        entry = tl.load(list_ptr + i, mask=i < count, other=0).to(tl.int64)
        key = block * 65536 + (entry & 0xFFFF)
        tl.store(pairs_ptr + i, key | ((entry >> 16) << 32), mask=i < count)


@triton.jit
def pairs_of_chunk(table_ptr, plan_ptr, sums_ptr, pairs_ptr, part, c):
    """Where the pairs of chunk c of a part are, and how many: none if it isn't there."""
    unit = tl.load(plan_ptr + part * 4 + UNIT)
    blocks = (tl.load(table_ptr + part * 8 + COUNT) + 65535) // 65536
    count = sum_before(sums_ptr, unit + blocks, unit) - c * 16384
    pairs = pairs_ptr + tl.load(plan_ptr + part * 4 + FIRST) + c * 16384
    return pairs, tl.minimum(tl.maximum(count, 0), 16384).to(tl.int32)


@triton.jit
def load_key(pairs, i, ok):
    """The key of a pair."""
    return tl.load(pairs + i, mask=ok, other=0) & 0xFFFFFFFF


@triton.jit
def gaps_before(pairs, i, count):
    """The gaps before some of a chunk's pairs, and which have one."""
    ok = (i > 0) & (i < count)
    gap = load_key(pairs, i, ok) - load_key(pairs, i - 1, ok) - 1
    return tl.where(ok, gap, 0), ok


@triton.jit
def width_of(number):
    """Bits of whole numbers below 2^53."""
    exponent = number.to(tl.float64).to(tl.int64, bitcast=True) >> 52
    return tl.maximum(exponent - 1022, 0).to(tl.int32)


@triton.jit
def length_of(flag, longest, FLAG_BITS: tl.constexpr):
    """Bits of the gaps that a flag announces. longest: those of the chunk's longest gap."""
    return ((flag + 1) * longest + ((1 << FLAG_BITS) - 1)) >> FLAG_BITS


@triton.jit
def flag_of(gap, longest, FLAG_BITS: tl.constexpr):
    """The smallest flag whose length fits a gap."""
    return (tl.maximum(width_of(gap) - 1, 0) << FLAG_BITS) // tl.maximum(longest, 1)


@triton.jit
def value_bytes_of(count, code_bits):
    """Bytes of so many values."""
    return (count * (code_bits + 1) + 7) // 8


@triton.jit
def flag_bytes_of(count, longest, FLAG_BITS: tl.constexpr):
    """Bytes of the flags of so many pairs, at least one."""
    return tl.where(longest > 0, ((count - 1) * FLAG_BITS + 7) // 8, 0)


@triton.jit(do_not_specialize=["sizes_ptr"])
def measure_chunks(
    table_ptr,
    chunks_ptr,
    plan_ptr,
    sums_ptr,
    pairs_ptr,
    sizes_ptr,
    heads_ptr,
    FLAG_BITS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Bytes of each chunk; its smallest code, above 11 bits those of the others, and above 5 those
    of its longest gap."""
    part, c = unit_of(chunks_ptr)
    g = tl.program_id(0)
    pairs, count = pairs_of_chunk(table_ptr, plan_ptr, sums_ptr, pairs_ptr, part, c)
    least = tl.full((), 2047, tl.int32)
    most = tl.full((), 0, tl.int32)
    longest_gap = tl.full((), 0, tl.int64)
    for first in range(0, count, BLOCK):
        i = first + tl.arange(0, BLOCK)
        ok = i < count
        code = (tl.load(pairs + i, mask=ok, other=0) >> 32).to(tl.int32) & 2047
        least = tl.minimum(least, tl.min(tl.where(ok, code, 2047), axis=0))
        most = tl.maximum(most, tl.max(code, axis=0))
        gap, _ = gaps_before(pairs, i, count)
        longest_gap = tl.maximum(longest_gap, tl.max(gap, axis=0))
    code_bits = width_of(tl.maximum(most - least, 0))
    longest = width_of(longest_gap)
    gap_bits = tl.full((), 0, tl.int32)
    for first in range(0, count, BLOCK):
        i = first + tl.arange(0, BLOCK)
        gap, ok = gaps_before(pairs, i, count)
        length = length_of(flag_of(gap, longest, FLAG_BITS), longest, FLAG_BITS)
        gap_bits += tl.sum(tl.where(ok, length, 0), axis=0)
    size = value_bytes_of(count, code_bits) + (gap_bits + 7) // 8 + HEAD
    size += flag_bytes_of(count, longest, FLAG_BITS)
    tl.store(sizes_ptr + g, tl.where(count > 0, size, tl.where(c == 0, EMPTY, 0)))
    tl.store(heads_ptr + g, least | (code_bits << 11) | (longest << 16))


@triton.jit
def put_head(words_ptr, all_words, bit, head, pairs, count):
    """The first bytes of a chunk that has pairs. head: as `measure_chunks` has it."""
    zero = tl.arange(0, 1)
    has = (zero + count) > 0
    number = ((zero + head).to(tl.uint64) << 16) | count.to(tl.uint64)
    put_code(words_ptr, all_words, zero + bit, number, has)
    key = load_key(pairs, zero, has).to(tl.uint64)
    put_code(words_ptr, all_words, zero + bit + 40, key, has)


@triton.jit(do_not_specialize=["begins_ptr", "room", "all_words"])
def write_chunks(
    table_ptr,
    chunks_ptr,
    plan_ptr,
    sums_ptr,
    pairs_ptr,
    heads_ptr,
    ends_ptr,
    begins_ptr,
    room,
    words_ptr,
    all_words,
    FLAG_BITS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Each chunk into zeroed words, and where it begins. ends: sums of the chunks' sizes. room:
    where the first chunk begins. words: of all payloads, and how many they are."""
    part, c = unit_of(chunks_ptr)
    g = tl.program_id(0)
    pairs, count = pairs_of_chunk(table_ptr, plan_ptr, sums_ptr, pairs_ptr, part, c)
    begin = room + sum_before(ends_ptr, g, 0)
    tl.store(begins_ptr + g, begin)
    head = tl.load(heads_ptr + g)
    least = head & 2047
    code_bits = (head >> 11) & 31
    longest = head >> 16
    bit = begin * 8
    put_head(words_ptr, all_words, bit, head, pairs, count)
    bit += 8 * HEAD
    flags = bit + 8 * value_bytes_of(count, code_bits)
    gaps = flags + 8 * flag_bytes_of(count, longest, FLAG_BITS)
    for first in range(0, count, BLOCK):
        i = first + tl.arange(0, BLOCK)
        ok = i < count
        code = (tl.load(pairs + i, mask=ok, other=0) >> 32).to(tl.int32)
        number = ((code & 2047) - least) | ((code >> 11) << code_bits)
        put_code(words_ptr, all_words, bit + i * (code_bits + 1), number.to(tl.uint64), ok)
        gap, ok = gaps_before(pairs, i, count)
        flag = flag_of(gap, longest, FLAG_BITS)
        put_code(words_ptr, all_words, flags + (i - 1) * FLAG_BITS, flag.to(tl.uint64), ok)
        length = tl.where(ok, length_of(flag, longest, FLAG_BITS), 0)
        place = gaps + tl.cumsum(length, 0) - length
        put_code(words_ptr, all_words, place, gap.to(tl.uint64), ok)
        gaps += tl.sum(length, axis=0)
