"""fastsgd's sums, what its codes stand for, and its threshold (src/codecs/fastsgd/spec.md, sections
2 and 5)."""

import triton
import triton.language as tl

from deltawire.torch.gpu.kernels.part_tables import COUNT, LARGEST, SCALAR, load_part_sum, unit_of

# Columns of a row of the plan, which are int64 numbers.
UNIT = tl.constexpr(0)  # the first of the part's blocks
FIRST = tl.constexpr(1)  # where its pairs are listed
WANTED = tl.constexpr(2)  # how many values are sent at least
PLAN_COLUMNS = 4
INFINITY = tl.constexpr(0x7F800000)


@triton.jit
def elements_of_block(row, block):
    """How many elements a block of 65,536 of a part has."""
    return tl.minimum(tl.load(row + COUNT) - block * 65536, 65536).to(tl.int32)


@triton.jit
def load_block(row, block, i, ok, KIND: tl.constexpr, SCALED: tl.constexpr):
    """Elements of a block, and their magnitudes' bits."""
    x = load_part_sum(row, block * 65536 + i, ok, KIND, SCALED)
    return x, x.to(tl.int32, bitcast=True) & 0x7FFFFFFF


@triton.jit
def sum_blocks(
    table_ptr, units_ptr, sums_ptr, KIND: tl.constexpr, SCALED: tl.constexpr, BLOCK: tl.constexpr
):
    """The sum of the magnitudes of each block: whole numbers of 2^(e - 29), where the largest
    magnitude has the exponent e. A block a program."""
    part, block = unit_of(units_ptr)
    row = table_ptr + part * 8
    count = elements_of_block(row, block)
    largest = tl.zeros((BLOCK,), tl.int32)
    for first in range(0, count, BLOCK):
        i = first + tl.arange(0, BLOCK)
        _, magnitude = load_block(row, block, i, i < count, KIND, SCALED)
        largest = tl.maximum(largest, magnitude)
    top = tl.maximum(tl.max(largest, axis=0) >> 23, 1)  # exponents are as floats have them
    units = tl.zeros((BLOCK,), tl.int64)
    for first in range(0, count, BLOCK):
        i = first + tl.arange(0, BLOCK)
        _, magnitude = load_block(row, block, i, i < count, KIND, SCALED)
        exponent = magnitude >> 23
        whole = (magnitude & 0x7FFFFF) | tl.where(exponent > 0, 0x800000, 0)
        up = tl.maximum(exponent, 1) - top + 6
        units += tl.where(
            up >= 0, whole << tl.maximum(up, 0), whole >> tl.minimum(tl.maximum(-up, 0), 31)
        ).to(tl.int64)
    unit = ((top - 156 + 1023).to(tl.int64) << 52).to(tl.float64, bitcast=True)
    tl.store(sums_ptr + tl.program_id(0), tl.sum(units, axis=0).to(tl.float64) * unit)


@triton.jit
def is_finite(facts_ptr, part):
    """Whether a part's values and their sum are finite."""
    facts = facts_ptr + part * 4
    return (tl.load(facts + LARGEST) < INFINITY) & (tl.load(facts + SCALAR) < INFINITY)


@triton.jit
def make_codebooks(
    parts_ptr,
    table_ptr,
    plan_ptr,
    sums_ptr,
    powers_ptr,
    facts_ptr,
    values_ptr,
    cuts_ptr,
    LIMIT: tl.constexpr,
    LOG: tl.constexpr,
):
    """A part's sum, what its codes stand for, and the least of that: bits of float32. Codes that
    are not allowed stand for 0; a part that sends nothing has an infinite cut. A part a program."""
    part = tl.load(parts_ptr + tl.program_id(0)).to(tl.int64)
    blocks = (tl.load(table_ptr + part * 8 + COUNT) + 65535) // 65536
    sums_ptr += tl.load(plan_ptr + part * 4 + UNIT)
    total = tl.full((), 0, tl.float64)
    for group in range(0, blocks, 16):
        for j in tl.static_range(16):  # so that loads don't wait for each other
            total += tl.load(sums_ptr + group + j, mask=group + j < blocks, other=0.0)
    sum_ = total.to(tl.float32)
    tl.store(facts_ptr + part * 4 + SCALAR, sum_.to(tl.int32, bitcast=True))
    finite = tl.load(facts_ptr + part * 4 + LARGEST) < INFINITY
    finite = finite & (sum_.to(tl.int32, bitcast=True) < INFINITY)
    code = tl.arange(0, 1 << LOG)
    value = (sum_.to(tl.float64) / tl.load(powers_ptr + code)).to(tl.float32)
    bits = value.to(tl.int32, bitcast=True)
    bits = tl.where(tl.where(finite, code, LIMIT + 1) <= LIMIT, bits, 0)
    tl.store(values_ptr + (part << LOG) + code, bits)
    tl.store(cuts_ptr + part, least_of(bits))


@triton.jit
def least_of(bits):
    """The least that isn't 0; infinity if there is none."""
    return tl.min(tl.where(bits > 0, bits, INFINITY), axis=0)


@triton.jit
def code_of(values_ptr, magnitude, ok, LOG: tl.constexpr):
    """The smallest code that stands for no more than the magnitude; some code if none does."""
    code = tl.zeros_like(magnitude)
    for bit in tl.static_range(LOG):
        last = code + ((1 << (LOG - 1 - bit)) - 1)
        value = tl.load(values_ptr + last, mask=ok, other=0)
        code = tl.where(value > magnitude, last + 1, code)
    return code


@triton.jit
def count_codes(
    table_ptr,
    units_ptr,
    values_ptr,
    counts_ptr,
    KIND: tl.constexpr,
    SCALED: tl.constexpr,
    LOG: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """How many values of each part have each code. Of those that have none some are counted with
    the last, which is the threshold anyway if it is needed."""
    part, block = unit_of(units_ptr)
    row = table_ptr + part * 8
    count = elements_of_block(row, block)
    values_ptr += part << LOG
    counts = tl.zeros((1 << LOG,), tl.int32)
    for first in range(0, count, BLOCK):
        i = first + tl.arange(0, BLOCK)
        ok = i < count
        _, magnitude = load_block(row, block, i, ok, KIND, SCALED)
        counts += tl.histogram(code_of(values_ptr, magnitude, ok, LOG), 1 << LOG, mask=ok)
    code = tl.arange(0, 1 << LOG)
    tl.atomic_add(counts_ptr + (part << LOG) + code, counts, mask=counts != 0, sem="relaxed")


@triton.jit
def choose_thresholds(parts_ptr, plan_ptr, counts_ptr, values_ptr, cuts_ptr, LOG: tl.constexpr):
    """The cut by which as many values are sent as are wanted; if there are fewer, it stays. A part
    a program."""
    part = tl.load(parts_ptr + tl.program_id(0)).to(tl.int64)
    code = (part << LOG) + tl.arange(0, 1 << LOG)
    reached = tl.cumsum(tl.load(counts_ptr + code).to(tl.int64), 0)
    enough = reached >= tl.load(plan_ptr + part * 4 + WANTED)
    largest = tl.max(tl.where(enough, tl.load(values_ptr + code), 0), axis=0)
    if largest > 0:
        tl.store(cuts_ptr + part, largest)
