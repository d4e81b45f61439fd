"""3lc of many parts in one launch: their chunks, each with 128 rows of 64 bytes of five digits.

Tensors that are slices of others aren't specialized: each alignment would be compiled anew.
"""

import triton
import triton.language as tl

from deltawire.torch.gpu.kernels.bit_streams import (
    CORRUPT,
    TRUNCATED,
    put_code,
    read_gap,
    read_window,
)
from deltawire.torch.gpu.kernels.part_tables import (
    COUNT,
    ELEMENTS,
    GIVEN,
    LARGEST,
    SCALAR,
    SLOT,
    floats_at,
    load_part_sum,
    put_floats,
    store_residual,
    unit_at,
)


@triton.jit
def elements_of(count, c):
    """How many elements chunk c of a part has."""
    return tl.minimum(count - c * 40960, 40960).to(tl.int32)


@triton.jit
def elements_of_rows(n, row):
    """How many elements these rows of a chunk of n elements have."""
    return tl.minimum(tl.maximum(n - row * 320, 0), 320)


@triton.jit
def threshold_of(status_ptr, s):
    """m, its bits, and the smallest magnitude that is sent; 1 where m is 0, as all values are."""
    m = tl.load(status_ptr).to(tl.float32, bitcast=True) * s
    bits = m.to(tl.int32, bitcast=True)
    half = tl.where(bits >= 0x01000000, m * 0.5, ((bits + 1) >> 1).to(tl.float32, bitcast=True))
    return m, bits, tl.where(bits == 0, 1.0, half)


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
    part, c = unit_at(chunks_ptr, g)
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


@triton.jit
def larger(a, b):
    """What a scan finds the last place with."""
    return tl.maximum(a, b)


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
    """A chunk's mode 1 into its slot. Without two zero bytes in a row these are the bytes of mode
    0, and then their mode is 0."""
    g = tl.program_id(0)
    part, c = unit_at(chunks_ptr, g)
    size = (elements_of(tl.load(table_ptr + part * 8 + COUNT), c) + 4) // 5
    slot = out_ptr + tl.load(begins_ptr + g)
    base = base_ptr + g.to(tl.int64) * 8192
    total = 0
    last_other = -1  # byte that isn't 121
    for first in range(0, size, BLOCK):
        i = first + tl.arange(0, BLOCK)
        ok = i < size
        byte = tl.load(base + i, mask=ok, other=0).to(tl.int32)
        if RUNS:
            after = tl.load(base + i + 1, mask=i + 1 < size, other=0).to(tl.int32)
            zero = ok & (byte == 121)
            before = tl.associative_scan(tl.where(zero, last_other, i), 0, larger)
            last_other = tl.max(before, axis=0)
            rest = (i - before - 1) % 14
            long = zero & (rest == 13)
            code = tl.where(zero, tl.where(long, 255, tl.where(rest == 0, 121, 242 + rest)), byte)
            ends = (ok & ((byte != 121) | long | (after != 121))).to(tl.int32)
            at = total + tl.cumsum(ends, 0)
            tl.store(slot + at, code.to(tl.uint8), mask=ends != 0)
            total += tl.sum(ends, axis=0)
        else:
            tl.store(slot + 1 + i, byte.to(tl.uint8), mask=ok)
            total += tl.sum(ok.to(tl.int32), axis=0)
    tl.store(slot, (total < size).to(tl.uint8))
    tl.store(sizes_ptr + g, 1 + total)


@triton.jit
def positions_of(table_ptr, chunks_ptr, found_ends_ptr, bounds_ptr, sizes_ptr, g):
    """Of a chunk: its elements, where its digits that aren't 0 begin in the list of all, how many
    they are, mode 2's k, and whether mode 2 may be shorter: a digit has at least k + 2 bits."""
    part, c = unit_at(chunks_ptr, g)
    n = elements_of(tl.load(table_ptr + part * 8 + COUNT), c)
    begin = tl.load(found_ends_ptr + g * 128 - 1, mask=g > 0, other=0)
    nonzeros = (tl.load(found_ends_ptr + g * 128 + 127) - begin).to(tl.int32)
    entry = tl.arange(0, 16)
    bound = tl.load(bounds_ptr + entry, mask=entry < 15, other=0)
    small = nonzeros.to(tl.int64) * 4294967296 <= bound * n.to(tl.int64)
    k = tl.sum(((entry < 15) & small).to(tl.int32), axis=0)
    return n, begin, nonzeros, k, 4 + (nonzeros * (k + 2) + 7) // 8 < tl.load(sizes_ptr + g)


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
    n, _, _, _, may_be = positions_of(
        table_ptr, chunks_ptr, found_ends_ptr, bounds_ptr, sizes_ptr, g
    )
    if may_be:
        row = (tl.program_id(0) % (128 // ROWS)) * ROWS + tl.arange(0, ROWS)[:, None]
        first = g * 128 + row
        begin = tl.load(found_ends_ptr + first - 1, mask=first > 0, other=0)
        elements = elements_of_rows(n, row)
        i = tl.arange(0, 512)[None, :]
        p = i >> 6
        j = i & 63
        t = (elements + 4) // 5
        place = p * t + j
        ok = (p < 5) & (j < t) & (place < elements)
        byte = tl.load(base_ptr + first.to(tl.int64) * 64 + j, mask=ok, other=121).to(tl.int32)
        low = tl.where(p == 2, byte // 9, tl.where(p == 3, byte // 3, byte))
        digit = tl.where(p == 0, byte // 81, tl.where(p == 1, byte // 27, low)) % 3
        found = (ok & (digit != 1)).to(tl.int32)
        entry = (row * 320 + place) | ((digit == 0).to(tl.int32) << 16)
        tl.store(list_ptr + begin + tl.cumsum(found, 1) - 1, entry, mask=found != 0)


@triton.jit
def put_positions(listed, nonzeros, k, words, LIMIT: tl.constexpr, BLOCK: tl.constexpr):
    """Gaps and signs into zeroed words; the bytes of the chunk in mode 2."""
    i = tl.arange(0, BLOCK)
    bit = 0
    for first in range(0, nonzeros, BLOCK):
        ok = first + i < nonzeros
        entry = tl.load(listed + first + i, mask=ok, other=0)
        last = tl.load(listed + first + i - 1, mask=ok & (first + i > 0), other=0)
        before = tl.where(first + i > 0, last & 0xFFFF, -1)
        gap = (entry & 0xFFFF) - before - 1
        u = gap >> k
        short = u < 24
        ones = tl.where(short, u, 24).to(tl.uint64)
        rest = tl.where(short, (gap & ((1 << k) - 1)) << 1, gap).to(tl.uint64)
        length = tl.where(short, u + 1 + k, 40)
        one = tl.full((BLOCK,), 1, tl.uint64)
        sign = (entry >> 16).to(tl.uint64) << length.to(tl.uint64)
        taken = tl.where(ok, length + 1, 0)
        at = bit + tl.cumsum(taken, 0) - taken
        put_code(words, LIMIT, at, ((one << ones) - 1) | (rest << ones) | sign, ok)
        bit += tl.sum(taken, axis=0)
    return 4 + (bit + 7) // 8


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
    """A chunk's mode 2 into zeroed words, 2,049 a chunk, if it may be the shortest; and its head,
    if it is."""
    g = tl.program_id(0)
    _, begin, nonzeros, k, may_be = positions_of(
        table_ptr, chunks_ptr, found_ends_ptr, bounds_ptr, sizes_ptr, g
    )
    if may_be:
        words = words_ptr + g.to(tl.int64) * 2049
        total = put_positions(list_ptr + begin, nonzeros, k, words, 2049, BLOCK)
        if total < tl.load(sizes_ptr + g):
            slot = out_ptr + tl.load(begins_ptr + g)
            tl.store(slot, tl.full((), 2, tl.uint8))
            tl.store(slot + 1, k.to(tl.uint8))
            tl.store(slot + 2, (nonzeros & 0xFF).to(tl.uint8))
            tl.store(slot + 3, (nonzeros >> 8).to(tl.uint8))
            tl.store(sizes_ptr + g, total)


@triton.jit(do_not_specialize=["begins_ptr", "sizes_ptr"])
def copy_parts_positions(words_ptr, out_ptr, begins_ptr, sizes_ptr, BLOCK: tl.constexpr):
    """The words of the chunks in mode 2 behind their heads."""
    g = tl.program_id(0)
    words = words_ptr + g.to(tl.int64) * 2049
    slot = out_ptr + tl.load(begins_ptr + g)
    size = tl.where(tl.load(slot) == 2, tl.load(sizes_ptr + g) - 4, 0)
    i = tl.arange(0, BLOCK)
    for first in range(0, size, BLOCK):
        at = first + i
        word = tl.load(words + (at >> 2), mask=at < size, other=0)
        tl.store(slot + 4 + at, ((word >> (8 * (at & 3))) & 0xFF).to(tl.uint8), mask=at < size)


@triton.jit
def given_of(table_ptr, chunks_ptr, spans_ptr, data_ptr):
    """Of the program's chunk that is decoded: its part, its elements, its bytes and how many they
    are. spans: where each begins and ends."""
    g = tl.program_id(0)
    part, c = unit_at(chunks_ptr, g)
    n = elements_of(tl.load(table_ptr + part * 4 + ELEMENTS), c)
    begin = tl.load(spans_ptr + 2 * g)
    return part, n, data_ptr + begin, (tl.load(spans_ptr + 2 * g + 1) - begin).to(tl.int32)


@triton.jit(do_not_specialize=["errors_ptr"])
def expand_parts_runs(
    table_ptr, chunks_ptr, spans_ptr, data_ptr, base_ptr, errors_ptr, BLOCK: tl.constexpr
):
    """Chunks of modes 0 and 1 into base, which holds 121 everywhere."""
    part, count, data, bytes_ = given_of(table_ptr, chunks_ptr, spans_ptr, data_ptr)
    base = base_ptr + tl.program_id(0).to(tl.int64) * 8192
    wanted = (count + 4) // 5
    size = bytes_ - 1
    mode = tl.load(data).to(tl.int32)
    if mode > 2:
        tl.atomic_or(errors_ptr + part, CORRUPT, sem="relaxed")
    if mode < 2:
        bad = tl.zeros((BLOCK,), tl.int32)
        total = 0
        for first in range(0, tl.minimum(size, 8192), BLOCK):
            i = first + tl.arange(0, BLOCK)
            ok = i < size
            code = tl.load(data + 1 + i, mask=ok, other=0).to(tl.int32)
            last = tl.load(data + i, mask=ok & (i > 0), other=0).to(tl.int32)
            wide = code > 242
            taken = tl.where(ok, tl.where(wide, code - 241, 1), 0)
            at = total + tl.cumsum(taken, 0) - taken
            after_short = (last == 121) | ((last > 242) & (last < 255))
            wrong = tl.where(mode == 0, wide, ((code == 121) | wide) & after_short)
            bad |= (ok & (wrong | (at + taken > wanted))).to(tl.int32)
            written = ok & (code != 121) & (code < 243) & (at < wanted)
            tl.store(base + at, code.to(tl.uint8), mask=written)
            total += tl.sum(taken, axis=0)
        wrong = (tl.max(bad, axis=0) > 0) | (size > 8192)
        error = tl.where(wrong, CORRUPT, tl.where(total < wanted, TRUNCATED, 0))
        tl.atomic_or(errors_ptr + part, error, sem="relaxed")


@triton.jit(do_not_specialize=["errors_ptr"])
def expand_parts_positions(table_ptr, chunks_ptr, spans_ptr, data_ptr, base_ptr, errors_ptr):
    """Chunks of mode 2 into base, code after code; base_ptr counts words of four bytes."""
    part, count, data, bytes_ = given_of(table_ptr, chunks_ptr, spans_ptr, data_ptr)
    base = base_ptr + tl.program_id(0).to(tl.int64) * 2048
    size = bytes_ - 4
    mode = tl.load(data).to(tl.int32)
    if mode == 2:
        k = tl.load(data + 1, mask=size >= 0, other=0).to(tl.int32)
        nonzeros = tl.load(data + 2, mask=size >= 0, other=0).to(tl.int32)
        nonzeros |= tl.load(data + 3, mask=size >= 0, other=0).to(tl.int32) << 8
        error = tl.where(size < 0, TRUNCATED, tl.where((k > 15) | (nonzeros > count), CORRUPT, 0))
        position = tl.full((), -1, tl.int32)
        bit = tl.full((), 0, tl.int32)
        number = tl.full((), 0, tl.int32)
        while (number < nonzeros) & (error == 0):
            window = read_window(data + 4, bit, size)
            gap, length, needless = read_gap(window, k, 16)
            sign = (window >> length.to(tl.uint64)).to(tl.int32) & 1
            position += gap.to(tl.int32) + 1
            bit += length + 1
            number += 1
            wrong = tl.where(needless | (position >= count), CORRUPT, 0)
            error = tl.where(bit > 8 * size, TRUNCATED, wrong)
            if error == 0:
                row = position // 320
                t = (tl.minimum(count - row * 320, 320) + 4) // 5
                p = (position - row * 320) // t
                at = row * 64 + (position - row * 320) - p * t
                weight = tl.where(
                    p == 0, 81, tl.where(p == 1, 27, tl.where(p == 2, 9, tl.where(p == 3, 3, 1)))
                )
                change = tl.where(sign == 0, weight, -weight) << (8 * (at & 3))
                tl.atomic_add(base + (at >> 2), change, sem="relaxed")
        if error == 0:
            rest = read_window(data + 4, bit, size)  # less than a byte, of zeros
            error = tl.where(((bit + 7) // 8 < size) | (rest != 0), CORRUPT, 0)
        tl.atomic_or(errors_ptr + part, error, sem="relaxed")


@triton.jit(do_not_specialize=["errors_ptr"])
def write_parts_values(
    table_ptr, chunks_ptr, base_ptr, errors_ptr, scale, ADD: tl.constexpr, ROWS: tl.constexpr
):
    """Digits into values, or into sums with them; nothing where the chunks were refused."""
    g = tl.program_id(0) // (128 // ROWS)
    part, c = unit_at(chunks_ptr, g)
    table = table_ptr + part * 4
    row = (tl.program_id(0) % (128 // ROWS)) * ROWS + tl.arange(0, ROWS)[:, None]
    elements = elements_of_rows(elements_of(tl.load(table + ELEMENTS), c), row)
    out = floats_at(tl.load(table + SLOT)) + (c * 40960 + row * 320)
    bits = tl.load(table + GIVEN).to(tl.int32)
    refused = tl.load(errors_ptr + part)
    j = tl.arange(0, 64)[None, :]
    t = (elements + 4) // 5
    bytes_ = base_ptr + g.to(tl.int64) * 8192 + row * 64
    byte = tl.load(bytes_ + j, mask=j < t, other=121).to(tl.int32)
    plus = bits.to(tl.float32, bitcast=True) * scale
    minus = (plus.to(tl.int32, bitcast=True) ^ -2147483648).to(tl.float32, bitcast=True)
    bad = tl.where(bits == 0, byte != 121, False)
    for p in tl.static_range(5):
        digit = (byte // 3 ** (4 - p)) % 3
        place = p * t + j
        real = (j < t) & (place < elements)
        bad |= (j < t) & (place >= elements) & (digit != 1)
        real = tl.where(refused == 0, real, False)
        value = tl.where(digit == 2, plus, tl.where(digit == 0, minus, 0.0))
        if ADD:
            real = real & (digit != 1)
        put_floats(out, place, real, value, ADD)
    if tl.max(tl.max(bad.to(tl.int32), axis=1), axis=0) > 0:
        tl.atomic_or(errors_ptr + part, CORRUPT, sem="relaxed")
