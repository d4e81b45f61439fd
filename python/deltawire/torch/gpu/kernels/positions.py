"""Positions that topk and sbc send, in chunks of 16,384: Golomb codes of many parts in one launch
(src/codecs/sbc/spec.md, sections 2 and 6). Selections are those of `selection`.

Tensors that are slices of others aren't specialized: each alignment would be compiled anew.
"""

import triton
import triton.language as tl

from deltawire.torch.gpu.kernels.bit_streams import (
    CORRUPT,
    INTERPOLATIVE,
    TRUNCATED,
    put_code,
    read_gap,
    read_window,
)
from deltawire.torch.gpu.kernels.candidates import FIRST
from deltawire.torch.gpu.kernels.part_tables import ELEMENTS, GIVEN, unit_of


@triton.jit
def sent_of(plan_ptr, sent_ptr, part):
    """Where in the list a part's positions begin that are sent, and how many they are."""
    begin = tl.load(plan_ptr + part * 4 + FIRST) + tl.load(sent_ptr + 2 * part)
    return begin, tl.load(sent_ptr + 2 * part + 1)


@triton.jit
def sent_of_chunk(plan_ptr, sent_ptr, part, c):
    """The same of chunk c, if it is there."""
    begin, count = sent_of(plan_ptr, sent_ptr, part)
    return begin + c * 16384, tl.minimum(count - c * 16384, 16384).to(tl.int32)


@triton.jit
def load_position(positions, i, ok):
    """A position as int64; it is stored as the bits of an unsigned number."""
    return tl.load(positions + i, mask=ok, other=0).to(tl.uint32, bitcast=True).to(tl.int64)


@triton.jit
def rice_parameter(positions, n, bounds_ptr):
    """b of a chunk of n positions, from its density."""
    last = load_position(positions, tl.maximum(n - 1, 0), n > 0)
    span = last - load_position(positions, 0, n > 0)
    entry = tl.arange(0, 32)
    bound = tl.load(bounds_ptr + entry, mask=entry < 24, other=0)
    gaps = (n - 1).to(tl.uint64) * 4294967296
    small = gaps <= bound.to(tl.uint64) * span.to(tl.uint64)
    b = tl.sum(((entry < 24) & small).to(tl.int32), axis=0)
    return tl.where(n < 2, 0, b)


@triton.jit
def gap_codes(positions, n, row0, b, ROWS: tl.constexpr, LANES: tl.constexpr):
    """Codes of the gaps from row0 on and their lengths, a lane a column; 0 where there is none."""
    row = row0 + tl.arange(0, ROWS)
    i = row[:, None] * LANES + tl.arange(0, LANES)[None, :]
    ok = i < n - 1
    gap = load_position(positions, i + 1, ok) - load_position(positions, i, ok) - 1
    gap = tl.where(ok, gap, 0)
    u = gap >> b
    short = u < 24
    ones = tl.where(short, u, 24).to(tl.uint64)
    one = tl.full((ROWS, LANES), 1, tl.uint64)
    low = (gap & ((tl.full((ROWS, LANES), 1, tl.int64) << b) - 1)) << 1
    rest = tl.where(short, low, gap).to(tl.uint64)
    length = tl.where(ok, tl.where(short, u.to(tl.int32) + 1 + b, 56), 0)
    return ((one << ones) - 1) | (rest << ones), length, ok


@triton.jit
def put_head(words, slot_words, positions, n, b, size, LANES: tl.constexpr):
    """A chunk's head: code, number, first position, lanes' bytes."""
    lane = tl.arange(0, LANES)
    zero = lane * 0
    log = 96 if LANES == 8 else (64 if LANES == 4 else 0)
    code = (b + log) | (n << 8)
    put_code(words, slot_words, zero, (zero + code).to(tl.uint64), lane == 0)
    first = load_position(positions, zero, (lane == 0) & tl.where(n > 0, lane == 0, False))
    put_code(words, slot_words, zero + 24, first.to(tl.uint64), lane == 0)
    sized = (lane < LANES - 1) & tl.where(n >= 2, lane >= 0, False)
    put_code(words, slot_words, 56 + 16 * lane, size.to(tl.uint64), sized)


@triton.jit(do_not_specialize=["begins_ptr", "sizes_ptr", "all_words"])
def encode_parts_positions(
    chunks_ptr,
    plan_ptr,
    sent_ptr,
    list_ptr,
    bounds_ptr,
    words_ptr,
    begins_ptr,
    sizes_ptr,
    all_words,
    ROWS: tl.constexpr,
    LANES: tl.constexpr,
):
    """A chunk into its zeroed words, if it is there and LANES is its number of lanes. words: of all
    payloads, and how many they are."""
    part, c = unit_of(chunks_ptr)
    g = tl.program_id(0)
    begin, n = sent_of_chunk(plan_ptr, sent_ptr, part, c)
    lanes = tl.where(n < 512, 1, tl.where(n < 4096, 4, 8))
    if ((n > 0) | (c == 0)) & (lanes == LANES):
        word = tl.load(begins_ptr + g) >> 2
        words = words_ptr + word
        left = all_words - word
        positions = list_ptr + begin
        b = rice_parameter(positions, n, bounds_ptr)
        rows = (n - 1 + LANES - 1) // LANES
        used = tl.zeros((LANES,), tl.int32)
        for row0 in range(0, rows, ROWS):
            _, length, _ = gap_codes(positions, n, row0, b, ROWS, LANES)
            used += tl.sum(length, axis=0)
        size = (used + 7) >> 3
        head = tl.where(n < 1, 3, 7 + tl.where(n < 2, 0, 2 * (LANES - 1)))
        put_head(words, left, positions, n, b, size, LANES)
        bit = (head + tl.cumsum(size, 0) - size) << 3
        for row0 in range(0, rows, ROWS):
            code, length, ok = gap_codes(positions, n, row0, b, ROWS, LANES)
            at = bit[None, :] + tl.cumsum(length, 0) - length
            put_code(words, left, at, code, ok)
            bit += tl.sum(length, axis=0)
        tl.store(sizes_ptr + g, head + tl.sum(size, axis=0))


@triton.jit
def check_head(code, n, c, is_last, size, room):
    """What is wrong with the first bytes of chunk c of n elements. room: bytes without the values;
    and how many bytes the head has."""
    b = code & 31
    log = code >> 5
    bad = tl.where(is_last, (n > 16384) | ((n == 0) & (c > 0)), n != 16384)
    bad = bad | (b > 24) | (log == 1) | (log > 3)
    bad = bad | ((n < 2) & (code != 0)) | ((n == 0) & (room > 3))
    head = tl.where(n == 0, 3, 7 + 2 * ((1 << log) - 1))
    short = (size < 3) | (room < 3) | (room < head)
    error = tl.where(bad, CORRUPT, tl.where(short, TRUNCATED, 0))
    return tl.where(code == 31, INTERPOLATIVE, error), head


@triton.jit(do_not_specialize=["errors_ptr"])
def decode_parts_gaps(
    table_ptr,
    chunks_ptr,
    spans_ptr,
    data_ptr,
    list_ptr,
    counts_ptr,
    errors_ptr,
    VALUE_BITS: tl.constexpr,
):
    """A chunk's gaps plus 1, behind its first position, a lane of its streams each in parallel; and
    how many positions it has, 0 if it is refused. spans: where each chunk begins and ends."""
    part, c = unit_of(chunks_ptr)
    g = tl.program_id(0)
    n = tl.load(table_ptr + part * 4 + ELEMENTS)
    begin = tl.load(spans_ptr + 2 * g)
    size = (tl.load(spans_ptr + 2 * g + 1) - begin).to(tl.int32)
    data = data_ptr + begin
    listed = list_ptr + g.to(tl.int64) * 16384
    next_part = tl.load(chunks_ptr + 2 * g + 2, mask=g + 1 < tl.num_programs(0), other=-1)
    code = tl.load(data).to(tl.int32)
    found = tl.load(data + 1, mask=size > 2, other=0).to(tl.int32)
    found |= tl.load(data + 2, mask=size > 2, other=0).to(tl.int32) << 8
    room = size - found * (VALUE_BITS // 8)
    error, head = check_head(code, found, c, next_part != part, size, room)
    if (error == 0) & (found > 0):
        lane = tl.arange(0, 8)
        lanes = 1 << (code >> 5)
        first = tl.zeros((), tl.int64)
        for byte in tl.static_range(4):
            first |= tl.load(data + 3 + byte).to(tl.int64) << (8 * byte)
        sized = lane < lanes - 1
        bytes_ = tl.load(data + 7 + 2 * lane, mask=sized, other=0).to(tl.int32)
        bytes_ |= tl.load(data + 8 + 2 * lane, mask=sized, other=0).to(tl.int32) << 8
        end = head + tl.cumsum(bytes_, 0)
        start = end - bytes_
        error = tl.where(tl.max(tl.where(sized, end, 0), axis=0) > room, TRUNCATED, 0)
        end = tl.where(lane == lanes - 1, room, end)
        bit = start * 8
        tl.store(listed, first)
        error = tl.where(first >= n, CORRUPT, error)
        rows = (found - 1 + lanes - 1) // lanes
        row = tl.zeros((), tl.int32)
        while (row < rows) & (error == 0):
            i = row * lanes + lane
            ok = (lane < lanes) & (i < found - 1)
            gap, length, needless = read_gap(read_window(data, bit, end), code & 31, 32)
            bit += tl.where(ok, length, 0)
            wrong = tl.where(needless | (gap >= n), CORRUPT, 0)
            wrong = tl.where(bit > 8 * end, TRUNCATED, wrong)
            error = tl.max(tl.where(ok, wrong, 0), axis=0)
            tl.store(listed + 1 + i, gap + 1, mask=ok)
            row += 1
        rest = read_window(data, bit, end)
        left = (lane < lanes) & (((bit + 7) // 8 < end) | (rest != 0))
        wrong = tl.where(tl.max(left.to(tl.int32), axis=0) > 0, CORRUPT, 0)
        error = tl.where(error == 0, wrong, error)
    tl.store(counts_ptr + g, tl.where(error == 0, found, 0))
    tl.atomic_or(errors_ptr + part, error, sem="relaxed")


@triton.jit(do_not_specialize=["errors_ptr"])
def sum_parts_gaps(
    table_ptr, chunks_ptr, list_ptr, counts_ptr, lasts_ptr, errors_ptr, BLOCK: tl.constexpr
):
    """Positions from a chunk's gaps."""
    part, _ = unit_of(chunks_ptr)
    g = tl.program_id(0)
    count = tl.load(counts_ptr + g)
    listed = list_ptr + g.to(tl.int64) * 16384
    position = tl.zeros((), tl.int64)
    for first in range(0, count, BLOCK):
        i = first + tl.arange(0, BLOCK)
        gap = tl.load(listed + i, mask=i < count, other=0)
        tl.store(listed + i, position + tl.cumsum(gap, 0), mask=i < count)
        position += tl.sum(gap, axis=0)
    tl.store(lasts_ptr + g, tl.where(count > 0, position, -1))
    n = tl.load(table_ptr + part * 4 + ELEMENTS)
    tl.atomic_or(errors_ptr + part, tl.where(position >= n, CORRUPT, 0), sem="relaxed")


@triton.jit(do_not_specialize=["errors_ptr"])
def check_parts_order(
    table_ptr, chunks_ptr, list_ptr, counts_ptr, lasts_ptr, errors_ptr, SCALAR: tl.constexpr
):
    """Positions grow from chunk to chunk. SCALAR: the part's is 0 without positions (1), and only
    then (2)."""
    part, c = unit_of(chunks_ptr)
    g = tl.program_id(0)
    count = tl.load(counts_ptr + g)
    before = tl.load(lasts_ptr + g - 1, mask=c > 0, other=-1)
    scalar = tl.load(table_ptr + part * 4 + GIVEN).to(tl.int32)
    first = tl.load(list_ptr + g.to(tl.int64) * 16384, mask=count > 0, other=0)
    error = tl.where((count > 0) & (first <= before), CORRUPT, 0)
    if SCALAR == 1:
        error = tl.where((count == 0) & (scalar != 0), CORRUPT, error)
    if SCALAR == 2:
        error = tl.where((count == 0) != (scalar == 0), CORRUPT, error)
    good = tl.load(errors_ptr + part) == 0  # a refused chunk has no count
    tl.atomic_or(errors_ptr + part, tl.where(good, error, 0), sem="relaxed")
