"""gcomp's blocks of 32,768 values, in up to 64 lanes (src/codecs/gcomp/spec.md, sections 3 and 6).
A block a program, eight for each chunk. `form` is that of gcomp_values.
"""

import triton
import triton.language as tl

from deltawire.torch.gpu.kernels.gcomp_tables import BELOW, SECOND, WORTH
from deltawire.torch.gpu.kernels.gcomp_values import elements_of, load_sent
from deltawire.torch.gpu.kernels.part_tables import COUNT, store_residual, unit_of


@triton.jit
def elements_of_block(n, b):
    """How many elements block b of a chunk of n elements has: a number or several."""
    return tl.minimum(tl.maximum(n - b * 32768, 0), 32768)


@triton.jit
def lanes_of(count):
    """Lanes of codes of blocks of so many elements."""
    lanes = tl.where(count >= 128, 2, 1)
    for log in tl.static_range(2, 7):
        lanes = tl.where(count >= (64 << log), 1 << log, lanes)
    return lanes


@triton.jit
def mantissa_lanes_of(lanes, in_bytes):
    """Lanes of mantissas beside them."""
    return tl.where(in_bytes, 0, tl.maximum(lanes // 4, 1))


@triton.jit
def elements_of_stretch(lanes):
    """Of 2 times 64 lanes the element's number in its stretch, and whether the lane is there."""
    i = tl.arange(0, 128)
    lane = i & 63
    return (i >> 6) * lanes + lane, lane < lanes


@triton.jit
def scratch_of(scratch_ptr, begins_ptr, room_begin, b):
    """Where a block is coded before it is known where it goes: twice the room of its chunk."""
    begin = tl.load(begins_ptr + tl.program_id(0)) - room_begin
    return scratch_ptr + 2 * begin + b * (8 * 32768)


@triton.jit
def put_number(out, at, number, ok, BYTES: tl.constexpr):
    """A number of so many bytes."""
    for byte in tl.static_range(BYTES):
        tl.store(out + at + byte, ((number >> (8 * byte)) & 0xFF).to(tl.uint8), mask=ok)


@triton.jit
def mantissa_of(sent, width):
    """The highest bits of sign and mantissa."""
    return (((sent >> 8) & 0x800000) | (sent & 0x7FFFFF)) >> (24 - width)


@triton.jit
def load_coded(source, i, ok, form: tl.constexpr):
    """Of some values of a part: the bits that are sent, exponents, symbols' codes, what is left.
    source: the part's row, the block's first element, the chunk's codes, the exponent below its
    window."""
    row, first, codes, below = source
    sent, exponent, level, left = load_sent(row, first + i, ok, form)
    r = exponent - below
    symbol = tl.where((r >= 1) & (r <= 30), r + 32 * level, 31)
    entry = tl.load(codes + tl.where(exponent == 0, 32 * level, symbol), mask=ok, other=0)
    return sent, exponent, entry, left


@triton.jit
def push_mantissas(out, used, state, filled, stretch, source, form: tl.constexpr):
    """Signs and mantissas of a stretch (its first element, its end, lanes of codes) into their
    lanes. Gives bytes, states and bits held."""
    begin, end, lanes = stretch
    m = tl.maximum(lanes // 4, 1)
    j = tl.arange(0, 16)
    one = tl.full((), 1, tl.int64)
    for q in range(tl.minimum(2 * lanes, 8)):
        i = begin + q * m + j
        sent, _, entry, _ = load_coded(source, i, (j < m) & (i < end), form)
        width = (entry >> 16) & 255
        state = (state << width.to(tl.int64)) | mantissa_of(sent, width).to(tl.int64)
        filled += width
        full = (filled >= 32).to(tl.int32)
        filled -= 32 * full
        word = (state >> filled.to(tl.int64)) & 0xFFFFFFFF
        put_number(out, used + 4 * (tl.cumsum(full, 0) - full), word, full != 0, 4)
        state = state & ((one << filled.to(tl.int64)) - 1)
        used += 4 * tl.sum(full, axis=0)
    return used, state, filled


@triton.jit
def push_codes(out, used, state, held, entry):
    """The codes of a stretch into their lanes. Gives bytes, states and bits held."""
    both = tl.reshape(entry, (2, 64))
    is_first = tl.arange(0, 2)[:, None] == 0
    first = tl.sum(tl.where(is_first, both, 0), axis=0)
    second = tl.sum(tl.where(is_first, 0, both), axis=0)
    length0 = (first >> 8) & 255
    length1 = (second >> 8) & 255
    k = length0 + length1
    full = (held + k >= 32).to(tl.int32)
    held -= 16 * full
    word = state >> held.to(tl.int64)
    put_number(out, used + 2 * (tl.cumsum(full, 0) - full), word, full != 0, 2)
    state = state & ((tl.full((), 1, tl.int64) << held.to(tl.int64)) - 1)
    codes = ((second & 255) << length0) | (first & 255)
    state = (state << k.to(tl.int64)) | codes.to(tl.int64)
    return used + 2 * tl.sum(full, axis=0), state, held + k


@triton.jit
def append_some(out, used, numbers, has, BYTES: tl.constexpr):
    """Some numbers of a stretch one after another; the bytes used."""
    one = has.to(tl.int32)
    put_number(out, used + BYTES * (tl.cumsum(one, 0) - one), numbers, has, BYTES)
    return used + BYTES * tl.sum(one, axis=0)


@triton.jit
def put_states(out, at, state, held, is_lane):
    """States of lanes, which end above the bits that they hold."""
    end = tl.full((), 1, tl.int64) << held.to(tl.int64)
    put_number(out, at, state | end, is_lane, 4)


@triton.jit
def encode_block(row, first, count, codes, below, out, form: tl.constexpr):
    """Codes `count` values of a part, from the last stretch to the first: the stream, and states
    behind it. The residual is what is not sent. Gives the stream's bytes, and whether a value isn't
    0."""
    in_bytes: tl.constexpr = (form[3] == "whole" or form[3] == "all") and form[2] == 0
    source = (row, first, codes, below)
    lanes = lanes_of(count)
    lane = tl.arange(0, 64)
    state = tl.zeros((64,), tl.int64)
    held = tl.full((64,), 16, tl.int32)
    mantissas = tl.zeros((16,), tl.int64)
    filled = tl.zeros((16,), tl.int32)
    used = tl.full((), 0, tl.int32)
    some = tl.zeros((128,), tl.int32)
    k, of_stretch = elements_of_stretch(lanes)
    begin = (count - 1) & -(2 * lanes)
    while begin >= 0:
        i = begin + k
        ok = of_stretch & (i < count)
        sent, exponent, entry, left = load_coded(source, i, ok, form)
        some |= tl.where(ok, sent, 0)
        if in_bytes:
            has = ((entry >> 16) & 255) != 0
            used = append_some(out, used, mantissa_of(sent, 24), has, 3)
        elif tl.max((entry >> 16) & 255, axis=0) > 0:
            end = tl.minimum(count, begin + 2 * lanes)
            used, mantissas, filled = push_mantissas(
                out, used, mantissas, filled, (begin, end, lanes), source, form
            )
        used, state, held = push_codes(out, used, state, held, entry)
        escapes = (entry >> 24) != 0
        if tl.max(escapes.to(tl.int32), axis=0) > 0:
            used = append_some(out, used, exponent, escapes, 1)
        store_residual(row, first + i, ok, left)
        begin -= 2 * lanes
    put_states(out, used + 4 * lane, state, held, lane < lanes)
    j = tl.arange(0, 16)
    m = mantissa_lanes_of(lanes, in_bytes)
    put_states(out, used + 4 * (lanes + j), mantissas, filled, j < m)
    return used, tl.max((some != 0).to(tl.int32), axis=0)


@triton.jit
def table_of(info_ptr, TABLES: tl.constexpr):
    """The number of the table that a chunk takes, among all chunks', and whether it is a second
    one."""
    g = tl.program_id(0).to(tl.int64) * TABLES
    second = tl.full((), 0, tl.int32)
    if TABLES == 2:
        second = tl.load(info_ptr + g * 4 + SECOND)
    return g + second, second


@triton.jit(do_not_specialize=["begins_ptr", "room_begin"])
def encode_blocks(
    table_ptr,
    chunks_ptr,
    info_ptr,
    codes_ptr,
    scratch_ptr,
    begins_ptr,
    room_begin,
    blocks_ptr,
    KIND: tl.constexpr,
    SCALED: tl.constexpr,
    UNUSED: tl.constexpr,
    RULE: tl.constexpr,
    LEVEL: tl.constexpr,
    TABLES: tl.constexpr,
):
    """Codes each block. blocks: bytes of the stream, and whether a value isn't 0."""
    part, c = unit_of(chunks_ptr)
    g = tl.program_id(0).to(tl.int64)
    b = tl.program_id(1)
    row = table_ptr + part * 8
    count = elements_of_block(elements_of(tl.load(row + COUNT), c), b)
    if count > 0:
        first = c * 262144 + b * 32768
        table, second = table_of(info_ptr, TABLES)
        codes = codes_ptr + table * 256
        below = tl.load(info_ptr + table * 4 + BELOW)
        out = scratch_of(scratch_ptr, begins_ptr, room_begin, b)
        form: tl.constexpr = (KIND, SCALED, UNUSED, RULE, LEVEL)
        used = tl.full((), 0, tl.int32)
        some = tl.full((), 0, tl.int32)
        if second == 0:
            used, some = encode_block(row, first, count, codes, below, out, form)
        elif TABLES == 2:
            zeros: tl.constexpr = (KIND, SCALED, UNUSED, "zeros", LEVEL)
            used, some = encode_block(row, first, count, codes, below, out, zeros)
        tl.store(blocks_ptr + (g * 8 + b) * 2, used)
        tl.store(blocks_ptr + (g * 8 + b) * 2 + 1, some)


@triton.jit
def modes_of(n, blocks_ptr, head, worth, in_bytes):
    """Of the eight blocks of a chunk of n elements: bytes, and modes, -1 for those that it hasn't;
    the chunk's mode, 2 for one that has blocks; bytes before the first block. head: of the chunk's
    own table."""
    k = tl.arange(0, 8)
    count = elements_of_block(n, k)
    lanes = lanes_of(count)
    states = 4 * (lanes + mantissa_lanes_of(lanes, in_bytes))
    used = tl.load(blocks_ptr + 2 * k)
    some = tl.load(blocks_ptr + 2 * k + 1)
    stored = 1 + 4 * count
    coded = 3 + used + states
    mode = tl.where(some == 0, 1, tl.where(coded < stored, 2, 0))
    bytes_ = tl.where(some == 0, 1, tl.minimum(coded, stored))
    mode = tl.where(count > 0, mode, -1)
    bytes_ = tl.where(count > 0, bytes_, 0)
    blocks = (n + 32767) >> 15
    any_coded = tl.max((mode == 2).to(tl.int32), axis=0)
    any_stored = tl.max((mode == 0).to(tl.int32), axis=0)
    any_zeros = tl.max((mode == 1).to(tl.int32), axis=0)
    head = tl.where((blocks > 1) & (any_coded == 0), 3, head)
    form = tl.where(any_coded + any_stored == 0, 1, tl.where(any_coded + any_zeros == 0, 0, 2))
    too_long = (blocks == 1) & (head + tl.sum(bytes_, axis=0) >= 1 + 4 * n) & (form == 2)
    form = tl.where(too_long | (worth == 0), 0, form)
    return bytes_, mode, form, head + 4 * (blocks - 1), any_coded


@triton.jit
def put_stored(row, first, count, out, BLOCK: tl.constexpr, form: tl.constexpr):
    """Values in 4 bytes each."""
    for begin in range(0, count, BLOCK):
        i = begin + tl.arange(0, BLOCK)
        ok = i < count
        sent, _, _, _ = load_sent(row, first + i, ok, form)
        put_number(out, 4 * i, sent, ok, 4)


@triton.jit
def copy(from_ptr, to_ptr, size, BLOCK: tl.constexpr):
    """Bytes from one place to another."""
    for begin in range(0, size, BLOCK):
        i = begin + tl.arange(0, BLOCK)
        tl.store(to_ptr + i, tl.load(from_ptr + i, mask=i < size, other=0), mask=i < size)


@triton.jit
def put_head(slot, head, area, ends, blocks, any_coded):
    """A chunk's own head, or the shortest one where no block is coded; and the index."""
    i = tl.arange(0, 256)
    byte = tl.load(head + i)
    short = tl.where(i == 0, 3, tl.where(i == 1, 0x11, 0)).to(tl.uint8)
    size = area - 4 * (blocks - 1)
    tl.store(slot + i, tl.where(any_coded != 0, byte, short), mask=i < size)
    k = tl.arange(0, 8)
    put_number(slot + size, 4 * k, ends, k < blocks - 1, 4)


@triton.jit(do_not_specialize=["begins_ptr", "room_begin", "sizes_ptr"])
def put_blocks(
    table_ptr,
    chunks_ptr,
    info_ptr,
    heads_ptr,
    scratch_ptr,
    begins_ptr,
    room_begin,
    blocks_ptr,
    out_ptr,
    sizes_ptr,
    KIND: tl.constexpr,
    SCALED: tl.constexpr,
    UNUSED: tl.constexpr,
    RULE: tl.constexpr,
    LEVEL: tl.constexpr,
    TABLES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Each block in its shortest mode to its place in the chunk, and what stands before them."""
    part, c = unit_of(chunks_ptr)
    g = tl.program_id(0).to(tl.int64)
    b = tl.program_id(1)
    row = table_ptr + part * 8
    n = elements_of(tl.load(row + COUNT), c)
    form: tl.constexpr = (KIND, SCALED, UNUSED, RULE, LEVEL)
    table, second = table_of(info_ptr, TABLES)
    info = info_ptr + table * 4
    in_bytes = (second == 0) & ((RULE == "whole" or RULE == "all") and UNUSED == 0)
    bytes_, mode, chunk, area, any_coded = modes_of(
        n, blocks_ptr + g * 16, tl.load(info), tl.load(info + WORTH), in_bytes
    )
    k = tl.arange(0, 8)
    slot = out_ptr + tl.load(begins_ptr + g)
    ends = tl.cumsum(bytes_, 0)
    if b == 0:
        whole = tl.where(chunk == 0, 1 + 4 * n, 1)
        whole = tl.where(chunk == 2, area + tl.sum(bytes_, axis=0), whole)
        tl.store(sizes_ptr + g, whole)
        if chunk == 2:
            put_head(slot, heads_ptr + table * 256, area, ends, (n + 32767) >> 15, any_coded)
        else:
            tl.store(slot, chunk.to(tl.uint8))
    mine = tl.sum(tl.where(k == b, mode, 0), axis=0)
    size = tl.sum(tl.where(k == b, bytes_, 0), axis=0)
    at = slot + area + tl.sum(tl.where(k == b, ends - bytes_, 0), axis=0)
    count = elements_of_block(n, b)
    first = c * 262144 + b * 32768
    if chunk == 0:
        put_stored(row, first, count, slot + 1 + 4 * b * 32768, BLOCK, form)
    elif (chunk == 2) & (mine == 2):
        used = tl.load(blocks_ptr + (g * 8 + b) * 2)
        put_number(at, 0, 2 | (used << 2), True, 3)
        copy(scratch_of(scratch_ptr, begins_ptr, room_begin, b), at + 3, size - 3, BLOCK)
    elif (chunk == 2) & (mine >= 0):
        tl.store(at, mine.to(tl.uint8))
        if mine == 0:
            put_stored(row, first, count, at + 1, BLOCK, form)
