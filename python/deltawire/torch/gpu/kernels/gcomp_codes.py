"""gcomp's codes: lengths of weights, and codes of lengths (src/codecs/gcomp/spec.md, sections 2 and
6). Symbols are those of gcomp_tables.
"""

import triton
import triton.language as tl

NOTHING = tl.constexpr(1 << 29)  # a weight above all others


@triton.jit
def count_below(list_ptr, value, EQUAL: tl.constexpr):
    """How many of the 256 numbers of a sorted list are less than each value, or also equal."""
    found = tl.zeros_like(value)
    for back in range(9):
        step = 256 >> back
        at = found + step - 1
        other = tl.load(list_ptr + at, mask=at < 256, other=NOTHING + 1)
        found += tl.where((other <= value) if EQUAL else (other < value), step, 0)
    return found


@triton.jit
def lengths_of(weights, scratch):
    """Optimal lengths of at most 8 bits, by package-merge: of each of 8 lists some of the rarest
    leaves are taken, whose codes get a bit longer."""
    i = tl.arange(0, 256)
    pairs_ptr = scratch + 256
    merged_ptr = scratch + 512
    valid = weights > 0
    count = tl.sum(valid.to(tl.int32), axis=0)
    key = tl.where(valid, weights, NOTHING >> 9) * 256 + 255 - i
    rank = tl.sum((key[None, :] < key[:, None]).to(tl.int32), axis=1)
    leaf = tl.where(valid, weights, NOTHING)
    tl.debug_barrier()
    tl.store(scratch + rank, leaf)
    tl.store(merged_ptr + rank, leaf)
    tl.debug_barrier()
    leaves = tl.load(scratch + i)
    round_ = tl.arange(0, 8)[:, None]
    places = i[None, :] + round_ * 0
    length = count
    for number in range(1, 8):
        packages = length // 2
        there = i < packages
        pairs = tl.load(merged_ptr + 2 * i, mask=there, other=0)
        pairs += tl.load(merged_ptr + 2 * i + 1, mask=there, other=0)
        pairs = tl.where(there, pairs, NOTHING)
        tl.store(pairs_ptr + i, pairs)
        tl.debug_barrier()
        place = i + count_below(pairs_ptr, leaves, False)
        behind = i + count_below(scratch, pairs, True)
        tl.store(merged_ptr + place, leaves, mask=i < count)
        tl.store(merged_ptr + behind, pairs, mask=there)
        tl.debug_barrier()
        places = tl.where(round_ == number, place[None, :], places)
        length = count + packages
    taken = 2 * (count - 1)
    lengths = tl.zeros((256,), tl.int32)
    for back in range(8):
        place = tl.sum(tl.where(round_ == 7 - back, places, 0), axis=0)
        mine = tl.sum(((place < taken) & (i < count)).to(tl.int32), axis=0)
        lengths += (valid & (rank < mine)).to(tl.int32)
        taken = 2 * (taken - mine)
    return lengths


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
def widths_of(UNUSED: tl.constexpr):
    """Bits of sign and mantissa behind each symbol's code; behind escapes and of tiny values those
    of level 0."""
    i = tl.arange(0, 256)
    width = 24 - UNUSED - (1 if UNUSED != 0 else 3) * (i >> 5)
    return tl.where(i == 0, 0, tl.where(i == 32, 24 - UNUSED, width))


@triton.jit
def put_codes_of_chunk(lengths, out, UNUSED: tl.constexpr):
    """For each symbol its code, first bit lowest, its length from bit 8 on, the width behind it
    from bit 16 on, and 1 << 24 for an escape. Symbols without a code have that of the lower level,
    or the escape's."""
    i = tl.arange(0, 256)
    begin, _ = places_of_codes(lengths)
    entry = reversed_8(begin) | (lengths << 8) | (widths_of(UNUSED) << 16)
    entry = tl.where(lengths > 0, entry | tl.where(i == 31, 1 << 24, 0), 0)
    escape = tl.sum(tl.where(i == 31, entry, 0), axis=0)
    entry = tl.where((entry == 0) & (i <= 32), escape, entry)
    level = tl.arange(0, 8)[:, None]
    rows = tl.reshape(entry, (8, 32))
    for number in range(1, 8):
        lower = tl.sum(tl.where(level == number - 1, rows, 0), axis=0)
        rows = tl.where((level == number) & (rows == 0), lower[None, :], rows)
    tl.store(out + i, tl.reshape(rows, (256,)))
