"""The elements of largest magnitude of each of many parts, of both signs together or of each side,
in the order of positions; each kernel is launched once for all parts.

A sample gives a magnitude that a few more elements reach than are to be chosen. One pass over a
part lists those candidates, and the exact threshold comes from them alone. Where the sample misled
and too few are found, a second pass lists all that isn't 0: the choice never depends on it.

A part's numbers in `chosen` and `bins` lie at its number in the batch, its sides one after another.
Programs that list candidates follow each other part by part.
"""

import dataclasses
import math

import numpy as np
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
from deltawire.torch.gpu.kernels.launching import BLOCK, INTERPRETED, launch
from deltawire.torch.gpu.kernels.part_tables import (
    COUNT,
    load_part_sum,
    numbered,
    store_residual,
    unit_of,
)

SAMPLE = 16384  # elements: a part that has no more is looked at as a whole
TILES = 1 if INTERPRETED else 8  # of BLOCK elements, listed by a program
LISTED = 8192 if INTERPRETED else 512  # candidates at a time
SUMMED = 4096  # of what is chosen, in a program that sums it

# Columns of a row of the plan, which are int64 numbers.
K = tl.constexpr(0)  # how many are chosen, of each side, at most
RANK = tl.constexpr(1)  # in the sample, of the least candidate
FIRST = tl.constexpr(2)  # where the positions of what is chosen are listed
SUMS = tl.constexpr(3)  # the first of the units that sum it
PLAN_COLUMNS = 4


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a selection in parts of the same sizes keeps, on the device.

    Attributes:
        parts: their numbers, int32.
        rows: PLAN_COLUMNS numbers for every part of the batch up to the last of these.
        units: (part, block of TILES * BLOCK elements) for each program that lists candidates.
        sums: (part, block of SUMMED of what may be chosen), likewise.
        listed: positions of all sides of all parts, at most.
    """

    parts: torch.Tensor
    rows: torch.Tensor
    units: torch.Tensor
    sums: torch.Tensor
    listed: int


def plan_of(
    parts: np.ndarray, counts: np.ndarray, k: np.ndarray, sides: int, device: torch.device
) -> Plan:
    """The plan for parts of so many elements, of which k are chosen of each side."""
    rows = np.zeros((int(parts[-1]) + 1, PLAN_COLUMNS), np.int64)
    summed = -(-k // SUMMED)
    rows[parts, 0] = k
    rows[parts, 1] = [sample_rank(*each) for each in zip(counts.tolist(), k.tolist(), strict=True)]
    rows[parts, 2] = sides * (np.cumsum(k) - k)
    rows[parts, 3] = np.cumsum(summed) - summed

    def units(of_each: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(numbered(parts, of_each)).to(device)

    return Plan(
        torch.from_numpy(parts.astype(np.int32)).to(device),
        torch.from_numpy(rows).to(device),
        units(-(-counts // (TILES * BLOCK))),
        units(summed),
        sides * int(k.sum()),
    )


def sample_rank(n: int, k: int) -> int:
    """The rank in the sample that k of n elements reach but once in thousands of tensors."""
    if n <= SAMPLE:
        return k
    expected = SAMPLE * k / n
    return math.ceil(expected + 4 * math.sqrt(expected) + 4)


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
    """The magnitude of the plan's rank in a sample. A side of a part a program."""
    part = tl.load(parts_ptr + tl.program_id(0)).to(tl.int64)
    side = tl.program_id(1)
    row = table_ptr + part * 8
    n = tl.load(row + COUNT)
    at = sample_of(n, LOG_SAMPLE)
    x = load_part_sum(row, at, at < n, KIND, SCALED)
    rank = tl.load(plan_ptr + part * 4 + RANK)
    tl.store(chosen_ptr + (part * SIDES + side) * 8 + LEAST, least_of(x, side, rank, SIDES))


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
    """A histogram of a digit of each side of each part."""
    part, _ = unit_of(units_ptr)
    program = tl.program_id(0)
    total = tl.load(found_ptr + program)
    bits_ptr += program.to(tl.int64) * slot
    chosen_ptr += part * (8 * SIDES)
    bins = digits_of(bits_ptr, total, chosen_ptr, SIDES, SHIFT, BLOCK)
    i = tl.arange(0, 256 * SIDES)
    bins_ptr += part * (256 * SIDES)
    tl.atomic_add(bins_ptr + i, bins, mask=bins != 0, sem="relaxed")


@triton.jit
def choose_parts_bin(
    parts_ptr, plan_ptr, chosen_ptr, bins_ptr, FIRST: tl.constexpr, SIDES: tl.constexpr
):
    """The bin of each side of each part, one a program."""
    part = tl.load(parts_ptr + tl.program_id(0)).to(tl.int64)
    row = part * SIDES + tl.program_id(1)
    k = tl.load(plan_ptr + part * 4)
    find_bin(chosen_ptr + row * 8, bins_ptr + row * 256, k, FIRST)


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
    """The tally of each program's candidates, rows of a side one after another."""
    part, _ = unit_of(units_ptr)
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    total = tl.load(found_ptr + program)
    bits_ptr += program.to(tl.int64) * slot
    for s in tl.static_range(SIDES):
        above, equal = tally_of(bits_ptr, total, chosen_ptr + part * (8 * SIDES), s, SIDES, BLOCK)
        tl.store(tally_ptr + (2 * s) * programs + program, above)
        tl.store(tally_ptr + (2 * s + 1) * programs + program, equal)


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
    first = tl.load(plan_ptr + part * 4 + FIRST)
    chosen_ptr += part * (8 * SIDES)
    for s in tl.static_range(SIDES):
        sums = tally_ptr + (2 * s) * programs
        above = sum_before(sums, program, program - unit)
        equals = sum_before(sums + programs, program, program - unit)
        out = out_ptr + first + s * k
        values = values_ptr + first + s * k
        put_chosen(
            list_ptr, bits_ptr, total, chosen_ptr, above, equals, out, values, s, SIDES, BLOCK
        )


def select_in_parts(
    plan: Plan, table: torch.Tensor, sides: int, kind: str, scaled: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Chooses in parts that `table` describes; new residuals become inputs plus residuals.

    Args:
        table: as `EncodeBatch` has it.
        sides: 1 or 2.
        kind: dtype of the values.
        scaled: some residual has a factor.

    Returns:
        Positions (int32, to be read as unsigned) and the bits of their values, a part's from FIRST
        on, k for each side; and ROW numbers of each side of each part, of which COUNT and PREFIX
        have a meaning.
    """
    device, programs, slot = table.device, len(plan.units), TILES * BLOCK
    many = len(plan.rows) * sides
    bins = torch.zeros((4, many * 256), dtype=torch.int32, device=device)
    chosen = torch.zeros(many * ROW, dtype=torch.int32, device=device)
    found = torch.empty(programs, dtype=torch.int32, device=device)
    listed, bits = torch.empty((2, programs * slot), dtype=torch.int32, device=device)
    given = {"KIND": kind, "SCALED": scaled, "SIDES": sides}
    each = (len(plan.parts), sides)
    log_sample = SAMPLE.bit_length() - 1
    sample = (table, plan.parts, plan.rows, chosen)
    launch(guess_parts_least, each, *sample, LOG_SAMPLE=log_sample, warps=16, **given)
    lists = (table, plan.units, plan.rows, chosen, found, listed, bits)
    for again in (False, True):
        tiles = {"AGAIN": again, "TILES": TILES, "BLOCK": BLOCK}
        launch(list_parts_candidates, programs, *lists, **given, **tiles)
    sizes = {"SIDES": sides, "BLOCK": LISTED, "warps": 4}
    for number, shift in enumerate((24, 16, 8, 0)):
        here = (plan.units, bits, found, chosen, bins[number], slot)
        launch(count_parts_digits, programs, *here, SHIFT=shift, **sizes)
        here = (plan.parts, plan.rows, chosen, bins[number])
        launch(choose_parts_bin, each, *here, FIRST=number == 0, SIDES=sides, warps=4)
    tally = torch.empty(2 * sides, programs, dtype=torch.int32, device=device)
    launch(count_parts_chosen, programs, plan.units, bits, found, chosen, tally, slot, **sizes)
    sums = torch.cumsum(tally, 1)
    out = torch.empty(plan.listed, dtype=torch.int32, device=device)
    values = torch.empty_like(out)
    where = (plan.units, plan.rows, listed, bits, found, chosen, sums, out, values, slot)
    launch(list_parts_chosen, programs, *where, **sizes)
    return out, values, chosen
