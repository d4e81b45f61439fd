"""The elements of largest magnitude, of both signs together or of each, in the order of positions.

A sample gives a magnitude that a few more elements reach than are to be chosen. One pass over the
tensor lists those candidates, and the exact threshold comes from them alone. Where the sample
misled and too few are found, a second pass lists all that isn't 0: the choice never depends on it.
"""

import math

import torch
import triton
import triton.language as tl

from deltawire.torch.gpu.kernels.launching import BLOCK, INTERPRETED, blocks, launch
from deltawire.torch.gpu.kernels.magnitude import find_largest, load_sum

SAMPLE = 16384  # elements: a tensor that has no more is looked at as a whole
TILES = 1 if INTERPRETED else 8  # of BLOCK elements, listed by a program
LISTED = 8192 if INTERPRETED else 512  # candidates at a time
DIGIT = tl.constexpr(8)  # bits of the threshold that a round finds
ROW = 8  # numbers of a side in `chosen`
# What a side's row of `chosen` holds.
PREFIX = tl.constexpr(0)  # the bits of the smallest magnitude that is chosen, as far as known
NEED = tl.constexpr(1)  # how many are to be chosen among those that begin so
COUNT = tl.constexpr(2)  # how many are chosen
LEAST = tl.constexpr(3)  # the smallest magnitude of a candidate
FOUND = tl.constexpr(4)  # how many candidates there are


@triton.jit(do_not_specialize=["n", "rank"])
def guess_least(
    x_ptr,
    r_ptr,
    chosen_ptr,
    n,
    rank,
    HAS_R: tl.constexpr,
    SIDES: tl.constexpr,
    LOG_SAMPLE: tl.constexpr,
):
    """The magnitude of this rank among 2^LOG_SAMPLE elements, at least 1. A side a program.

    An element of each of as many equal parts is drawn, so that no period of the tensor shows.
    """
    side = tl.program_id(0)
    i = tl.arange(0, 1 << LOG_SAMPLE).to(tl.int64)
    count = tl.full((), 0, tl.int64) + n
    draw = ((i * 40503) ^ (i >> 3)) & 0xFFFF
    part = (((i << 16) + draw) >> 8) * count >> (LOG_SAMPLE + 8)
    at = tl.where(count <= (1 << LOG_SAMPLE), i, part)
    bits = load_sum(x_ptr, r_ptr, at, at < count, HAS_R).to(tl.int32, bitcast=True)
    magnitude = bits & 0x7FFFFFFF
    if SIDES == 2:
        magnitude = tl.where((bits < 0).to(tl.int32) == side, magnitude, 0)
    least = tl.full((), 0, tl.int32)
    for bit in range(31):
        trial = least | (1 << (30 - bit))
        reached = tl.sum((magnitude >= trial).to(tl.int32), axis=0)
        least = tl.where(reached >= rank, trial, least)
    tl.store(chosen_ptr + side * 8 + LEAST, tl.maximum(least, 1))


@triton.jit
def too_few(chosen_ptr, k, SIDE: tl.constexpr):
    """Whether a side has fewer candidates than are to be chosen, though there may be more."""
    row = chosen_ptr + 8 * SIDE
    return (tl.load(row + FOUND) < k) & (tl.load(row + LEAST) > 1)


@triton.jit(do_not_specialize=["n", "k"])
def list_candidates(
    x_ptr,
    r_ptr,
    left_ptr,
    status_ptr,
    chosen_ptr,
    found_ptr,
    list_ptr,
    bits_ptr,
    n,
    k,
    HAS_R: tl.constexpr,
    CHECKED: tl.constexpr,
    AGAIN: tl.constexpr,
    SIDES: tl.constexpr,
    TILES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Input plus residual into left; positions and bits of each program's candidates, in order.

    CHECKED: the largest magnitude is known, and nothing is written if it refuses the part.
    AGAIN: nothing is done unless a side has too few, and then all of it that isn't 0 is listed.
    """
    least = tl.load(chosen_ptr + LEAST)
    least1 = tl.load(chosen_ptr + (SIDES - 1) * 8 + LEAST)
    if CHECKED:
        n = tl.where(tl.load(status_ptr) < 0x7F800000, n, 0)
    tiles = TILES
    if AGAIN:
        missed = too_few(chosen_ptr, k, 0)
        missed1 = too_few(chosen_ptr, k, SIDES - 1)
        least = tl.where(missed, 1, least)
        least1 = tl.where(missed1, 1, least1)
        tiles = tl.where(missed | missed1, TILES, 0)
    begin = tl.program_id(0).to(tl.int64) * (TILES * BLOCK)
    total = tl.full((), 0, tl.int32)
    negative = tl.full((), 0, tl.int32)
    for tile in range(tiles):
        at = begin + tile * BLOCK + tl.arange(0, BLOCK)
        x = load_sum(x_ptr, r_ptr, at, at < n, HAS_R)
        if HAS_R:
            tl.store(left_ptr + at, x, mask=at < n)
        bits = x.to(tl.int32, bitcast=True)
        bound = tl.where(bits < 0, least1, least) if SIDES == 2 else least
        good = (at < n) & ((bits & 0x7FFFFFFF) >= bound)
        place = begin + total + tl.cumsum(good.to(tl.int32), 0) - 1
        tl.store(list_ptr + place, at.to(tl.int32), mask=good)
        tl.store(bits_ptr + place, bits, mask=good)
        total += tl.sum(good.to(tl.int32), axis=0)
        if SIDES == 2:
            negative += tl.sum((good & (bits < 0)).to(tl.int32), axis=0)
    if tiles > 0:
        tl.store(found_ptr + tl.program_id(0), total)
        if not AGAIN:
            tl.atomic_add(chosen_ptr + FOUND, total - negative, sem="relaxed")
            if SIDES == 2:
                tl.atomic_add(chosen_ptr + 8 + FOUND, negative, sem="relaxed")


@triton.jit
def load_candidates(bits_ptr, i, total, SIDES: tl.constexpr):
    """Magnitudes and sides of a program's candidates; -1 where there is none."""
    bits = tl.load(bits_ptr + i, mask=i < total, other=0)
    side = (bits < 0).to(tl.int32) if SIDES == 2 else tl.zeros_like(bits)
    return tl.where(i < total, bits & 0x7FFFFFFF, -1), side


@triton.jit(do_not_specialize=["slot"])
def count_digits(
    bits_ptr,
    found_ptr,
    chosen_ptr,
    bins_ptr,
    status_ptr,
    slot,
    SIDES: tl.constexpr,
    SHIFT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A histogram of the next digit of the candidates that begin as the smallest chosen.

    The first round finds the largest magnitude, too. It is a candidate.
    """
    program = tl.program_id(0)
    total = tl.load(found_ptr + program)
    bits_ptr += program.to(tl.int64) * slot
    mine = tl.load(chosen_ptr + PREFIX)
    mine1 = tl.load(chosen_ptr + (SIDES - 1) * 8 + PREFIX)
    bins = tl.zeros((256 * SIDES,), tl.int32)
    most = tl.zeros((BLOCK,), tl.int32)
    for first in range(0, total, BLOCK):
        i = first + tl.arange(0, BLOCK)
        magnitude, side = load_candidates(bits_ptr, i, total, SIDES)
        key = ((magnitude >> SHIFT) & 255) + (side << DIGIT)
        if SHIFT == 24:
            most = tl.maximum(most, magnitude)
            bins += tl.histogram(key, 256 * SIDES, mask=magnitude >= 0)
        else:
            begins = tl.where(side == 1, mine1, mine) if SIDES == 2 else mine
            ok = (magnitude >= 0) & ((magnitude >> (SHIFT + DIGIT)) == begins)
            bins += tl.histogram(key, 256 * SIDES, mask=ok)
    i = tl.arange(0, 256 * SIDES)
    tl.atomic_add(bins_ptr + i, bins, mask=bins != 0, sem="relaxed")
    if SHIFT == 24:
        tl.atomic_max(status_ptr, tl.max(most, axis=0), sem="relaxed")


@triton.jit(do_not_specialize=["k"])
def choose_bin(chosen_ptr, bins_ptr, k, FIRST: tl.constexpr):
    """The bin in which the smallest chosen magnitude lies. A side a program."""
    side = tl.program_id(0)
    chosen = chosen_ptr + side * 8
    down = 255 - tl.arange(0, 256)
    counts = tl.load(bins_ptr + (side << DIGIT) + down)
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


@triton.jit(do_not_specialize=["slot", "programs"])
def count_chosen(
    bits_ptr,
    found_ptr,
    chosen_ptr,
    tally_ptr,
    slot,
    programs,
    SIDES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Of each program's candidates and side: how many are larger than the smallest, and equal."""
    program = tl.program_id(0)
    total = tl.load(found_ptr + program)
    bits_ptr += program.to(tl.int64) * slot
    for s in tl.static_range(SIDES):
        least = tl.load(chosen_ptr + 8 * s + PREFIX)
        above = tl.zeros((BLOCK,), tl.int32)
        equal = tl.zeros((BLOCK,), tl.int32)
        for first in range(0, total, BLOCK):
            i = first + tl.arange(0, BLOCK)
            magnitude, side = load_candidates(bits_ptr, i, total, SIDES)
            above += ((side == s) & (magnitude > least)).to(tl.int32)
            equal += ((side == s) & (magnitude == least)).to(tl.int32)
        tl.store(tally_ptr + (2 * s) * programs + program, tl.sum(above, axis=0))
        tl.store(tally_ptr + (2 * s + 1) * programs + program, tl.sum(equal, axis=0))


@triton.jit(do_not_specialize=["slot", "programs", "k"])
def list_chosen(
    list_ptr,
    bits_ptr,
    found_ptr,
    chosen_ptr,
    tally_ptr,
    out_ptr,
    k,
    slot,
    programs,
    SIDES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Positions of what is chosen, in order; those of side 1 from k on.

    tally has running sums: what stands before a program's is the sum up to the one before it.
    """
    program = tl.program_id(0)
    total = tl.load(found_ptr + program)
    list_ptr += program.to(tl.int64) * slot
    bits_ptr += program.to(tl.int64) * slot
    for s in tl.static_range(SIDES):
        least = tl.load(chosen_ptr + 8 * s + PREFIX)
        need = tl.load(chosen_ptr + 8 * s + NEED)
        sums = tally_ptr + (2 * s) * programs + program
        equals = tl.load(sums + programs - 1, mask=program > 0, other=0)
        rank = tl.load(sums - 1, mask=program > 0, other=0) + tl.minimum(equals, need)
        for first in range(0, total, BLOCK):
            i = first + tl.arange(0, BLOCK)
            magnitude, side = load_candidates(bits_ptr, i, total, SIDES)
            equal = ((side == s) & (magnitude == least)).to(tl.int32)
            before = equals + tl.cumsum(equal, 0) - equal
            taken = ((side == s) & (magnitude > least)) | ((equal != 0) & (before < need))
            position = tl.load(list_ptr + i, mask=taken, other=0)
            place = rank + tl.cumsum(taken.to(tl.int32), 0) - 1
            tl.store(out_ptr + s * k + place, position, mask=taken)
            equals += tl.sum(equal, axis=0)
            rank += tl.sum(taken.to(tl.int32), axis=0)


def sample_rank(n: int, k: int) -> int:
    """The rank in the sample that k of n elements reach but once in thousands of tensors."""
    if n <= SAMPLE:
        return k
    expected = SAMPLE * k / n
    return math.ceil(expected + 4 * math.sqrt(expected) + 4)


def select(
    values: torch.Tensor,
    residual: torch.Tensor | None,
    after: torch.Tensor,
    status: torch.Tensor,
    k: int,
    sides: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Puts input plus residual into `after`, which is `values` where there is no residual.

    status[0] becomes the largest magnitude's bits.

    Returns:
        The positions, k for each side (int32, to be read as unsigned), and ROW numbers of each
        side: the smallest magnitude's bits, how many of its equals are chosen, how many are chosen
        in all; the others have no meaning.
    """
    n, device = values.numel(), values.device
    has = residual is not None
    checked = has and after.data_ptr() == residual.data_ptr()
    if checked:
        find_largest(values, residual, status)
    slot = TILES * BLOCK
    programs = blocks(n, slot)
    bins = torch.zeros((4, 256 * sides), dtype=torch.int32, device=device)
    chosen = torch.zeros(ROW * sides, dtype=torch.int32, device=device)
    found = torch.empty(programs, dtype=torch.int32, device=device)
    listed, bits = torch.empty((2, programs * slot), dtype=torch.int32, device=device)
    r = residual if has else values
    sample = {"HAS_R": has, "SIDES": sides, "LOG_SAMPLE": SAMPLE.bit_length() - 1}
    launch(guess_least, sides, values, r, chosen, n, sample_rank(n, k), **sample, warps=16)
    lists = (status, chosen, found, listed, bits, n, k)
    tiles = {"SIDES": sides, "TILES": TILES, "BLOCK": BLOCK}
    kind = {"HAS_R": has, "CHECKED": checked, "AGAIN": False, **tiles}
    launch(list_candidates, programs, values, r, after, *lists, **kind)
    if n > SAMPLE:
        kind |= {"HAS_R": False, "AGAIN": True}
        launch(list_candidates, programs, after, after, after, *lists, **kind)
    sizes = {"SIDES": sides, "BLOCK": LISTED, "warps": 4}
    for number, shift in enumerate((24, 16, 8, 0)):
        here = (bits, found, chosen, bins[number], status, slot)
        launch(count_digits, programs, *here, SHIFT=shift, **sizes)
        launch(choose_bin, sides, chosen, bins[number], k, FIRST=number == 0, warps=4)
    tally = torch.empty(2 * sides, programs, dtype=torch.int32, device=device)
    launch(count_chosen, programs, bits, found, chosen, tally, slot, programs, **sizes)
    sums = torch.cumsum(tally, 1)
    out = torch.empty(sides * k, dtype=torch.int32, device=device)
    where = (listed, bits, found, chosen, sums, out, k, slot, programs)
    launch(list_chosen, programs, *where, **sizes)
    return out, chosen
