"""The elements of largest magnitude, of both signs together or of each, in the order of positions.

A sample gives a magnitude that a few more elements reach than are to be chosen. One pass over the
tensor lists those candidates, and the exact threshold comes from them alone. Where the sample
misled and too few are found, a second pass lists all that isn't 0: the choice never depends on it.
"""

import math

import torch
import triton
import triton.language as tl

from deltawire.torch.gpu.kernels.candidates import (
    LEAST,
    ROW,
    bounds_of,
    count_candidates,
    digits_of,
    find_bin,
    least_of,
    put_candidates,
    put_chosen,
    sample_of,
    tally_of,
)
from deltawire.torch.gpu.kernels.launching import BLOCK, INTERPRETED, blocks, launch
from deltawire.torch.gpu.kernels.magnitude import find_largest, load_sum

SAMPLE = 16384  # elements: a tensor that has no more is looked at as a whole
TILES = 1 if INTERPRETED else 8  # of BLOCK elements, listed by a program
LISTED = 8192 if INTERPRETED else 512  # candidates at a time


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
    """The magnitude of this rank in a sample. A side a program."""
    side = tl.program_id(0)
    at = sample_of(n, LOG_SAMPLE)
    x = load_sum(x_ptr, r_ptr, at, at < n, HAS_R)
    tl.store(chosen_ptr + side * 8 + LEAST, least_of(x, side, rank, SIDES))


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
    """
    least, least1, wanted = bounds_of(chosen_ptr, k, AGAIN, SIDES)
    if CHECKED:
        n = tl.where(tl.load(status_ptr) < 0x7F800000, n, 0)
    tiles = TILES
    if AGAIN:
        tiles = tl.where(wanted, TILES, 0)
    begin = tl.program_id(0).to(tl.int64) * (TILES * BLOCK)
    total = tl.full((), 0, tl.int32)
    negative = tl.full((), 0, tl.int32)
    for tile in range(tiles):
        at = begin + tile * BLOCK + tl.arange(0, BLOCK)
        x = load_sum(x_ptr, r_ptr, at, at < n, HAS_R)
        if HAS_R:
            tl.store(left_ptr + at, x, mask=at < n)
        where = list_ptr + begin + total
        bits = bits_ptr + begin + total
        found, below = put_candidates(x, at, at < n, least, least1, where, bits, SIDES)
        total += found
        negative += below
    if tiles > 0:
        tl.store(found_ptr + tl.program_id(0), total)
        if not AGAIN:
            count_candidates(chosen_ptr, total, negative, SIDES)


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
    """A histogram of a digit. The first round finds the largest magnitude, too: a candidate."""
    program = tl.program_id(0)
    total = tl.load(found_ptr + program)
    bits_ptr += program.to(tl.int64) * slot
    bins, most = digits_of(bits_ptr, total, chosen_ptr, SIDES, SHIFT, BLOCK)
    i = tl.arange(0, 256 * SIDES)
    tl.atomic_add(bins_ptr + i, bins, mask=bins != 0, sem="relaxed")
    if SHIFT == 24:
        tl.atomic_max(status_ptr, most, sem="relaxed")


@triton.jit(do_not_specialize=["k"])
def choose_bin(chosen_ptr, bins_ptr, k, FIRST: tl.constexpr):
    """The bin of each side, a side a program."""
    side = tl.program_id(0)
    find_bin(chosen_ptr + side * 8, bins_ptr + side * 256, k, FIRST)


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
    """The tally of each program's candidates, rows of a side one after another."""
    program = tl.program_id(0)
    total = tl.load(found_ptr + program)
    bits_ptr += program.to(tl.int64) * slot
    for s in tl.static_range(SIDES):
        above, equal = tally_of(bits_ptr, total, chosen_ptr, s, SIDES, BLOCK)
        tl.store(tally_ptr + (2 * s) * programs + program, above)
        tl.store(tally_ptr + (2 * s + 1) * programs + program, equal)


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
        sums = tally_ptr + (2 * s) * programs + program
        equals = tl.load(sums + programs - 1, mask=program > 0, other=0)
        above = tl.load(sums - 1, mask=program > 0, other=0)
        out = out_ptr + s * k
        put_chosen(
            list_ptr, bits_ptr, total, chosen_ptr, above, equals, out, out, s, SIDES, False, BLOCK
        )


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
