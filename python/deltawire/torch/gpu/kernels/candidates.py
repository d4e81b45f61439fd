"""The rules by which the elements of largest magnitude are chosen: steps of `selection`.

Sides are 0, or with two 0 for values from +0 on and 1 for negative ones.
"""

import triton
import triton.language as tl

ROW = 8  # numbers of a side in `chosen`
DIGIT = tl.constexpr(8)  # bits of the threshold that a round finds
# What a side's row of `chosen` holds.
PREFIX = tl.constexpr(0)  # the bits of the smallest magnitude that is chosen, as far as known
NEED = tl.constexpr(1)  # how many are to be chosen among those that begin so
COUNT = tl.constexpr(2)  # how many are chosen
LEAST = tl.constexpr(3)  # the smallest magnitude of a candidate
FOUND = tl.constexpr(4)  # how many candidates there are


@triton.jit
def sample_of(n, LOG_SAMPLE: tl.constexpr):
    """Where 2^LOG_SAMPLE elements are drawn: all of a tensor that has no more.

    An element of each of as many equal parts is drawn, so that no period of the tensor shows.
    """
    i = tl.arange(0, 1 << LOG_SAMPLE).to(tl.int64)
    count = tl.full((), 0, tl.int64) + n
    draw = ((i * 40503) ^ (i >> 3)) & 0xFFFF
    part = (((i << 16) + draw) >> 8) * count >> (LOG_SAMPLE + 8)
    return tl.where(count <= (1 << LOG_SAMPLE), i, part)


@triton.jit
def least_of(x, side, rank, SIDES: tl.constexpr):
    """The magnitude of this rank among a side's, at least 1."""
    bits = x.to(tl.int32, bitcast=True)
    magnitude = bits & 0x7FFFFFFF
    if SIDES == 2:
        magnitude = tl.where((bits < 0).to(tl.int32) == side, magnitude, 0)
    least = tl.full((), 0, tl.int32)
    for bit in range(31):
        trial = least | (1 << (30 - bit))
        reached = tl.sum((magnitude >= trial).to(tl.int32), axis=0)
        least = tl.where(reached >= rank, trial, least)
    return tl.maximum(least, 1)


@triton.jit
def too_few(chosen_ptr, k, SIDE: tl.constexpr):
    """Whether a side has fewer candidates than are to be chosen, though there may be more."""
    row = chosen_ptr + 8 * SIDE
    return (tl.load(row + FOUND) < k) & (tl.load(row + LEAST) > 1)


@triton.jit
def bounds_of(chosen_ptr, k, AGAIN: tl.constexpr, SIDES: tl.constexpr):
    """The least magnitude of each side's candidates, and whether there is anything to do.

    AGAIN: not unless a side has too few, and then all of it that isn't 0 is a candidate.
    """
    least = tl.load(chosen_ptr + LEAST)
    least1 = tl.load(chosen_ptr + (SIDES - 1) * 8 + LEAST)
    wanted = least > 0
    if AGAIN:
        missed = too_few(chosen_ptr, k, 0)
        missed1 = too_few(chosen_ptr, k, SIDES - 1)
        least = tl.where(missed, 1, least)
        least1 = tl.where(missed1, 1, least1)
        wanted = missed | missed1
    return least, least1, wanted


@triton.jit
def put_candidates(x, at, ok, least, least1, list_ptr, bits_ptr, SIDES: tl.constexpr):
    """Positions and bits of a block's candidates, in order; how many there are, and how many of
    them are negative."""
    bits = x.to(tl.int32, bitcast=True)
    bound = tl.where(bits < 0, least1, least) if SIDES == 2 else least
    good = ok & ((bits & 0x7FFFFFFF) >= bound)
    place = tl.cumsum(good.to(tl.int32), 0) - 1
    tl.store(list_ptr + place, at.to(tl.int32), mask=good)
    tl.store(bits_ptr + place, bits, mask=good)
    negative = tl.sum((good & (bits < 0)).to(tl.int32), axis=0)
    return tl.sum(good.to(tl.int32), axis=0), negative


@triton.jit
def count_candidates(chosen_ptr, total, negative, SIDES: tl.constexpr):
    """Adds a program's candidates to those of the tensor."""
    if SIDES == 2:
        tl.atomic_add(chosen_ptr + FOUND, total - negative, sem="relaxed")
        tl.atomic_add(chosen_ptr + 8 + FOUND, negative, sem="relaxed")
    else:
        tl.atomic_add(chosen_ptr + FOUND, total, sem="relaxed")


@triton.jit
def load_candidates(bits_ptr, i, total, SIDES: tl.constexpr):
    """Magnitudes and sides of a program's candidates; -1 where there is none."""
    bits = tl.load(bits_ptr + i, mask=i < total, other=0)
    side = (bits < 0).to(tl.int32) if SIDES == 2 else tl.zeros_like(bits)
    return tl.where(i < total, bits & 0x7FFFFFFF, -1), side


@triton.jit
def digits_of(
    bits_ptr,
    total,
    chosen_ptr,
    SIDES: tl.constexpr,
    SHIFT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A histogram of the next digit of a program's candidates that begin as the smallest chosen;
    in the first round of all."""
    mine = tl.load(chosen_ptr + PREFIX)
    mine1 = tl.load(chosen_ptr + (SIDES - 1) * 8 + PREFIX)
    bins = tl.zeros((256 * SIDES,), tl.int32)
    for first in range(0, total, BLOCK):
        i = first + tl.arange(0, BLOCK)
        magnitude, side = load_candidates(bits_ptr, i, total, SIDES)
        key = ((magnitude >> SHIFT) & 255) + (side << DIGIT)
        if SHIFT == 24:
            bins += tl.histogram(key, 256 * SIDES, mask=magnitude >= 0)
        else:
            begins = tl.where(side == 1, mine1, mine) if SIDES == 2 else mine
            ok = (magnitude >= 0) & ((magnitude >> (SHIFT + DIGIT)) == begins)
            bins += tl.histogram(key, 256 * SIDES, mask=ok)
    return bins


@triton.jit
def find_bin(chosen, bins_ptr, k, FIRST: tl.constexpr):
    """The bin in which a side's smallest chosen magnitude lies."""
    down = 255 - tl.arange(0, 256)
    counts = tl.load(bins_ptr + down)
    above = tl.cumsum(counts, 0)
    if FIRST:
        need = tl.minimum(tl.sum(counts, axis=0), k).to(tl.int32)
        tl.store(chosen + COUNT, need)
        prefix = tl.zeros((), tl.int32)
    else:
        need = tl.load(chosen + NEED)
        prefix = tl.load(chosen + PREFIX)
    hit = (above >= need) & (above - counts < need)  # none where nothing is needed
    key = tl.sum(tl.where(hit, down, 0), axis=0)
    before = tl.sum(tl.where(hit, above - counts, 0), axis=0)
    tl.store(chosen + PREFIX, tl.where(need > 0, (prefix << DIGIT) | key, 0x7FFFFFFF))
    tl.store(chosen + NEED, need - before)


@triton.jit
def tally_of(
    bits_ptr, total, chosen_ptr, s: tl.constexpr, SIDES: tl.constexpr, BLOCK: tl.constexpr
):
    """Of a program's candidates of a side: how many are larger than the smallest, and equal."""
    least = tl.load(chosen_ptr + 8 * s + PREFIX)
    above = tl.zeros((BLOCK,), tl.int32)
    equal = tl.zeros((BLOCK,), tl.int32)
    for first in range(0, total, BLOCK):
        i = first + tl.arange(0, BLOCK)
        magnitude, side = load_candidates(bits_ptr, i, total, SIDES)
        above += ((side == s) & (magnitude > least)).to(tl.int32)
        equal += ((side == s) & (magnitude == least)).to(tl.int32)
    return tl.sum(above, axis=0), tl.sum(equal, axis=0)


@triton.jit
def put_chosen(
    list_ptr,
    bits_ptr,
    total,
    chosen_ptr,
    above,
    equals,
    out_ptr,
    values_ptr,
    s: tl.constexpr,
    SIDES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Positions and bits of a program's candidates of a side that are chosen, in order. above,
    equals: how many stand before the program's."""
    least = tl.load(chosen_ptr + 8 * s + PREFIX)
    need = tl.load(chosen_ptr + 8 * s + NEED)
    rank = above + tl.minimum(equals, need)
    for first in range(0, total, BLOCK):
        i = first + tl.arange(0, BLOCK)
        magnitude, side = load_candidates(bits_ptr, i, total, SIDES)
        equal = ((side == s) & (magnitude == least)).to(tl.int32)
        before = equals + tl.cumsum(equal, 0) - equal
        taken = ((side == s) & (magnitude > least)) | ((equal != 0) & (before < need))
        position = tl.load(list_ptr + i, mask=taken, other=0)
        place = rank + tl.cumsum(taken.to(tl.int32), 0) - 1
        tl.store(out_ptr + place, position, mask=taken)
        tl.store(values_ptr + place, tl.load(bits_ptr + i, mask=taken, other=0), mask=taken)
        equals += tl.sum(equal, axis=0)
        rank += tl.sum(taken.to(tl.int32), axis=0)
