"""Kernels of `selection`, which chooses the elements of largest magnitude of each of many parts.

Sides are 0, or with two 0 for values from +0 on and 1 for negative ones. A part's numbers in
`chosen` and `bins` lie at its number in the batch, its sides one after another. Programs that list
candidates follow each other part by part.
"""

import triton
import triton.language as tl

from deltawire.torch.gpu.kernels.part_tables import COUNT, load_part_sum, store_residual, unit_of

ROW = 8  # numbers of a side in `chosen`
DIGIT = tl.constexpr(8)  # bits of the threshold that a round finds
# What a side's row of `chosen` holds.
PREFIX = tl.constexpr(0)  # the bits of the smallest magnitude that is chosen, as far as known
NEED = tl.constexpr(1)  # how many are to be chosen among those that begin so
CHOSEN = tl.constexpr(2)  # how many are chosen
LEAST = tl.constexpr(3)  # the smallest magnitude of a candidate
FOUND = tl.constexpr(4)  # how many candidates there are

# Columns of a row of the plan, which are int64 numbers.
K = tl.constexpr(0)  # how many are chosen, of each side, at most
RANK = tl.constexpr(1)  # in the sample, of the least candidate
FIRST = tl.constexpr(2)  # where the positions of what is chosen are listed
SUMS = tl.constexpr(3)  # the first of the units that sum it
PLAN_COLUMNS = 4


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
def guess_parts_least(
    table_ptr,
    parts_ptr,
    plan_ptr,
    chosen_ptr,
    KIND: tl.constexpr,
    SCALED: tl.constexpr,
    SIDES: tl.constexpr,
    LOG_SAMPLE: tl.constexpr,
):
    """The magnitude of the plan's rank in a sample, at least 1. A side of a part a program."""
    part = tl.load(parts_ptr + tl.program_id(0)).to(tl.int64)
    side = tl.program_id(1)
    row = table_ptr + part * 8
    n = tl.load(row + COUNT)
    at = sample_of(n, LOG_SAMPLE)
    bits = load_part_sum(row, at, at < n, KIND, SCALED).to(tl.int32, bitcast=True)
    rank = tl.load(plan_ptr + part * 4 + RANK)
    magnitude = bits & 0x7FFFFFFF
    if SIDES == 2:
        magnitude = tl.where((bits < 0).to(tl.int32) == side, magnitude, 0)
    least = tl.full((), 0, tl.int32)
    for bit in range(31):
        trial = least | (1 << (30 - bit))
        reached = tl.sum((magnitude >= trial).to(tl.int32), axis=0)
        least = tl.where(reached >= rank, trial, least)
    tl.store(chosen_ptr + (part * SIDES + side) * 8 + LEAST, tl.maximum(least, 1))


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
def list_parts_candidates(
    table_ptr,
    units_ptr,
    plan_ptr,
    chosen_ptr,
    found_ptr,
    list_ptr,
    bits_ptr,
    KIND: tl.constexpr,
    SCALED: tl.constexpr,
    AGAIN: tl.constexpr,
    SIDES: tl.constexpr,
    TILES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Positions and bits of each program's candidates, in order. The new residual is input plus
    residual for now."""
    part, unit = unit_of(units_ptr)
    row = table_ptr + part * 8
    n = tl.load(row + COUNT)
    chosen_ptr += part * (8 * SIDES)
    least, least1, wanted = bounds_of(chosen_ptr, tl.load(plan_ptr + part * 4), AGAIN, SIDES)
    tiles = TILES
    if AGAIN:
        tiles = tl.where(wanted, TILES, 0)
    begin = tl.program_id(0).to(tl.int64) * (TILES * BLOCK)
    total = tl.full((), 0, tl.int32)
    negative = tl.full((), 0, tl.int32)
    for tile in range(tiles):
        at = (unit * TILES + tile) * BLOCK + tl.arange(0, BLOCK)
        x = load_part_sum(row, at, at < n, KIND, SCALED)
        if not AGAIN:
            store_residual(row, at, at < n, x)
        bits = x.to(tl.int32, bitcast=True)
        bound = tl.where(bits < 0, least1, least) if SIDES == 2 else least
        good = (at < n) & ((bits & 0x7FFFFFFF) >= bound)
        place = begin + total + tl.cumsum(good.to(tl.int32), 0) - 1
        tl.store(list_ptr + place, at.to(tl.int32), mask=good)
        tl.store(bits_ptr + place, bits, mask=good)
        total += tl.sum(good.to(tl.int32), axis=0)
        negative += tl.sum((good & (bits < 0)).to(tl.int32), axis=0)
    if tiles > 0:
        tl.store(found_ptr + tl.program_id(0), total)
        if not AGAIN:
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


@triton.jit(do_not_specialize=["slot"])
def count_parts_digits(
    units_ptr,
    bits_ptr,
    found_ptr,
    chosen_ptr,
    bins_ptr,
    slot,
    SIDES: tl.constexpr,
    SHIFT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A histogram of the next digit of each side's candidates that begin as the smallest chosen; in
    the first round of all."""
    part, _ = unit_of(units_ptr)
    program = tl.program_id(0)
    total = tl.load(found_ptr + program)
    bits_ptr += program.to(tl.int64) * slot
    chosen_ptr += part * (8 * SIDES)
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
    i = tl.arange(0, 256 * SIDES)
    bins_ptr += part * (256 * SIDES)
    tl.atomic_add(bins_ptr + i, bins, mask=bins != 0, sem="relaxed")


@triton.jit
def choose_parts_bin(
    parts_ptr, plan_ptr, chosen_ptr, bins_ptr, FIRST: tl.constexpr, SIDES: tl.constexpr
):
    """The bin in which a side's smallest chosen magnitude lies. A side of a part a program."""
    part = tl.load(parts_ptr + tl.program_id(0)).to(tl.int64)
    row = part * SIDES + tl.program_id(1)
    k = tl.load(plan_ptr + part * 4)
    chosen = chosen_ptr + row * 8
    down = 255 - tl.arange(0, 256)
    counts = tl.load(bins_ptr + row * 256 + down)
    above = tl.cumsum(counts, 0)
    if FIRST:
        need = tl.minimum(tl.sum(counts, axis=0), k).to(tl.int32)
        tl.store(chosen + CHOSEN, need)
        prefix = tl.zeros((), tl.int32)
    else:
        need = tl.load(chosen + NEED)
        prefix = tl.load(chosen + PREFIX)
    hit = (above >= need) & (above - counts < need)  # none where nothing is needed
    key = tl.sum(tl.where(hit, down, 0), axis=0)
    before = tl.sum(tl.where(hit, above - counts, 0), axis=0)
    tl.store(chosen + PREFIX, tl.where(need > 0, (prefix << DIGIT) | key, 0x7FFFFFFF))
    tl.store(chosen + NEED, need - before)


@triton.jit(do_not_specialize=["slot"])
def count_parts_chosen(
    units_ptr,
    bits_ptr,
    found_ptr,
    chosen_ptr,
    tally_ptr,
    slot,
    SIDES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """How many of each program's candidates are larger than the smallest chosen, and how many are
    equal; rows of a side one after another."""
    part, _ = unit_of(units_ptr)
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    total = tl.load(found_ptr + program)
    bits_ptr += program.to(tl.int64) * slot
    for s in tl.static_range(SIDES):
        least = tl.load(chosen_ptr + part * (8 * SIDES) + 8 * s + PREFIX)
        above = tl.zeros((BLOCK,), tl.int32)
        equal = tl.zeros((BLOCK,), tl.int32)
        for first in range(0, total, BLOCK):
            i = first + tl.arange(0, BLOCK)
            magnitude, side = load_candidates(bits_ptr, i, total, SIDES)
            above += ((side == s) & (magnitude > least)).to(tl.int32)
            equal += ((side == s) & (magnitude == least)).to(tl.int32)
        row = tally_ptr + (2 * s) * programs + program
        tl.store(row, tl.sum(above, axis=0))
        tl.store(row + programs, tl.sum(equal, axis=0))


@triton.jit
def sum_before(sums_ptr, program, first):
    """The sum over the programs from the first on that stand before this one."""
    here = tl.load(sums_ptr + program - 1, mask=program > first, other=0)
    return here - tl.load(sums_ptr + first - 1, mask=(program > first) & (first > 0), other=0)


@triton.jit(do_not_specialize=["slot"])
def list_parts_chosen(
    units_ptr,
    plan_ptr,
    list_ptr,
    bits_ptr,
    found_ptr,
    chosen_ptr,
    tally_ptr,
    out_ptr,
    values_ptr,
    slot,
    SIDES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Positions and bits of what is chosen, in order; those of side 1 from k on. tally has running
    sums over the programs of all parts."""
    part, unit = unit_of(units_ptr)
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    total = tl.load(found_ptr + program)
    list_ptr += program.to(tl.int64) * slot
    bits_ptr += program.to(tl.int64) * slot
    k = tl.load(plan_ptr + part * 4)
    begin = tl.load(plan_ptr + part * 4 + FIRST)
    chosen_ptr += part * (8 * SIDES)
    for s in tl.static_range(SIDES):
        sums = tally_ptr + (2 * s) * programs
        above = sum_before(sums, program, program - unit)
        equals = sum_before(sums + programs, program, program - unit)
        out = out_ptr + begin + s * k
        values = values_ptr + begin + s * k
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
            tl.store(out + place, position, mask=taken)
            tl.store(values + place, tl.load(bits_ptr + i, mask=taken, other=0), mask=taken)
            equals += tl.sum(equal, axis=0)
            rank += tl.sum(taken.to(tl.int32), axis=0)
