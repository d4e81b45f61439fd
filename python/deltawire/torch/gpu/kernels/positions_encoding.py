"""Golomb codes of positions, in chunks of 16,384 (src/codecs/sbc/spec.md, sections 2 and 6)."""

import triton
import triton.language as tl

from deltawire.torch.gpu.kernels.bit_streams import put_code


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


@triton.jit
def put_gaps(words, slot_words, positions, n, bounds_ptr, ROWS: tl.constexpr, LANES: tl.constexpr):
    """A chunk of n positions into zeroed words, up to `slot_words`. Its bytes."""
    b = rice_parameter(positions, n, bounds_ptr)
    rows = (n - 1 + LANES - 1) // LANES
    used = tl.zeros((LANES,), tl.int32)
    for row0 in range(0, rows, ROWS):
        _, length, _ = gap_codes(positions, n, row0, b, ROWS, LANES)
        used += tl.sum(length, axis=0)
    size = (used + 7) >> 3
    head = tl.where(n < 1, 3, 7 + tl.where(n < 2, 0, 2 * (LANES - 1)))
    put_head(words, slot_words, positions, n, b, size, LANES)
    bit = (head + tl.cumsum(size, 0) - size) << 3
    for row0 in range(0, rows, ROWS):
        code, length, ok = gap_codes(positions, n, row0, b, ROWS, LANES)
        at = bit[None, :] + tl.cumsum(length, 0) - length
        put_code(words, slot_words, at, code, ok)
        bit += tl.sum(length, axis=0)
    return head + tl.sum(size, axis=0)


@triton.jit
def coded_by(n, c, LANES: tl.constexpr):
    """Whether chunk c, of n positions, is there and has as many lanes."""
    lanes = tl.where(n < 512, 1, tl.where(n < 4096, 4, 8))
    return ((n > 0) | (c == 0)) & (lanes == LANES)
