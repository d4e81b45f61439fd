"""gcomp's tables, for chunks whose values all have one level (src/codecs/gcomp/spec.md, sections 2
and 6). A chunk a program.

Symbols are numbered in the order of section 2: zero 0, level 0 by exponent 1 to 30, escape 31, tiny
32, then the level's own exponents 33 to 62.
"""

import triton
import triton.language as tl

from deltawire.torch.gpu.kernels.part_tables import COUNT, load_part_sum, unit_of

COUNTS = 512  # of a chunk: by exponent, at level 0 and at the chunk's
SYMBOLS = 64
HEAD_BYTES = 64  # of room for a chunk's first byte and table
# Lengths of the static tables: of 12 exponents from the top downwards, of the escape, of zero.
SHAPES = (
    *(5, 2, 2, 2, 3, 5, 5, 7, 8, 8, 8, 8, 8, 8, 0, 0),
    *(6, 3, 2, 2, 3, 3, 4, 6, 7, 7, 8, 8, 8, 8, 0, 0),
    *(7, 4, 3, 3, 4, 4, 6, 6, 7, 8, 8, 8, 8, 1, 0, 0),
)
NOTHING = tl.constexpr(1 << 29)  # a weight above all others


@triton.jit
def elements_of(count, c):
    """How many elements chunk c of a part has."""
    return tl.minimum(count - c * 262144, 262144).to(tl.int32)


@triton.jit
def kept_of(x, LEVEL: tl.constexpr):
    """Bits of what is sent of values, their exponents, and whether the symbol is of the chunk's
    level."""
    bits = x.to(tl.int32, bitcast=True)
    exponent = (bits >> 23) & 255
    cut = exponent < 0
    if LEVEL > 0:
        drop: tl.constexpr = 3 * LEVEL
        cut = (exponent > 0) & (exponent < 254)
        rounded = bits + ((1 << (drop - 1)) - 1) + ((bits >> drop) & 1)
        bits = tl.where(cut, (rounded >> drop) << drop, bits)
    bits = tl.where(exponent == 0, 0, bits)
    return bits, (bits >> 23) & 255, cut


@triton.jit
def count_values(
    table_ptr,
    chunks_ptr,
    counts_ptr,
    KIND: tl.constexpr,
    SCALED: tl.constexpr,
    LEVEL: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """How often each exponent stands in a sample of each chunk; zeros are exponent 0."""
    part, c = unit_of(chunks_ptr)
    row = table_ptr + part * 8
    n = elements_of(tl.load(row + COUNT), c)
    p = (n >= 2048).to(tl.int32) + (n >= 4096).to(tl.int32)
    p += (n >= 8192).to(tl.int32) + (n >= 16384).to(tl.int32)
    groups = (((n + 15) >> 4) + (1 << p) - 1) >> p
    bins = tl.zeros((512,), tl.int32)
    for first in range(0, groups * 16, BLOCK):
        t = first + tl.arange(0, BLOCK)
        k = t >> 4
        h = k.to(tl.uint32) * 0x9E3779B1
        h = (h ^ (h >> 15)) * 0x85EBCA77
        line = (k << p) + ((h >> 1) >> (31 - p).to(tl.uint32)).to(tl.int32)
        i = line * 16 + (t & 15)
        ok = (k < groups) & (i < n)
        x = load_part_sum(row, c * 262144 + i, ok, KIND, SCALED)
        _, exponent, cut = kept_of(x, LEVEL)
        bins += tl.histogram(exponent + tl.where(cut, 256, 0), 512, mask=ok)
    counts = counts_ptr + tl.program_id(0).to(tl.int64) * 512
    tl.store(counts + tl.arange(0, 512), bins)


@triton.jit
def window_below(counts):
    """The exponent below the 30 in a row that hold most."""
    e = tl.arange(0, 256)
    within = tl.zeros((256,), tl.int32)
    for r in range(1, 31):
        inside = e + r < 256
        within += tl.load(counts + e + r, mask=inside, other=0)
        within += tl.load(counts + 256 + e + r, mask=inside, other=0)
    within = tl.where(e <= 225, within, -1)
    return tl.min(tl.where(within == tl.max(within, axis=0), e, 256), axis=0)


@triton.jit
def seen_of(counts, below):
    """How often each symbol was counted, once rare ones have joined others; and how many in all."""
    e = tl.arange(0, 256)
    both = tl.load(counts + e) + tl.load(counts + 256 + e)
    total = tl.sum(both, axis=0)
    zeros = tl.load(counts)
    half = tl.arange(0, 2)[:, None]
    r = tl.arange(0, 32)[None, :]
    seen = tl.load(counts + half * 256 + below + r, mask=(r >= 1) & (r <= 30), other=0)
    rare = (half == 1) & (seen * 2048 < total)
    joined = tl.sum(tl.where(rare, seen, 0), axis=0)
    seen = tl.where(rare, 0, seen) + tl.where(half == 0, joined[None, :], 0)
    seen = tl.where((half == 0) & (seen * 2048 < total), 0, seen)
    i = tl.arange(0, 64)
    flat = tl.reshape(seen, (64,))
    escapes = total - zeros - tl.sum(flat, axis=0)
    return tl.where(i == 0, zeros, tl.where(i == 31, escapes, flat)), total


@triton.jit
def weights_of(seen, complete):
    """What lengths are made for: a sample may miss anything, and a code needs two symbols. (A
    complete histogram never has escapes alone: what fills its window isn't rare.)"""
    i = tl.arange(0, 64)
    few = tl.sum((seen > 0).to(tl.int32), axis=0) == 1
    zeros = tl.sum(tl.where(i == 0, seen, 0), axis=0)
    escapes = tl.sum(tl.where(i == 31, seen, 0), axis=0)
    needs_zero = tl.where(complete, False, zeros == 0)
    needs_escape = tl.where(complete, few, True) & (escapes == 0)
    weights = tl.where((i == 0) & tl.where(needs_zero, i == 0, False), 1, seen)
    return tl.where((i == 31) & tl.where(needs_escape, i == 31, False), 1, weights)


@triton.jit
def lengths_of(weights):
    """Optimal lengths of at most 8 bits, by package-merge: of each of 8 lists some of the rarest
    leaves are taken, whose codes get a bit longer."""
    i = tl.arange(0, 64)
    valid = weights > 0
    count = tl.sum(valid.to(tl.int32), axis=0)
    key = tl.where(valid, weights, NOTHING >> 6) * 64 + 63 - i
    rank = tl.sum((key[None, :] < key[:, None]).to(tl.int32), axis=1)
    at = tl.arange(0, 64)[:, None]
    leaves = tl.sum(tl.where((rank[None, :] == at) & valid[None, :], weights[None, :], 0), axis=1)
    leaves = tl.where(i < count, leaves, NOTHING)
    j = tl.arange(0, 128)[:, None]
    round_ = tl.arange(0, 8)[:, None]
    places = i[None, :] + round_ * 0
    length = count
    merged = tl.sum(tl.where((i[None, :] == j) & (i < count)[None, :], leaves[None, :], 0), axis=1)
    for number in range(1, 8):
        packages = length // 2
        pairs = tl.sum(tl.reshape(merged, (64, 2)), axis=1)
        pairs = tl.where(i < packages, pairs, NOTHING)
        place = i + tl.sum((pairs[None, :] < leaves[:, None]).to(tl.int32), axis=1)
        before = (leaves[None, :] <= pairs[:, None]) & (i < count)[None, :]
        behind = i + tl.sum(before.to(tl.int32), axis=1)
        mine = (place[None, :] == j) & (i < count)[None, :]
        theirs = (behind[None, :] == j) & (i < packages)[None, :]
        merged = tl.sum(tl.where(mine, leaves[None, :], 0), axis=1)
        merged += tl.sum(tl.where(theirs, pairs[None, :], 0), axis=1)
        places = tl.where(round_ == number, place[None, :], places)
        length = count + packages
    taken = 2 * (count - 1)
    lengths = tl.zeros((64,), tl.int32)
    for back in range(8):
        place = tl.sum(tl.where(round_ == 7 - back, places, 0), axis=0)
        mine = tl.sum(((place < taken) & (i < count)).to(tl.int32), axis=0)
        lengths += (valid & (rank < mine)).to(tl.int32)
        taken = 2 * (taken - mine)
    return lengths


@triton.jit
def widths_of(LEVEL: tl.constexpr):
    """Bits of sign and mantissa behind each symbol's code; behind an escape those of level 0."""
    i = tl.arange(0, 64)
    return tl.where(i == 0, 0, tl.where(i < 32, 24, 24 - 3 * LEVEL))


@triton.jit
def rows_with_codes(lengths):
    """Of each half of the symbols the first and the last row that has a code: 32 and -1 without."""
    both = tl.reshape(lengths, (2, 32))
    r = tl.arange(0, 32)[None, :]
    has = (both > 0) & (r >= 1) & (r <= 30)
    return tl.min(tl.where(has, r, 32), axis=1), tl.max(tl.where(has, r, -1), axis=1)


@triton.jit
def static_bits(counts, shape, top, LEVEL: tl.constexpr):
    """Bits that the counted values take with a static table, whose byte is included."""
    e = tl.arange(0, 256)
    j = top - e
    escaped = tl.load(shape + 12) + 32
    length = tl.load(shape + j, mask=(j >= 0) & (j < 12), other=0)
    each = tl.where(length > 0, length + 24 - 3 * LEVEL, escaped)
    low = tl.load(counts + e)
    bits = 8 + tl.load(counts) * tl.load(shape + 13)
    if LEVEL > 0:
        bits += tl.sum(tl.load(counts + 256 + e) * each, axis=0)
        bits += tl.sum(tl.where(e > 0, low * escaped, 0), axis=0)
    else:
        bits += tl.sum(tl.where(e > 0, low * each, 0), axis=0)
    return bits


@triton.jit
def best_static(counts, shapes_ptr, smallest, LEVEL: tl.constexpr):
    """The static table that takes fewer bits than `smallest`, 0 if none does, and its top."""
    e = tl.arange(0, 256)
    both = tl.load(counts + e) + tl.load(counts + 256 + e)
    highest = tl.max(tl.where((both > 0) & (e > 0) & (e < 255), e, 0), axis=0)
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
def reversed_8(code):
    """8 bits the other way round."""
    code = ((code & 0x55) << 1) | ((code >> 1) & 0x55)
    code = ((code & 0x33) << 2) | ((code >> 2) & 0x33)
    return ((code & 0x0F) << 4) | ((code >> 4) & 0x0F)


@triton.jit
def places_of_codes(lengths):
    """Where each symbol's codes begin among the 256 of 8 bits, and how many there are of all."""
    begin = tl.zeros_like(lengths)
    at = tl.full((), 0, tl.int32)
    for length in range(1, 9):
        has = (lengths == length).to(tl.int32)
        begin = tl.where(has != 0, at + ((tl.cumsum(has, 0) - has) << (8 - length)), begin)
        at += tl.sum(has, axis=0) << (8 - length)
    return begin, at


@triton.jit
def put_codes_of_chunk(lengths, out, LEVEL: tl.constexpr):
    """For each symbol its code, first bit lowest, its length from bit 8 on, the width behind it
    from bit 16 on, and 1 << 24 for an escape. Symbols without a code have that of the lower level,
    or the escape's."""
    i = tl.arange(0, 64)
    begin, _ = places_of_codes(lengths)
    entry = reversed_8(begin) | (lengths << 8) | (widths_of(LEVEL) << 16)
    entry = tl.where(lengths > 0, entry | tl.where(i == 31, 1 << 24, 0), 0)
    escape = tl.sum(tl.where(i == 31, entry, 0), axis=0)
    half = tl.arange(0, 2)[:, None]
    both = tl.reshape(entry, (2, 32))
    both = tl.where((half == 0) & (both == 0), escape, both)
    low = tl.sum(tl.where(half == 0, both, 0), axis=0)
    both = tl.where((half == 1) & (both == 0), low[None, :], both)
    tl.store(out + i, tl.reshape(both, (64,)))


@triton.jit
def put_window(out, lengths, below, HALF: tl.constexpr):
    """The window of a half of the symbols; its bytes."""
    first, last = rows_with_codes(lengths)
    half = tl.arange(0, 2)
    first = tl.sum(tl.where(half == HALF, first, 0), axis=0)
    last = tl.sum(tl.where(half == HALF, last, 0), axis=0)
    both = tl.reshape(lengths, (2, 32))
    mine = tl.sum(tl.where(half[:, None] == HALF, both, 0), axis=0)
    r = tl.arange(0, 32)
    mine = tl.where((r >= 1) & (r <= 30), mine, 0)[None, :]
    k = tl.arange(0, 16)
    place = (r - first)[None, :] - 2 * k[:, None]
    pair = tl.sum(tl.where(place == 0, mine, tl.where(place == 1, mine << 4, 0)), axis=1)
    size = tl.where(last > 0, last - first + 1, 0)
    tl.store(out + 2 + k, pair.to(tl.uint8), mask=2 * k < size)
    tl.store(out, size.to(tl.uint8), mask=size > 0)
    tl.store(out + 1, (below + first).to(tl.uint8), mask=size > 0)
    return tl.where(size > 0, 2 + (size + 1) // 2, 0)


@triton.jit
def put_own_table(out, lengths, below, LEVEL: tl.constexpr):
    """A chunk's own table; its bytes."""
    i = tl.arange(0, 64)
    zero = tl.sum(tl.where(i == 0, lengths, 0), axis=0)
    escape = tl.sum(tl.where(i == 31, lengths, 0), axis=0)
    tl.store(out, (escape | (zero << 4)).to(tl.uint8))
    at = 1
    if LEVEL == 0:
        tl.store(out + 1, tl.full((), 0, tl.uint8))
        at = 2
    low = put_window(out + at + 1, lengths, below, 0)
    size = at + 1 + low
    levels = (low > 0).to(tl.int32)
    if LEVEL > 0:
        high = put_window(out + size, lengths, below, 1)
        size += high
        levels |= tl.where(high > 0, 1 << LEVEL, 0)
    tl.store(out + at, levels.to(tl.uint8))
    return size


@triton.jit
def make_tables(
    table_ptr,
    chunks_ptr,
    counts_ptr,
    shapes_ptr,
    codes_ptr,
    heads_ptr,
    info_ptr,
    LEVEL: tl.constexpr,
):
    """Each chunk's codes and head; and of each chunk how many bytes the head has, whether coding is
    worth it, and the exponent below the table's window."""
    part, c = unit_of(chunks_ptr)
    g = tl.program_id(0).to(tl.int64)
    complete = elements_of(tl.load(table_ptr + part * 8 + COUNT), c) < 2048
    counts = counts_ptr + g * 512
    head = heads_ptr + g * 64
    below = window_below(counts)
    seen, total = seen_of(counts, below)
    lengths = lengths_of(weights_of(seen, complete))
    i = tl.arange(0, 64)
    behind = widths_of(LEVEL) + tl.where(i == 31, 8, 0)
    bits = tl.sum(seen * (lengths + behind), axis=0)
    size = put_own_table(head + 1, lengths, below, LEVEL)
    chosen = tl.full((), 0, tl.int32)
    if complete:
        chosen, top = best_static(counts, shapes_ptr, 8 * size + bits, LEVEL)
        if chosen > 0:
            shape = shapes_ptr + (chosen - 1) * 16
            below = top - 12
            row = i - (32 if LEVEL > 0 else 0)
            inside = (row >= 1) & (row <= 12)
            lengths = tl.load(shape + (12 - row), mask=inside, other=0)
            lengths = tl.where(i == 31, tl.load(shape + 12), lengths)
            lengths = tl.where(i == 0, tl.load(shape + 13), lengths)
            tl.store(head + 1, top.to(tl.uint8))
            size = tl.full((), 1, tl.int32)
    level = tl.where(chosen > 0, LEVEL, 0)
    mode = 3 if LEVEL > 0 else 2
    tl.store(head, (mode | (level << 2) | (chosen << 5)).to(tl.uint8))
    put_codes_of_chunk(lengths, codes_ptr + g * 64, LEVEL)
    info = info_ptr + g * 4
    tl.store(info, size + 1)
    tl.store(info + 1, (bits < total * 32).to(tl.int32))
    tl.store(info + 2, below)
