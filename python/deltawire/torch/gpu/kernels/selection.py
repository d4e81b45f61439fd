"""The elements of largest magnitude of each of many parts, of both signs together or of each side,
in the order of positions; each kernel is launched once for all parts.

A sample gives a magnitude that a few more elements reach than are to be chosen. One pass over a
part lists those candidates, and the exact threshold comes from them alone. Where the sample misled
and too few are found, a second pass lists all that isn't 0: the choice never depends on it.
"""

import dataclasses
import math

import numpy as np
import torch

from deltawire.torch.gpu.kernels.candidates import (
    PLAN_COLUMNS,
    ROW,
    choose_parts_bin,
    count_parts_chosen,
    count_parts_digits,
    guess_parts_least,
    list_parts_candidates,
    list_parts_chosen,
)
from deltawire.torch.gpu.kernels.launching import BLOCK, INTERPRETED, launch
from deltawire.torch.gpu.kernels.part_tables import numbered

SAMPLE = 16384  # elements: a part that has no more is looked at as a whole
TILES = 1 if INTERPRETED else 8  # of BLOCK elements, listed by a program
LISTED = 8192 if INTERPRETED else 512  # candidates at a time
SUMMED = 4096  # of what is chosen, in a program that sums it


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
        on, k for each side; and ROW numbers of each side of each part, of which CHOSEN and PREFIX
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
