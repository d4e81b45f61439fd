"""Many parts in one launch: a table says where each lies, and a list of units which block of which
part a program takes."""

import numpy as np
import triton
import triton.language as tl

# Columns of a row of the table of parts to encode, which are int64 numbers.
VALUES = tl.constexpr(0)  # address
BEFORE = tl.constexpr(1)  # address of the residual; 0: none
AFTER = tl.constexpr(2)  # where the new one goes
COUNT = tl.constexpr(3)
FACTOR = tl.constexpr(4)  # of the residual: the bits of a float64
OUT = tl.constexpr(5)  # where the payload begins, in bytes
CARRIER = tl.constexpr(6)  # number of the 16-bit dtype that may have to hold the values; 0: none
COLUMNS = 8  # the last is not used: rows have 64 bytes

# Numbers of a part that the device finds, int32.
LARGEST = tl.constexpr(0)  # bits of the largest magnitude
SCALAR = tl.constexpr(1)
FLAGS = tl.constexpr(3)  # 1: a value isn't 0; 2: the carrier can't hold one; 4: residual overflows
FACTS = 4

# Columns of a row of the table of parts to decode.
SLOT = tl.constexpr(0)  # address
ELEMENTS = tl.constexpr(1)
PAYLOAD = tl.constexpr(2)  # where it begins, in bytes
GIVEN = tl.constexpr(3)  # the scalar
DECODE_COLUMNS = 4


def numbers_of(counts: np.ndarray) -> np.ndarray:
    """0, 1, ... for each count, one after another."""
    starts = np.cumsum(counts) - counts
    return np.arange(counts.sum()) - np.repeat(starts, counts)


def numbered(parts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """(part, number) for as many numbers from 0 on as each part has."""
    return np.stack([np.repeat(parts, counts), numbers_of(counts)], axis=1).astype(np.int32)


@triton.jit
def unit_at(units_ptr, number):
    """A unit's part, and which block or chunk of it."""
    unit = units_ptr + 2 * number
    return tl.load(unit).to(tl.int64), tl.load(unit + 1).to(tl.int64)


@triton.jit
def unit_of(units_ptr):
    """The program's unit."""
    return unit_at(units_ptr, tl.program_id(0))


@triton.jit
def floats_at(address):
    """A pointer to float32 values."""
    return address.to(tl.pointer_type(tl.float32))


@triton.jit
def put_floats(out_ptr, at, ok, value, ADD: tl.constexpr):
    """Values, or sums with them, to their places."""
    if ADD:
        value = tl.load(out_ptr + at, mask=ok, other=0.0) + value
    tl.store(out_ptr + at, value, mask=ok)


@triton.jit
def load_values(row_ptr, at, ok, KIND: tl.constexpr):
    """A part's values, in float32."""
    address = tl.load(row_ptr + VALUES)
    if KIND == "float32":
        value = tl.load(floats_at(address) + at, mask=ok, other=0.0)
    elif KIND == "bfloat16":  # by its bits, as a conversion may change a NaN's
        pointer = address.to(tl.pointer_type(tl.int16))
        bits = tl.load(pointer + at, mask=ok, other=0).to(tl.int32) << 16
        value = bits.to(tl.float32, bitcast=True)
    else:
        pointer = address.to(tl.pointer_type(tl.float16))
        value = tl.load(pointer + at, mask=ok, other=0.0).to(tl.float32)
    return value


@triton.jit
def load_residual(row_ptr, at, ok, SCALED: tl.constexpr):
    """A part's residual times its factor; zeros where it has none."""
    before = tl.load(row_ptr + BEFORE)
    r = tl.load(floats_at(before) + at, mask=tl.where(before != 0, ok, False), other=0.0)
    if SCALED:
        factor = tl.load(row_ptr + FACTOR).to(tl.float64, bitcast=True)
        r = (r.to(tl.float64) * factor).to(tl.float32)
    return r


@triton.jit
def load_part_sum(row_ptr, at, ok, KIND: tl.constexpr, SCALED: tl.constexpr):
    """Values plus residual; without one the values' own bits."""
    x = load_values(row_ptr, at, ok, KIND)
    r = load_residual(row_ptr, at, ok, SCALED)
    return tl.where(tl.load(row_ptr + BEFORE) != 0, x + r, x)


@triton.jit
def store_residual(row_ptr, at, ok, left):
    """The new residual of a part that has one."""
    after = tl.load(row_ptr + AFTER)
    tl.store(floats_at(after) + at, left, mask=tl.where(after != 0, ok, False))


@triton.jit
def look(
    table_ptr,
    units_ptr,
    facts_ptr,
    KIND: tl.constexpr,
    SCALED: tl.constexpr,
    TILES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """What must be known of each part before it is encoded."""
    part, block = unit_of(units_ptr)
    row = table_ptr + part * 8
    count = tl.load(row + COUNT)
    carrier = tl.load(row + CARRIER)  # bfloat16 carries what isn't finite, float16 doesn't
    least = tl.where(carrier == 2, 0x7F7F8000, 0x477FF000)
    limit = tl.where(carrier == 2, 0x7F7FFFFF, tl.where(carrier == 3, 0x7FFFFFFF, -1))
    largest = tl.zeros((BLOCK,), tl.int32)
    flags = tl.zeros((BLOCK,), tl.int32)
    for tile in tl.static_range(TILES):
        at = (block * TILES + tile) * BLOCK + tl.arange(0, BLOCK)
        ok = at < count
        x = load_values(row, at, ok, KIND)
        r = load_residual(row, at, ok, SCALED)
        own = x.to(tl.int32, bitcast=True) & 0x7FFFFFFF
        fed = tl.where(tl.load(row + BEFORE) != 0, x + r, x)
        largest = tl.maximum(largest, fed.to(tl.int32, bitcast=True) & 0x7FFFFFFF)
        flags |= (own != 0).to(tl.int32)
        flags |= ((own >= least) & (own <= limit)).to(tl.int32) * 2
        if SCALED:
            beyond = (r.to(tl.int32, bitcast=True) & 0x7FFFFFFF) >= 0x7F800000
            flags |= beyond.to(tl.int32) * 4
    facts = facts_ptr + part * 4
    tl.atomic_max(facts + LARGEST, tl.max(largest, axis=0), sem="relaxed")
    some = tl.max(flags & 1, axis=0) | tl.max(flags & 2, axis=0) | tl.max(flags & 4, axis=0)
    tl.atomic_or(facts + FLAGS, some, sem="relaxed")
