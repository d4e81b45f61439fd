"""gcomp's tables (src/codecs/gcomp/spec.md, sections 2 and 6). A chunk a program.

Symbols are numbered in the order of section 2: zero 0, level 0 by exponent 1 to 30, escape 31, tiny
32, level 1 by exponent from 33 on, each further level 32 behind the one before it. Chunks of
float32 without a loss may have two tables: the second one is for low zeros. `form` is that of
gcomp_values.
"""

import triton
import triton.language as tl

from deltawire.torch.gpu.kernels.gcomp_codes import lengths_of, put_codes_of_chunk, widths_of
from deltawire.torch.gpu.kernels.gcomp_values import (
    elements_of,
    has_tiny,
    load_sent,
    may_have_low_zeros,
)
from deltawire.torch.gpu.kernels.part_tables import BEFORE, COUNT, unit_of

COUNTS = 2048  # of a table: by level and exponent; tiny values are exponent 0 at level 1
SYMBOLS = 256
HEAD_BYTES = 256  # of room for a chunk's first byte and table
SCRATCH = 1024  # numbers
INFO = 4  # numbers of a chunk:
WORTH = tl.constexpr(1)  # behind the bytes of its head, whether coding it is worth it,
BELOW = tl.constexpr(2)  # the exponent below the table's window,
SECOND = tl.constexpr(3)  # whether the second table is taken
# Lengths of the static tables: of 12 exponents from the top downwards, of the escape, of zero.
SHAPES = (
    *(5, 2, 2, 2, 3, 5, 5, 7, 8, 8, 8, 8, 8, 8, 0, 0),
    *(6, 3, 2, 2, 3, 3, 4, 6, 7, 7, 8, 8, 8, 8, 0, 0),
    *(7, 4, 3, 3, 4, 4, 6, 6, 7, 8, 8, 8, 8, 1, 0, 0),
)


@triton.jit
def log_share(n):
    """One in how many values of a chunk is counted, as a power of two."""
    p = (n >= 2048).to(tl.int32) + (n >= 4096).to(tl.int32)
    return p + (n >= 8192).to(tl.int32) + (n >= 16384).to(tl.int32)


@triton.jit
def put_counts(out, row, first, n, BLOCK: tl.constexpr, form: tl.constexpr):
    """How often each level and exponent stands in a sample of a chunk."""
    p = log_share(n)
    groups = (((n + 15) >> 4) + (1 << p) - 1) >> p
    bins = tl.zeros((2048,), tl.int32)
    for begin in range(0, groups * 16, BLOCK):
        t = begin + tl.arange(0, BLOCK)
        k = t >> 4
        h = k.to(tl.uint32) * 0x9E3779B1
        h = (h ^ (h >> 15)) * 0x85EBCA77
        line = (k << p) + ((h >> 1) >> (31 - p).to(tl.uint32)).to(tl.int32)
        i = line * 16 + (t & 15)
        ok = (k < groups) & (i < n)
        _, exponent, level, _ = load_sent(row, first + i, ok, form)
        bins += tl.histogram(exponent + 256 * level, 2048, mask=ok)
    tl.store(out + tl.arange(0, 2048), bins)


@triton.jit
def count_values(
    table_ptr,
    chunks_ptr,
    counts_ptr,
    info_ptr,
    KIND: tl.constexpr,
    SCALED: tl.constexpr,
    UNUSED: tl.constexpr,
    RULE: tl.constexpr,
    LEVEL: tl.constexpr,
    TABLES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The counts of each chunk; and of one that low zeros may make smaller the second ones."""
    part, c = unit_of(chunks_ptr)
    g = tl.program_id(0).to(tl.int64)
    row = table_ptr + part * 8
    n = elements_of(tl.load(row + COUNT), c)
    first = c * 262144
    counts = counts_ptr + g * (TABLES * 2048)
    form: tl.constexpr = (KIND, SCALED, UNUSED, RULE, LEVEL)
    put_counts(counts, row, first, n, BLOCK, form)
    second = tl.full((), 0, tl.int32)
    if TABLES == 2:
        zeros: tl.constexpr = (KIND, SCALED, UNUSED, "zeros", LEVEL)
        if (n >= 1024) & (tl.load(row + BEFORE) == 0):
            second = may_have_low_zeros(row, first, n, form)
            if second != 0:
                second = 1 - has_tiny(row, first, n, BLOCK, form)
        if second != 0:
            put_counts(counts + 2048, row, first, n, BLOCK, zeros)
    tl.store(info_ptr + g * (TABLES * 4) + SECOND, second)


@triton.jit
def exponents_of(counts):
    """How often each exponent but 0 was counted."""
    e = tl.arange(0, 256)
    sums = tl.zeros((256,), tl.int32)
    for level in range(8):
        sums += tl.load(counts + 256 * level + e, mask=e > 0, other=0)
    return sums


@triton.jit
def window_below(counts, scratch):
    """The exponent below the 30 in a row that hold most."""
    e = tl.arange(0, 256)
    sums = tl.cumsum(exponents_of(counts), 0)
    tl.store(scratch + e, sums)
    tl.debug_barrier()
    within = tl.load(scratch + e + 30, mask=e <= 225, other=-1) - sums
    within = tl.where(e <= 225, within, -1)
    return tl.min(tl.where(within == tl.max(within, axis=0), e, 256), axis=0)


@triton.jit
def seen_of(counts, below):
    """How often each symbol was counted, once rare ones have joined others; and how many in all."""
    total = tl.sum(tl.load(counts + tl.arange(0, 2048)), axis=0)
    level = tl.arange(0, 8)[:, None]
    r = tl.arange(0, 32)[None, :]
    in_window = (r >= 1) & (r <= 30) & (level >= 0)
    seen = tl.load(counts + level * 256 + below + r, mask=in_window, other=0)
    for back in range(7):
        mine = tl.sum(tl.where(level == 7 - back, seen, 0), axis=0)[None, :]
        rare = mine * 2048 < total
        seen = tl.where((level == 7 - back) & rare, 0, seen)
        seen += tl.where((level == 6 - back) & rare, mine, 0)
    seen = tl.where((level == 0) & (seen * 2048 < total), 0, seen)
    tiny = tl.load(counts + 256)
    seen += tl.where((level == 1) & (r == 0) & (tiny * 2048 >= total), tiny, 0)
    zeros = tl.load(counts)
    escapes = total - zeros - tl.sum(tl.sum(seen, axis=1), axis=0)
    i = tl.arange(0, 256)
    seen = tl.reshape(seen, (256,))
    return tl.where(i == 0, zeros, tl.where(i == 31, escapes, seen)), total


@triton.jit
def weights_of(seen, complete):
    """What lengths are made for: a sample may miss anything, and a code needs two symbols. (A
    complete histogram never has escapes alone: what fills its window isn't rare.)"""
    i = tl.arange(0, 256)
    few = tl.sum((seen > 0).to(tl.int32), axis=0) == 1
    zeros = tl.sum(tl.where(i == 0, seen, 0), axis=0)
    escapes = tl.sum(tl.where(i == 31, seen, 0), axis=0)
    needs_zero = tl.where(complete, False, zeros == 0)
    needs_escape = tl.where(complete, few, True) & (escapes == 0)
    weights = tl.where((i == 0) & tl.where(needs_zero, i == 0, False), 1, seen)
    return tl.where((i == 31) & tl.where(needs_escape, i == 31, False), 1, weights)


@triton.jit
def static_bits(counts, shape, top, LEVEL: tl.constexpr):
    """Bits that the counted values take with a static table, whose byte is included."""
    e = tl.arange(0, 256)
    j = top - e
    escaped = tl.load(shape + 12) + 32
    length = tl.load(shape + j, mask=(j >= 0) & (j < 12), other=0)
    each = tl.where(length > 0, length + 24 - 3 * LEVEL, escaped)
    bits = 8 + tl.load(counts) * tl.load(shape + 13) + tl.load(counts + 256) * escaped
    bits += tl.sum(tl.load(counts + 256 * LEVEL + e, mask=e > 0, other=0) * each, axis=0)
    if LEVEL > 0:
        bits += tl.sum(tl.load(counts + e, mask=e > 0, other=0) * escaped, axis=0)
    return bits


@triton.jit
def best_static(counts, shapes_ptr, smallest, LEVEL: tl.constexpr):
    """The static table that takes fewer bits than `smallest`, 0 if none does, and its top."""
    e = tl.arange(0, 256)
    highest = tl.max(tl.where((exponents_of(counts) > 0) & (e < 255), e, 0), axis=0)
    best = tl.full((), 0, tl.int32)
    best_top = tl.full((), 0, tl.int32)
    for number in range(15):
        shape = number // 5
        down = number % 5
        top = highest + 1 - down
        bits = static_bits(counts, shapes_ptr + shape * 16, top, LEVEL)
        better = (down <= highest) & (top >= 12) & (top <= 254) & (bits < smallest)
        smallest = tl.where(better, bits, smallest)
        best = tl.where(better, shape + 1, best)
        best_top = tl.where(better, top, best_top)
    return best, best_top


@triton.jit
def load_static(shape, level):
    """Lengths of the symbols by a static table whose exponents are at a level."""
    i = tl.arange(0, 256)
    row = i - 32 * level
    inside = (row >= 1) & (row <= 12)
    lengths = tl.load(shape + (12 - row), mask=inside, other=0)
    lengths = tl.where(i == 31, tl.load(shape + 12), lengths)
    return tl.where(i == 0, tl.load(shape + 13), lengths)


@triton.jit
def put_own_table(out, lengths, below, scratch, WHOLE: tl.constexpr):
    """A chunk's own table; its bytes."""
    i = tl.arange(0, 256)
    tl.debug_barrier()
    tl.store(scratch + i, lengths)
    tl.debug_barrier()
    tl.store(out, (tl.load(scratch + 31) | (tl.load(scratch) << 4)).to(tl.uint8))
    if WHOLE:
        tl.store(out + 1, tl.load(scratch + 32).to(tl.uint8))
    at = 2 if WHOLE else 1
    level = tl.arange(0, 8)
    r = tl.arange(0, 32)[None, :]
    has = (tl.reshape(lengths, (8, 32)) > 0) & (r >= 1) & (r <= 30)
    first = tl.min(tl.where(has, r, 32), axis=1)
    size = tl.maximum(tl.max(tl.where(has, r, -1), axis=1) - first + 1, 0)
    bytes_ = tl.where(size > 0, 2 + (size + 1) // 2, 0)
    tl.store(out + at, tl.sum(tl.where(size > 0, 1 << level, 0), axis=0).to(tl.uint8))
    window = at + 1 + tl.cumsum(bytes_, 0) - bytes_
    tl.store(out + window, size.to(tl.uint8), mask=size > 0)
    tl.store(out + window + 1, (below + first).to(tl.uint8), mask=size > 0)
    k = 2 * tl.arange(0, 16)[None, :]
    symbol = scratch + (32 * level + first)[:, None] + k
    low = tl.load(symbol, mask=k < size[:, None], other=0)
    high = tl.load(symbol + 1, mask=k + 1 < size[:, None], other=0)
    nibbles = out + window[:, None] + 2 + k // 2
    tl.store(nibbles, (low | (high << 4)).to(tl.uint8), mask=k < size[:, None])
    return at + 1 + tl.sum(bytes_, axis=0)


@triton.jit
def put_table(counts, n, shapes_ptr, codes, head, info, scratch, form: tl.constexpr):
    """A chunk's codes and head, and of its numbers all but whether it has a second table. Gives its
    size in bits, as far as it is counted."""
    whole: tl.constexpr = form[3] == "whole" or form[3] == "all"
    level: tl.constexpr = form[4] if form[3] == "level" else 0
    complete = n < 2048
    below = window_below(counts, scratch)
    seen, total = seen_of(counts, below)
    lengths = lengths_of(weights_of(seen, complete), scratch)
    i = tl.arange(0, 256)
    behind = widths_of(form[2]) + tl.where(i == 31, 8, 0)
    bits = tl.sum(seen * (lengths + behind), axis=0)
    size = put_own_table(head + 1, lengths, below, scratch, whole)
    chosen = tl.full((), 0, tl.int32)
    one_level: tl.constexpr = form[2] == 0 and (whole or form[3] == "level")
    if complete & one_level:
        chosen, top = best_static(counts, shapes_ptr, 8 * size + bits, level)
        if chosen > 0:
            below = top - 12
            lengths = load_static(shapes_ptr + (chosen - 1) * 16, level)
            tl.store(head + 1, top.to(tl.uint8))
            size = tl.full((), 1, tl.int32)
    first = (2 if whole else 3) | (chosen << 5) | tl.where(chosen > 0, level << 2, 0)
    if form[2] != 0:
        first |= 0x84 if form[2] == 16 else 0x88
    tl.store(head, first.to(tl.uint8))
    put_codes_of_chunk(lengths, codes, form[2])
    tl.store(info, size + 1)
    tl.store(info + WORTH, (bits < total * 32).to(tl.int32))
    tl.store(info + BELOW, below)
    return (bits << log_share(n)) + 8 * size


@triton.jit
def make_tables(
    table_ptr,
    chunks_ptr,
    counts_ptr,
    shapes_ptr,
    codes_ptr,
    heads_ptr,
    info_ptr,
    scratch_ptr,
    UNUSED: tl.constexpr,
    RULE: tl.constexpr,
    LEVEL: tl.constexpr,
    TABLES: tl.constexpr,
):
    """Of each of a chunk's tables codes, head and numbers; and which one it takes: the second if
    that makes it so much smaller that levels are worth their time."""
    part, c = unit_of(chunks_ptr)
    g = tl.program_id(0).to(tl.int64) * TABLES
    n = elements_of(tl.load(table_ptr + part * 8 + COUNT), c)
    scratch = scratch_ptr + tl.program_id(0).to(tl.int64) * 1024
    counts = counts_ptr + g * 2048
    codes = codes_ptr + g * 256
    head = heads_ptr + g * 256
    info = info_ptr + g * 4
    form: tl.constexpr = ("", False, UNUSED, RULE, LEVEL)
    bits = put_table(counts, n, shapes_ptr, codes, head, info, scratch, form)
    if TABLES == 2:
        zeros: tl.constexpr = ("", False, UNUSED, "zeros", LEVEL)
        if tl.load(info + SECOND) != 0:
            tl.debug_barrier()
            leveled = put_table(
                counts + 2048, n, shapes_ptr, codes + 256, head + 256, info + 4, scratch, zeros
            )
            tl.store(info + SECOND, (leveled + n // 2 <= bits).to(tl.int32))
