"""3lc of many parts in one launch: their chunks, each with 128 rows of 64 bytes.

Tensors that are slices of others aren't specialized: each alignment would be compiled anew.
"""

import triton
import triton.language as tl

from deltawire.torch.gpu.kernels.bit_streams import CORRUPT
from deltawire.torch.gpu.kernels.part_tables import (
    COUNT,
    ELEMENTS,
    GIVEN,
    LARGEST,
    SCALAR,
    SLOT,
    floats_at,
    load_part_sum,
    store_residual,
)
from deltawire.torch.gpu.kernels.threelc_decoding import (
    expand_chunk_positions,
    expand_chunk_runs,
    put_rows,
)
from deltawire.torch.gpu.kernels.threelc_encoding import (
    can_be_shorter,
    copy_words,
    parameter_of,
    put_entries,
    put_positions,
    put_positions_head,
    put_runs,
    threshold_of,
)


@triton.jit
def chunk_of(chunks_ptr, g):
    """A chunk's part, and how many chunks of that part stand before it."""
    return tl.load(chunks_ptr + 2 * g).to(tl.int64), tl.load(chunks_ptr + 2 * g + 1).to(tl.int64)


@triton.jit
def elements_of(count, c):
    """How many elements chunk c of a part has."""
    return tl.minimum(count - c * 40960, 40960).to(tl.int32)


@triton.jit
def elements_of_rows(n, row):
    """How many elements these rows of a chunk of n elements have."""
    return tl.minimum(tl.maximum(n - row * 320, 0), 320)


@triton.jit
def quantize_parts(
    table_ptr,
    chunks_ptr,
    facts_ptr,
    base_ptr,
    found_ptr,
    s,
    KIND: tl.constexpr,
    SCALED: tl.constexpr,
    COUNTS: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Mode 0 of rows of 320 elements, and how many digits of each aren't 0: none in rows without
    elements. A refused part has only zeros here, and its residual is left alone."""
    g = tl.program_id(0) // (128 // ROWS)
    part, c = chunk_of(chunks_ptr, g)
    table = table_ptr + part * 8
    m, bits, h = threshold_of(facts_ptr + part * 4 + LARGEST, s)
    tl.store(facts_ptr + part * 4 + SCALAR, bits)
    row = (tl.program_id(0) % (128 // ROWS)) * ROWS + tl.arange(0, ROWS)[:, None]
    j = tl.arange(0, 64)[None, :]
    elements = elements_of_rows(elements_of(tl.load(table + COUNT), c), row)
    t = (elements + 4) // 5
    good = tl.where(bits < 0x7F800000, elements, 0)
    byte = tl.zeros((ROWS, 64), tl.int32)
    found = tl.zeros((ROWS, 64), tl.int32)
    for p in tl.static_range(5):
        place = p * t + j
        ok = (j < t) & (place < good)
        at = c * 40960 + (row * 320 + place).to(tl.int64)
        x = load_part_sum(table, at, ok, KIND, SCALED)
        digit = tl.where(ok, (x >= h).to(tl.int32) - (x <= -h).to(tl.int32), 0)
        store_residual(table, at, ok, x - digit.to(tl.float32) * m)  # exact where sent
        byte = byte * 3 + (digit + 1)
        found += digit * digit
    tl.store(base_ptr + g.to(tl.int64) * 8192 + row * 64 + j, byte.to(tl.uint8), mask=j < t)
    if COUNTS:
        row = (tl.program_id(0) % (128 // ROWS)) * ROWS + tl.arange(0, ROWS)
        tl.store(found_ptr + g * 128 + row, tl.sum(found, axis=1))


@triton.jit(do_not_specialize=["begins_ptr", "sizes_ptr"])
def write_parts_runs(
    table_ptr,
    chunks_ptr,
    base_ptr,
    out_ptr,
    begins_ptr,
    sizes_ptr,
    RUNS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A chunk's mode 1 into its slot."""
    g = tl.program_id(0)
    part, c = chunk_of(chunks_ptr, g)
    size = (elements_of(tl.load(table_ptr + part * 8 + COUNT), c) + 4) // 5
    slot = out_ptr + tl.load(begins_ptr + g)
    tl.store(sizes_ptr + g, put_runs(base_ptr + g.to(tl.int64) * 8192, slot, size, RUNS, BLOCK))


@triton.jit
def positions_of(table_ptr, chunks_ptr, found_ends_ptr, bounds_ptr, g):
    """Of a chunk: its elements, where its digits that aren't 0 begin in the list of all, how many
    they are, and mode 2's k."""
    part, c = chunk_of(chunks_ptr, g)
    n = elements_of(tl.load(table_ptr + part * 8 + COUNT), c)
    begin = tl.load(found_ends_ptr + g * 128 - 1, mask=g > 0, other=0)
    nonzeros = (tl.load(found_ends_ptr + g * 128 + 127) - begin).to(tl.int32)
    return n, begin, nonzeros, parameter_of(nonzeros, n, bounds_ptr)


@triton.jit(do_not_specialize=["sizes_ptr"])
def list_parts_positions(
    table_ptr,
    chunks_ptr,
    base_ptr,
    found_ends_ptr,
    sizes_ptr,
    bounds_ptr,
    list_ptr,
    ROWS: tl.constexpr,
):
    """The digits that aren't 0, in order, as position in the chunk | sign << 16; left out where
    mode 2 can't be the shortest. ROWS divides 128."""
    g = tl.program_id(0) // (128 // ROWS)
    n, _, nonzeros, k = positions_of(table_ptr, chunks_ptr, found_ends_ptr, bounds_ptr, g)
    if can_be_shorter(nonzeros, k, tl.load(sizes_ptr + g)):
        row = (tl.program_id(0) % (128 // ROWS)) * ROWS + tl.arange(0, ROWS)[:, None]
        first = g * 128 + row
        begin = tl.load(found_ends_ptr + first - 1, mask=first > 0, other=0)
        bytes_ = base_ptr + first.to(tl.int64) * 64
        put_entries(bytes_, elements_of_rows(n, row), row, list_ptr + begin)


@triton.jit(do_not_specialize=["begins_ptr", "sizes_ptr"])
def write_parts_positions(
    table_ptr,
    chunks_ptr,
    list_ptr,
    found_ends_ptr,
    bounds_ptr,
    words_ptr,
    out_ptr,
    begins_ptr,
    sizes_ptr,
    BLOCK: tl.constexpr,
):
    """A chunk's mode 2 into zeroed words, 2,049 a chunk, if it may be the shortest."""
    g = tl.program_id(0)
    _, begin, nonzeros, k = positions_of(table_ptr, chunks_ptr, found_ends_ptr, bounds_ptr, g)
    size = tl.load(sizes_ptr + g)
    if can_be_shorter(nonzeros, k, size):
        words = words_ptr + g.to(tl.int64) * 2049
        total = put_positions(list_ptr + begin, nonzeros, k, words, 2049, BLOCK)
        if total < size:
            put_positions_head(out_ptr + tl.load(begins_ptr + g), k, nonzeros)
            tl.store(sizes_ptr + g, total)


@triton.jit(do_not_specialize=["begins_ptr", "sizes_ptr"])
def copy_parts_positions(words_ptr, out_ptr, begins_ptr, sizes_ptr, BLOCK: tl.constexpr):
    """The words of the chunks in mode 2 behind their heads."""
    g = tl.program_id(0)
    slot = out_ptr + tl.load(begins_ptr + g)
    copy_words(words_ptr + g.to(tl.int64) * 2049, slot, tl.load(sizes_ptr + g), BLOCK)


@triton.jit(do_not_specialize=["errors_ptr"])
def expand_parts_runs(
    table_ptr, chunks_ptr, spans_ptr, data_ptr, base_ptr, errors_ptr, BLOCK: tl.constexpr
):
    """Chunks of modes 0 and 1 into base, which holds 121 everywhere. spans: where each begins and
    ends."""
    g = tl.program_id(0)
    part, c = chunk_of(chunks_ptr, g)
    n = elements_of(tl.load(table_ptr + part * 4 + ELEMENTS), c)
    begin = tl.load(spans_ptr + 2 * g)
    size = (tl.load(spans_ptr + 2 * g + 1) - begin).to(tl.int32)
    base = base_ptr + g.to(tl.int64) * 8192
    expand_chunk_runs(data_ptr + begin, size, n, base, errors_ptr + part, 8192, BLOCK)


@triton.jit(do_not_specialize=["errors_ptr"])
def expand_parts_positions(table_ptr, chunks_ptr, spans_ptr, data_ptr, base_ptr, errors_ptr):
    """Chunks of mode 2 into base, code after code; base_ptr counts words of four bytes."""
    g = tl.program_id(0)
    part, c = chunk_of(chunks_ptr, g)
    n = elements_of(tl.load(table_ptr + part * 4 + ELEMENTS), c)
    begin = tl.load(spans_ptr + 2 * g)
    size = (tl.load(spans_ptr + 2 * g + 1) - begin).to(tl.int32)
    base = base_ptr + g.to(tl.int64) * 2048
    expand_chunk_positions(data_ptr + begin, size, n, base, errors_ptr + part)


@triton.jit(do_not_specialize=["errors_ptr"])
def write_parts_values(
    table_ptr, chunks_ptr, base_ptr, errors_ptr, scale, ADD: tl.constexpr, ROWS: tl.constexpr
):
    """Digits into values, or into sums with them; nothing where the chunks were refused."""
    g = tl.program_id(0) // (128 // ROWS)
    part, c = chunk_of(chunks_ptr, g)
    table = table_ptr + part * 4
    row = (tl.program_id(0) % (128 // ROWS)) * ROWS + tl.arange(0, ROWS)[:, None]
    elements = elements_of_rows(elements_of(tl.load(table + ELEMENTS), c), row)
    bytes_ = base_ptr + g.to(tl.int64) * 8192 + row * 64
    out = floats_at(tl.load(table + SLOT)) + (c * 40960 + row * 320)
    bits = tl.load(table + GIVEN).to(tl.int32)
    bad = put_rows(bytes_, out, elements, bits, scale, tl.load(errors_ptr + part), ADD)
    if bad > 0:
        tl.atomic_or(errors_ptr + part, CORRUPT, sem="relaxed")
