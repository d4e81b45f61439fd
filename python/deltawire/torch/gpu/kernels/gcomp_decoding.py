"""gcomp's blocks, decoded (src/codecs/gcomp/spec.md, sections 3 to 5). A block a
program, eight for each chunk.
"""

import triton
import triton.language as tl

from deltawire.torch.gpu.kernels.bit_streams import CORRUPT, TRUNCATED
from deltawire.torch.gpu.kernels.gcomp_encoding import (
    elements_of_block,
    elements_of_stretch,
    lanes_of,
    mantissa_lanes_of,
)
from deltawire.torch.gpu.kernels.gcomp_heads import (
    AREA,
    BELOW,
    ESCAPE,
    HAS_TINY,
    IN_BYTES,
    MODE,
    TINY,
    WHOLE,
    ZERO,
    load_byte,
)
from deltawire.torch.gpu.kernels.gcomp_values import elements_of
from deltawire.torch.gpu.kernels.part_tables import (
    ELEMENTS,
    SLOT,
    floats_at,
    put_floats,
    unit_of,
)
from deltawire.torch.gpu.kernels.positions_decoding import load_bytes


@triton.jit
def put_bits(out, i, ok, bits, scale, SCALED: tl.constexpr, ADD: tl.constexpr):
    """Values times scale, or sums with them; zeros as they are."""
    value = bits.to(tl.float32, bitcast=True)
    if SCALED:
        value = tl.where(bits == 0, 0.0, value * scale)
    if ADD:
        ok = ok & (bits != 0)
    put_floats(out, i, ok, value, ADD)


@triton.jit
def log_of(state):
    """The place of the highest set bit of numbers below 2^53, which aren't 0."""
    return ((state.to(tl.float64).to(tl.int64, bitcast=True) >> 52) - 1023).to(tl.int32)


@triton.jit
def load_number(stream, at, ok, BYTES: tl.constexpr):
    """A number of so many bytes; what stands before the stream is 0."""
    return load_bytes(stream, at, ok & (at >= 0), BYTES).to(tl.int64) & ((1 << (8 * BYTES)) - 1)


@triton.jit
def take_from_end(stream, left, takes, BYTES: tl.constexpr):
    """The numbers that some of the elements or lanes take from the end of the stream, from the last
    to the first; and the bytes left."""
    one = takes.to(tl.int32)
    all_ = tl.sum(one, axis=0)
    at = left - BYTES * (all_ - tl.cumsum(one, 0) + 1)
    number = load_number(stream, at, takes, BYTES)
    return number, left - BYTES * all_


@triton.jit
def more_bits(state, unread, number, takes, BYTES: tl.constexpr):
    """States with a number's bits above those that are unread."""
    one = tl.full((), 1, tl.int64)
    held = unread.to(tl.int64)
    more = (state - (one << held)) | (number << held) | (one << (held + 8 * BYTES))
    return tl.where(takes, more, state)


@triton.jit
def take_code(heads, state, ok):
    """The entries of the lanes' next codes, and what is left."""
    entry = tl.load(heads + (state & 255).to(tl.int32), mask=ok, other=0)
    return entry, state >> ((entry >> 13) & 15).to(tl.int64)


@triton.jit
def take_codes(heads, state, ok):
    """The entries of a stretch's codes, and what is left of the lanes."""
    is_first = tl.arange(0, 2)[:, None] == 0
    both = tl.reshape(ok.to(tl.int32), (2, 64))
    first, state = take_code(heads, state, tl.sum(tl.where(is_first, both, 0), axis=0) != 0)
    second, state = take_code(heads, state, tl.sum(tl.where(is_first, 0, both), axis=0) != 0)
    return tl.reshape(tl.where(is_first, first[None, :], second[None, :]), (128,)), state


@triton.jit
def is_coded(heads, below, exponent, is_escape):
    """Whether escapes stand for exponents that have a code, or for a tiny value that may not be."""
    r = exponent - below
    coded = tl.load(heads + 256 + r, mask=is_escape & (r >= 1) & (r <= 30), other=0) > 0
    no_tiny = (tl.load(heads + WHOLE) == 0) | (tl.load(heads + HAS_TINY) != 0)
    return coded | ((exponent == 0) & tl.where(no_tiny, is_escape, False))


@triton.jit
def joined(exponent, mantissa, width):
    """Bits of values."""
    m = (mantissa << (24 - width).to(tl.int64)).to(tl.int32)
    return ((m & 0x800000) << 8) | (exponent << 23) | (m & 0x7FFFFF)


@triton.jit
def read_mantissas(stream, left, state, symbols, stretch, target, form: tl.constexpr):
    """A stretch's signs and mantissas from their lanes, and its values. symbols: of each element
    the exponent, and the width from bit 8 on. stretch: its first element, the block's elements,
    lanes of codes. target, form: as decode_coded has them. Gives the bytes left and the states."""
    begin, count, lanes = stretch
    out, scale = target
    m = tl.maximum(lanes // 4, 1)
    j = tl.arange(0, 16)
    rows = tl.minimum(2 * lanes, 8)
    one = tl.full((), 1, tl.int64)
    for q in range(rows):
        k = (rows - 1 - q) * m + j
        ok = (j < m) & (begin + k < count)
        symbol = tl.load(symbols + k, mask=ok, other=0)
        width = symbol >> 8
        unread = log_of(state)
        takes = width > unread
        word, left = take_from_end(stream, left, takes, 4)
        state = more_bits(state, unread, word, takes, 4)
        mantissa = state & ((one << width.to(tl.int64)) - 1)
        state = state >> width.to(tl.int64)
        bits = joined(symbol & 255, mantissa, width)
        put_bits(out, begin + k, ok, bits, scale, form[0], form[1])
    return left, state


@triton.jit
def open_block(data, size, lanes, m):
    """A coded block: bytes of its stream, states of its lanes of codes and of mantissas, and an
    error."""
    left = load_byte(data, 0, size) | (load_byte(data, 1, size) << 8)
    left = (left | (load_byte(data, 2, size) << 16)) >> 2
    wanted = 3 + left + 4 * (lanes + m)
    error = tl.where((size < 3) | (size < wanted), TRUNCATED, tl.where(size > wanted, CORRUPT, 0))
    good = error == 0
    lane = tl.arange(0, 64)
    j = tl.arange(0, 16)
    is_lane = lane < tl.where(good, lanes, 0)
    is_mantissa = j < tl.where(good, m, 0)
    states = data + 3 + left
    state = load_number(states, 4 * lane, is_lane, 4)
    mantissas = load_number(states, 4 * (lanes + j), is_mantissa, 4)
    empty = tl.max((is_lane & (state < 65536)).to(tl.int32), axis=0)
    empty |= tl.max((is_mantissa & (mantissas == 0)).to(tl.int32), axis=0)
    error = tl.where(good & (empty != 0), CORRUPT, error)
    return left, tl.where(is_lane, state, 65536), tl.where(is_mantissa, mantissas, 1), error


@triton.jit
def decode_coded(heads, data, size, count, symbols, target, form: tl.constexpr):
    """A coded block of so many elements, of `size` bytes; an error. target: where values go, and
    the scale. form: whether there is one, whether values are added, whether mantissas are bytes."""
    lanes = lanes_of(count)
    m = mantissa_lanes_of(lanes, form[2])
    left, state, mantissas, error = open_block(data, size, lanes, m)
    stream = data + 3
    below = tl.load(heads + BELOW)
    k, of_stretch = elements_of_stretch(lanes)
    begin = tl.full((), 0, tl.int32)
    while (begin < count) & (error == 0):
        ok = of_stretch & (begin + k < count)
        entry, state = take_codes(heads, state, ok)
        is_escape = (entry & ESCAPE) != 0
        bare = (entry & (ZERO | TINY)) != 0
        exponent = tl.where(bare, 0, below + (entry & 31))
        wrong = entry < 0
        if tl.max(is_escape.to(tl.int32), axis=0) > 0:
            byte, left = take_from_end(stream, left, is_escape, 1)
            exponent = tl.where(is_escape, byte.to(tl.int32), exponent)
            wrong = is_coded(heads, below, exponent, is_escape)
        few = state < 65536
        word, left = take_from_end(stream, left, few, 2)
        state = more_bits(state, log_of(state), word, few, 2)
        width = tl.where(ok, (entry >> 8) & 31, 0)
        if form[2]:
            mantissa, left = take_from_end(stream, left, width > 0, 3)
            bits = joined(exponent, mantissa, width)
            wrong |= (width > 0) & (bits == 0)
            put_bits(target[0], begin + k, ok, bits, target[1], form[0], form[1])
        else:
            tl.debug_barrier()
            tl.store(symbols + k, exponent | (width << 8), mask=ok)
            tl.debug_barrier()
            left, mantissas = read_mantissas(
                stream, left, mantissas, symbols, (begin, count, lanes), target, form
            )
        bad = tl.max(wrong.to(tl.int32), axis=0)
        error = tl.where(left < 0, TRUNCATED, tl.where(bad != 0, CORRUPT, 0))
        begin += 2 * lanes
    unread = tl.max((state != 65536).to(tl.int32), axis=0)
    unread |= tl.max((mantissas != 1).to(tl.int32), axis=0)
    return tl.where(error == 0, tl.where((left > 0) | (unread != 0), CORRUPT, 0), error)


@triton.jit
def find_block(data, size, index, n, b):
    """Where block b of a chunk of n elements begins, its bytes, and an error. index: where that of
    the chunk begins."""
    blocks = (n + 32767) >> 15
    area = index + 4 * (blocks - 1)
    k = tl.arange(0, 2) + b - 1
    ends = load_bytes(data, index + 4 * k, (k >= 0) & (k < blocks - 1), 4)
    ends = tl.where(k == blocks - 1, size - area, ends)
    ends = tl.where((ends < 0) | (ends > size - area), size, ends)  # beyond the chunk
    begin = tl.sum(tl.where(k == b - 1, ends, 0), axis=0)
    end = tl.sum(tl.where(k == b, ends, 0), axis=0)
    error = tl.where(end <= begin, tl.where(b == blocks - 1, TRUNCATED, CORRUPT), 0)
    error = tl.where(end > size - area, TRUNCATED, error)
    return area + begin, end - begin, error


@triton.jit(do_not_specialize=["errors_ptr"])
def decode_blocks(
    table_ptr,
    chunks_ptr,
    spans_ptr,
    data_ptr,
    heads_ptr,
    symbols_ptr,
    errors_ptr,
    scale,
    SCALED: tl.constexpr,
    ADD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The values of each block, a program; eight for each chunk."""
    part, c = unit_of(chunks_ptr)
    g = tl.program_id(0).to(tl.int64)
    b = tl.program_id(1)
    row = table_ptr + part * 4
    n = elements_of(tl.load(row + ELEMENTS), c)
    count = elements_of_block(n, b)
    heads = heads_ptr + g * 296
    mode = tl.load(heads + MODE)
    data = data_ptr + tl.load(spans_ptr + 2 * g)
    size = (tl.load(spans_ptr + 2 * g + 1) - tl.load(spans_ptr + 2 * g)).to(tl.int32)
    out = floats_at(tl.load(row + SLOT)) + (c * 262144 + b * 32768)
    error = tl.full((), 0, tl.int32)
    values = data + 1 + 4 * b * 32768
    if ((mode == 2) | (mode == 3)) & (count > 0):
        begin, size, error = find_block(data, size, tl.load(heads + AREA), n, b)
        data += begin
        first = tl.load(data, mask=error == 0, other=0).to(tl.int32)
        mode = tl.where(first & 3 == 2, 2, first)
        error = tl.where((error == 0) & (mode > 2), CORRUPT, error)
        wanted = 1 + tl.where(mode == 0, 4 * count, 0)
        plain = tl.where(size < wanted, TRUNCATED, tl.where(size > wanted, CORRUPT, 0))
        error = tl.where((error == 0) & (mode < 2), plain, error)
        values = data + 1
        if (mode == 2) & (error == 0):
            symbols = symbols_ptr + (g * 8 + b) * 128
            given = (out, scale)
            if tl.load(heads + IN_BYTES) != 0:
                form: tl.constexpr = (SCALED, ADD, True)
                error = decode_coded(heads, data, size, count, symbols, given, form)
            else:
                lanes: tl.constexpr = (SCALED, ADD, False)
                error = decode_coded(heads, data, size, count, symbols, given, lanes)
    if (mode < 2) & (error == 0):
        for begin in range(0, count, BLOCK):
            i = begin + tl.arange(0, BLOCK)
            ok = i < count
            bits = load_bytes(values, 4 * i, tl.where(mode == 0, ok, False), 4)
            put_bits(out, i, ok, bits, scale, SCALED, ADD)
    tl.atomic_or(errors_ptr + part, error, sem="relaxed")
