"""randomk: one value of each of some stretches, at a place that is drawn by a seed
(src/codecs/baselines/randomk/spec.md, sections 2 and 3). A program codes a block of a chunk.
"""

import numpy as np
import triton
import triton.language as tl

from deltawire.torch.gpu.kernels.bit_streams import CORRUPT
from deltawire.torch.gpu.kernels.int8 import smallest_step
from deltawire.torch.gpu.kernels.part_tables import (
    AFTER,
    COUNT,
    ELEMENTS,
    GIVEN,
    LARGEST,
    OUT,
    PAYLOAD,
    SCALAR,
    SECOND,
    SLOT,
    floats_at,
    load_part_sum,
    put_floats,
    store_residual,
    unit_of,
)
from deltawire.torch.gpu.kernels.positions_decoding import load_value
from deltawire.torch.gpu.kernels.sent_values import put_codes, sent_code

GOLDEN = tl.constexpr(0x9E3779B97F4A7C15)


@triton.jit
def mix(z):
    """Scrambles 64 bits (uint64)."""
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB
    return z ^ (z >> 31)


def seeds_of(streams: np.ndarray) -> np.ndarray:
    """The seeds (uint32) of parts whose codec is given these streams (uint64)."""
    key = mix.fn(streams + GOLDEN.value)
    return mix.fn(key + GOLDEN.value).astype(np.uint32)


@triton.jit
def drawn_of_chunk(c, n, over, shift, BLOCK: tl.constexpr):
    """Numbers of the program's values in chunk c and in the part (uint64), which of them are there,
    and how many the part has: a share of over / 2^shift of n elements, rounded."""
    kept = (n * (2 * over.to(tl.int64)) + (tl.full((), 1, tl.int64) << shift)) >> (shift + 1)
    kept = tl.minimum(tl.maximum(kept, 1), n)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    i = c * 16384 + j
    return j, i.to(tl.uint64), i < kept, kept.to(tl.uint64)


@triton.jit
def place_of(seed, i, n, kept):
    """The place of value i of a part, and how long its stretch is. seed: an int32's bits."""
    key = mix(seed.to(tl.uint32, bitcast=True).to(tl.uint64) + GOLDEN)
    n = n.to(tl.uint64)
    begin = i * n // kept
    stretch = (i + 1) * n // kept - begin
    at = begin + ((mix(key + GOLDEN * (i + 1)) >> 32) * stretch >> 32)
    return at.to(tl.int64), stretch.to(tl.int32)


@triton.jit(do_not_specialize=["over", "shift"])
def draw_values(
    table_ptr,
    chunks_ptr,
    facts_ptr,
    values_ptr,
    most_ptr,
    over,
    shift,
    KIND: tl.constexpr,
    SCALED: tl.constexpr,
    UNBIASED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Bits of what is drawn, chunk by chunk, and the largest magnitude of each part's. A value that
    becomes infinite is found by the facts."""
    part, c = unit_of(chunks_ptr)
    row = table_ptr + part * 8
    facts = facts_ptr + part * 4
    n = tl.load(row + COUNT)
    j, i, ok, kept = drawn_of_chunk(c, n, over, shift, BLOCK)
    at, stretch = place_of(tl.load(facts + SCALAR), i, n, kept)
    x = load_part_sum(row, at, ok, KIND, SCALED)
    if UNBIASED:
        x = x * stretch.to(tl.float32)
    bits = x.to(tl.int32, bitcast=True)
    tl.store(values_ptr + tl.program_id(0).to(tl.int64) * 16384 + j, bits, mask=ok)
    most = tl.max(tl.where(ok, bits & 0x7FFFFFFF, 0), axis=0)
    tl.atomic_max(most_ptr + part, most, sem="relaxed")
    if UNBIASED:
        tl.atomic_max(facts + LARGEST, tl.where(most >= 0x7F800000, most, 0), sem="relaxed")


@triton.jit
def keep_sums(
    table_ptr,
    units_ptr,
    facts_ptr,
    KIND: tl.constexpr,
    SCALED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Residuals become inputs plus residuals, but of refused parts."""
    part, block = unit_of(units_ptr)
    row = table_ptr + part * 8
    keeps = (tl.load(row + AFTER) != 0) & (tl.load(facts_ptr + part * 4 + LARGEST) < 0x7F800000)
    at = block * BLOCK + tl.arange(0, BLOCK)
    ok = at < tl.where(keeps, tl.load(row + COUNT), 0)
    store_residual(row, at, ok, load_part_sum(row, at, ok, KIND, SCALED))


@triton.jit(do_not_specialize=["over", "shift"])
def write_values(
    table_ptr,
    chunks_ptr,
    facts_ptr,
    values_ptr,
    most_ptr,
    out_ptr,
    over,
    shift,
    VALUE_BITS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Codes of what is drawn, and what they leave of the sums."""
    part, c = unit_of(chunks_ptr)
    row = table_ptr + part * 8
    facts = facts_ptr + part * 4
    n = tl.load(row + COUNT)
    j, i, ok, kept = drawn_of_chunk(c, n, over, shift, BLOCK)
    ok = tl.where(tl.load(facts + LARGEST) < 0x7F800000, ok, False)
    at, _ = place_of(tl.load(facts + SCALAR), i, n, kept)
    bits = tl.load(values_ptr + tl.program_id(0).to(tl.int64) * 16384 + j, mask=ok, other=0)
    step = smallest_step(tl.load(most_ptr + part), 127, 0x7C010203)
    code, value = sent_code(bits.to(tl.float32, bitcast=True), step, VALUE_BITS)
    out = out_ptr + tl.load(row + OUT)
    put_codes(out, i.to(tl.int64), ok, code, VALUE_BITS)
    after = tl.load(row + AFTER)
    left = tl.load(floats_at(after) + at, mask=tl.where(after != 0, ok, False), other=0.0)
    store_residual(row, at, ok, left - value)
    if VALUE_BITS == 8:
        tl.store(facts + SECOND, step)


@triton.jit(do_not_specialize=["errors_ptr", "over", "shift"])
def decode_values(
    table_ptr,
    chunks_ptr,
    data_ptr,
    errors_ptr,
    scale,
    over,
    shift,
    VALUE_BITS: tl.constexpr,
    ADD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Values to their places."""
    part, c = unit_of(chunks_ptr)
    row = table_ptr + part * 4
    n = tl.load(row + ELEMENTS)
    given = tl.load(row + GIVEN)
    _, i, ok, kept = drawn_of_chunk(c, n, over, shift, BLOCK)
    data = data_ptr + tl.load(row + PAYLOAD)
    step = (given >> 32).to(tl.int32)
    value, bad = load_value(data, i.to(tl.int64), ok, data, step, VALUE_BITS)
    if tl.max(bad.to(tl.int32), axis=0) > 0:
        tl.atomic_or(errors_ptr + part, CORRUPT, sem="relaxed")
    at, _ = place_of(given.to(tl.int32), i, n, kept)
    out = floats_at(tl.load(row + SLOT))
    put_floats(out, at, ok & (value != 0), value * scale, ADD)  # zeros go nowhere
