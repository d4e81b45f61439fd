"""The elements of largest magnitude of each block of neighbors, as topk's `chunk=` chooses them.

A block is held whole by a program, which finds its threshold; a second launch lists what is chosen,
once the numbers of all blocks are known.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
import torch
import triton
import triton.language as tl

from deltawire.torch.gpu.kernels.candidates import least_of
from deltawire.torch.gpu.kernels.launching import launch
from deltawire.torch.gpu.kernels.part_tables import (
    COUNT,
    load_part_sum,
    numbered,
    store_residual,
    unit_of,
)
from deltawire.torch.gpu.kernels.selection import PLAN_COLUMNS

PER_WARP = 256  # elements
MOST_WARPS = 16


@dataclasses.dataclass(frozen=True)
class BlockPlan:
    """What a selection in blocks of parts of the same sizes keeps, on the device.

    Attributes:
        parts: their numbers, int64.
        rows: as `Plan` has them: zeros, since parts are listed without gaps.
        units: (part, block) for each program, int32.
        numbers: how many elements each block chooses, at most, int32.
        begins: each part's first unit, and behind the last part their number, int64.
        listed: positions of all parts, at most.
        chunk: elements of a block.
    """

    parts: torch.Tensor
    rows: torch.Tensor
    units: torch.Tensor
    numbers: torch.Tensor
    begins: torch.Tensor
    listed: int
    chunk: int


def plan_of_blocks(
    parts: np.ndarray,
    counts: np.ndarray,
    chunk: int,
    number: Callable[[np.ndarray], np.ndarray],
    device: torch.device,
) -> BlockPlan:
    """The plan for parts of so many elements. number: how many blocks of so many choose."""
    blocks = -(-counts // chunk)
    begins = np.concatenate(([0], np.cumsum(blocks)))
    numbers = np.full(begins[-1], number(chunk), np.int64)
    numbers[begins[1:] - 1] = number(counts - (blocks - 1) * chunk)
    rows = np.zeros((int(parts[-1]) + 1, PLAN_COLUMNS), np.int64)

    def sent(array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).to(device)

    return BlockPlan(
        sent(parts),
        sent(rows),
        sent(numbered(parts, blocks)),
        sent(numbers.astype(np.int32)),
        sent(begins),
        int(numbers.sum()),
        chunk,
    )


@triton.jit
def load_block(table_ptr, units_ptr, CHUNK: tl.constexpr, KIND: tl.constexpr, SCALED: tl.constexpr):
    """The row of the program's part; positions and sums of its block, and which of them are there:
    the others are 0."""
    part, block = unit_of(units_ptr)
    row = table_ptr + part * 8
    at = block * CHUNK + tl.arange(0, CHUNK)
    ok = at < tl.load(row + COUNT)
    return row, at, load_part_sum(row, at, ok, KIND, SCALED), ok


@triton.jit
def choose_in_blocks(
    table_ptr,
    units_ptr,
    numbers_ptr,
    least_ptr,
    equals_ptr,
    counts_ptr,
    KIND: tl.constexpr,
    SCALED: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """The smallest magnitude that a block sends, how many equal to it are sent, and how many in
    all. The new residual is input plus residual for now."""
    row, at, x, ok = load_block(table_ptr, units_ptr, CHUNK, KIND, SCALED)
    store_residual(row, at, ok, x)
    magnitude = x.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    some = tl.sum((magnitude > 0).to(tl.int32), axis=0)
    b = tl.program_id(0)
    count = tl.minimum(tl.load(numbers_ptr + b), some)
    least = least_of(x, 0, count, 1)
    above = tl.sum((magnitude > least).to(tl.int32), axis=0)
    tl.store(least_ptr + b, least)
    tl.store(equals_ptr + b, count - above)
    tl.store(counts_ptr + b, count)


@triton.jit
def list_of_blocks(
    table_ptr,
    units_ptr,
    least_ptr,
    equals_ptr,
    counts_ptr,
    ends_ptr,
    out_ptr,
    values_ptr,
    KIND: tl.constexpr,
    SCALED: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Positions and bits of what a block sends, behind those of the blocks before it."""
    _, at, x, _ = load_block(table_ptr, units_ptr, CHUNK, KIND, SCALED)
    bits = x.to(tl.int32, bitcast=True)
    magnitude = bits & 0x7FFFFFFF
    b = tl.program_id(0)
    least = tl.load(least_ptr + b)
    equal = (magnitude == least).to(tl.int32)
    before = tl.cumsum(equal, 0) - equal
    taken = (magnitude > least) | ((equal != 0) & (before < tl.load(equals_ptr + b)))
    first = tl.load(ends_ptr + b) - tl.load(counts_ptr + b)
    place = first + tl.cumsum(taken.to(tl.int32), 0) - 1
    tl.store(out_ptr + place, at.to(tl.int32), mask=taken)
    tl.store(values_ptr + place, bits, mask=taken)


def select_in_blocks(
    plan: BlockPlan, table: torch.Tensor, kind: str, scaled: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Chooses in parts that `table` describes; new residuals become inputs plus residuals.

    Returns:
        Positions (int32, to be read as unsigned), the bits of their values, and for each part of
        the batch where its positions begin and how many they are (int32).
    """
    device, programs = table.device, len(plan.units)
    least, equals, counts = torch.empty((3, programs), dtype=torch.int32, device=device)
    constants = {"KIND": kind, "SCALED": scaled, "CHUNK": plan.chunk}
    constants["warps"] = min(max(plan.chunk // PER_WARP, 1), MOST_WARPS)
    found = (least, equals, counts)
    launch(choose_in_blocks, programs, table, plan.units, plan.numbers, *found, **constants)
    ends = torch.cumsum(counts, 0)  # in int64
    listed, values = torch.empty((2, plan.listed), dtype=torch.int32, device=device)
    where = (table, plan.units, *found, ends, listed, values)
    launch(list_of_blocks, programs, *where, **constants)
    begins = torch.cat([ends.new_zeros(1), ends])[plan.begins]
    sent = torch.zeros((len(plan.rows), 2), dtype=torch.int32, device=device)
    sent[plan.parts] = torch.stack([begins[:-1], begins.diff()], dim=1).to(torch.int32)
    return listed, values, sent
