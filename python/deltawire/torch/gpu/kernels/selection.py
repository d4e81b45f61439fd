"""The elements of largest magnitude, of both signs together or of each, in the order of positions.

Three passes over the tensor find the candidates: those whose upper 11 bits of the magnitude are at
least the smallest that is chosen. All further passes read candidates alone.
"""

import torch
import triton
import triton.language as tl

from deltawire.torch.gpu.kernels.launching import BLOCK, INTERPRETED, blocks, launch
from deltawire.torch.gpu.kernels.magnitude import find_largest, load_sum

BINS = 4096  # of a round, both sides
TILES = 1 if INTERPRETED else 4
# What a side's row of `chosen` holds.
PREFIX = tl.constexpr(0)  # the bits of the smallest magnitude that is chosen, as far as known
NEED = tl.constexpr(1)  # how many are to be chosen among those that begin so
COUNT = tl.constexpr(2)  # how many are chosen


@triton.jit(do_not_specialize=["n"])
def count_first(
    x_ptr,
    r_ptr,
    left_ptr,
    bins_ptr,
    most_ptr,
    n,
    HAS_R: tl.constexpr,
    CHECKED: tl.constexpr,
    SIDES: tl.constexpr,
    TILES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Input plus residual into left; a histogram of the magnitudes' upper 11 bits.

    CHECKED: the largest magnitude is known, and nothing is written if it refuses the part.
    """
    if CHECKED:
        n = tl.where(tl.load(most_ptr) < 0x7F800000, n, 0)
    first = tl.program_id(0).to(tl.int64) * (TILES * BLOCK)
    bins = tl.zeros((2048 * SIDES,), tl.int32)
    most = tl.zeros((BLOCK,), tl.int32)
    for tile in range(TILES):
        at = first + tile * BLOCK + tl.arange(0, BLOCK)
        x = load_sum(x_ptr, r_ptr, at, at < n, HAS_R)
        if HAS_R:
            tl.store(left_ptr + at, x, mask=at < n)
        bits = x.to(tl.int32, bitcast=True)
        magnitude = bits & 0x7FFFFFFF
        most = tl.maximum(most, magnitude)
        key = magnitude >> 20
        if SIDES == 2:
            key += (bits < 0).to(tl.int32) << 11
        bins += tl.histogram(key, 2048 * SIDES, mask=magnitude != 0)
    i = tl.arange(0, 2048 * SIDES)
    tl.atomic_add(bins_ptr + i, bins, mask=bins != 0, sem="relaxed")
    if not CHECKED:
        tl.atomic_max(most_ptr, tl.max(most, axis=0), sem="relaxed")


@triton.jit(do_not_specialize=["k"])
def choose_bin(chosen_ptr, bins_ptr, k, FIRST: tl.constexpr, BITS: tl.constexpr):
    """The bin in which the smallest chosen magnitude lies. A side a program."""
    side = tl.program_id(0)
    chosen = chosen_ptr + side * 4
    i = tl.arange(0, 1 << BITS)
    down = (1 << BITS) - 1 - i
    counts = tl.load(bins_ptr + (side << BITS) + down)
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
    tl.store(chosen + PREFIX, tl.where(need > 0, (prefix << BITS) | key, 0x7FFFFFFF))
    tl.store(chosen + NEED, need - before)


@triton.jit
def is_candidate(bits, chosen_ptr, SIDE: tl.constexpr, SIDES: tl.constexpr):
    """Whether values of a side begin with the first prefix, or are larger."""
    magnitude = bits & 0x7FFFFFFF
    good = (magnitude != 0) & ((magnitude >> 20) >= tl.load(chosen_ptr + 4 * SIDE + PREFIX))
    if SIDES == 2:
        good = good & ((bits < 0) if SIDE == 1 else (bits >= 0))
    return good


@triton.jit(do_not_specialize=["n", "programs"])
def count_candidates(
    left_ptr, chosen_ptr, found_ptr, n, programs, SIDES: tl.constexpr, BLOCK: tl.constexpr
):
    """How many candidates each block has, side by side."""
    b = tl.program_id(0)
    at = b.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(left_ptr + at, mask=at < n, other=0.0).to(tl.float32)
    bits = x.to(tl.int32, bitcast=True)
    for side in tl.static_range(SIDES):
        good = is_candidate(bits, chosen_ptr, side, SIDES)
        tl.store(found_ptr + side * programs + b, tl.sum(good.to(tl.int32), axis=0))


@triton.jit(do_not_specialize=["n", "programs"])
def list_candidates(
    left_ptr,
    chosen_ptr,
    ends_ptr,
    list_ptr,
    n,
    programs,
    SIDES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The candidates' positions, in order; those of the negative side after the others."""
    b = tl.program_id(0)
    at = b.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(left_ptr + at, mask=at < n, other=0.0).to(tl.float32)
    bits = x.to(tl.int32, bitcast=True)
    for side in tl.static_range(SIDES):
        good = is_candidate(bits, chosen_ptr, side, SIDES).to(tl.int32)
        end = tl.load(ends_ptr + side * programs + b)
        rank = end - tl.sum(good, axis=0) + tl.cumsum(good, 0) - 1
        tl.store(list_ptr + rank, at.to(tl.int32), mask=good != 0)


@triton.jit
def load_candidates(left_ptr, list_ptr, middle, total, at, SIDES: tl.constexpr):
    """Magnitudes and sides of candidates; -1 where there is none."""
    ok = at < total
    position = tl.load(list_ptr + at, mask=ok, other=0).to(tl.uint32).to(tl.int64)
    x = tl.load(left_ptr + position, mask=ok, other=0.0).to(tl.float32)
    magnitude = tl.where(ok, x.to(tl.int32, bitcast=True) & 0x7FFFFFFF, -1)
    side = (at >= middle).to(tl.int32) if SIDES == 2 else tl.zeros_like(magnitude)
    return position, magnitude, side


@triton.jit
def bounds_of(ends_ptr, programs, SIDES: tl.constexpr):
    """Where the candidates of the first side end, and all."""
    return tl.load(ends_ptr + programs - 1), tl.load(ends_ptr + SIDES * programs - 1)


@triton.jit(do_not_specialize=["programs"])
def count_next(
    left_ptr,
    list_ptr,
    ends_ptr,
    chosen_ptr,
    bins_ptr,
    programs,
    SIDES: tl.constexpr,
    SHIFT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A histogram of the next 10 bits of the candidates that begin as the smallest chosen."""
    middle, total = bounds_of(ends_ptr, programs, SIDES)
    first = tl.program_id(0).to(tl.int64) * BLOCK
    if first < total:
        at = first + tl.arange(0, BLOCK)
        _, magnitude, side = load_candidates(left_ptr, list_ptr, middle, total, at, SIDES)
        mine = tl.load(chosen_ptr + 4 * side + PREFIX)
        ok = (magnitude >= 0) & ((magnitude >> (SHIFT + 10)) == mine)
        key = ((magnitude >> SHIFT) & 1023) + (side << 10)
        found = tl.histogram(key, 1024 * SIDES, mask=ok)
        i = tl.arange(0, 1024 * SIDES)
        tl.atomic_add(bins_ptr + i, found, mask=found != 0, sem="relaxed")


@triton.jit(do_not_specialize=["programs"])
def count_chosen(
    left_ptr,
    list_ptr,
    ends_ptr,
    chosen_ptr,
    tally_ptr,
    programs,
    SIDES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Of each block of candidates and side: how many are larger than the smallest, and equal."""
    middle, total = bounds_of(ends_ptr, programs, SIDES)
    b = tl.program_id(0)
    first = b.to(tl.int64) * BLOCK
    if first < total:
        at = first + tl.arange(0, BLOCK)
        _, magnitude, side = load_candidates(left_ptr, list_ptr, middle, total, at, SIDES)
        for s in tl.static_range(SIDES):
            least = tl.load(chosen_ptr + 4 * s + PREFIX)
            above = ((side == s) & (magnitude > least)).to(tl.int32)
            equal = ((side == s) & (magnitude == least)).to(tl.int32)
            tl.store(tally_ptr + (2 * s) * programs + b, tl.sum(above, axis=0))
            tl.store(tally_ptr + (2 * s + 1) * programs + b, tl.sum(equal, axis=0))


@triton.jit(do_not_specialize=["programs", "k"])
def list_chosen(
    left_ptr,
    list_ptr,
    ends_ptr,
    chosen_ptr,
    tally_ptr,
    out_ptr,
    k,
    programs,
    SIDES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Positions of what is chosen, in order; those of side 1 from k on.

    tally has running sums: what stands before a block is the sum up to the block before it.
    """
    middle, total = bounds_of(ends_ptr, programs, SIDES)
    b = tl.program_id(0)
    first = b.to(tl.int64) * BLOCK
    if first < total:
        at = first + tl.arange(0, BLOCK)
        position, magnitude, side = load_candidates(left_ptr, list_ptr, middle, total, at, SIDES)
        for s in tl.static_range(SIDES):
            least = tl.load(chosen_ptr + 4 * s + PREFIX)
            need = tl.load(chosen_ptr + 4 * s + NEED)
            sums = tally_ptr + (2 * s) * programs + b
            above0 = tl.load(sums - 1, mask=b > 0, other=0)
            equal0 = tl.load(sums + programs - 1, mask=b > 0, other=0)
            equal = ((side == s) & (magnitude == least)).to(tl.int32)
            before = equal0 + tl.cumsum(equal, 0) - equal
            taken = ((side == s) & (magnitude > least)) | ((equal != 0) & (before < need))
            taken = taken.to(tl.int32)
            rank = above0 + tl.minimum(equal0, need) + tl.cumsum(taken, 0) - 1
            tl.store(out_ptr + s * k + rank, position.to(tl.int32), mask=taken != 0)


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
        The positions, k for each side (int32, to be read as unsigned), and four numbers of each
        side: the smallest magnitude's bits, how many of its equals are chosen, how many are chosen
        in all, 0.
    """
    n, device = values.numel(), values.device
    has = residual is not None
    checked = has and after.data_ptr() == residual.data_ptr()
    if checked:
        find_largest(values, residual, status)
    bins = torch.zeros(3 * BINS + 8, dtype=torch.int32, device=device)
    chosen = bins[3 * BINS :]
    r = residual if has else values
    whole = (values, r, after, bins, status, n)
    programs = blocks(n, BLOCK)
    launch(
        count_first,
        blocks(n, TILES * BLOCK),
        *whole,
        HAS_R=has,
        CHECKED=checked,
        SIDES=sides,
        TILES=TILES,
        BLOCK=BLOCK,
    )
    launch(choose_bin, sides, chosen, bins, k, FIRST=True, BITS=11)
    sizes = {"SIDES": sides, "BLOCK": BLOCK}
    found = torch.empty(sides * programs, dtype=torch.int32, device=device)
    listed = torch.empty(n, dtype=torch.int32, device=device)
    launch(count_candidates, programs, after, chosen, found, n, programs, **sizes)
    ends = torch.cumsum(found, 0)
    launch(list_candidates, programs, after, chosen, ends, listed, n, programs, **sizes)
    candidates = (after, listed, ends, chosen)
    for number, shift in enumerate((10, 0), 1):
        here = bins[number * BINS :]
        launch(count_next, programs, *candidates, here, programs, SHIFT=shift, **sizes)
        launch(choose_bin, sides, chosen, here, k, FIRST=False, BITS=10)
    tally = torch.zeros(2 * sides, programs, dtype=torch.int32, device=device)
    launch(count_chosen, programs, *candidates, tally, programs, **sizes)
    sums = torch.cumsum(tally, 1)
    out = torch.empty(sides * k, dtype=torch.int32, device=device)
    launch(list_chosen, programs, *candidates, sums, out, k, programs, **sizes)
    return out, chosen
