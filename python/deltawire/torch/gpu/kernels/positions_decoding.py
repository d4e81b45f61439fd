"""Golomb codes into positions, and positions into values (src/codecs/sbc/spec.md, section 2)."""

import triton
import triton.language as tl

from deltawire.torch.gpu.kernels.bit_streams import (
    CORRUPT,
    INTERPOLATIVE,
    TRUNCATED,
    read_gap,
    read_window,
)
from deltawire.torch.gpu.kernels.part_tables import put_floats


@triton.jit
def is_wrong_count(n, c, is_last):
    """Whether chunk c can't send n elements."""
    return tl.where(is_last, (n > 16384) | ((n == 0) & (c > 0)), n != 16384)


@triton.jit
def check_head(code, n, c, is_last, size, room):
    """What is wrong with the first bytes of chunk c. room: bytes without the values."""
    b = code & 31
    log = code >> 5
    bad = is_wrong_count(n, c, is_last) | (b > 24) | (log == 1) | (log > 3)
    bad = bad | ((n < 2) & (code != 0)) | ((n == 0) & (room > 3))
    head = tl.where(n == 0, 3, 7 + 2 * ((1 << log) - 1))
    short = (size < 3) | (room < 3) | (room < head)
    error = tl.where(bad, CORRUPT, tl.where(short, TRUNCATED, 0))
    return tl.where(code == 31, INTERPOLATIVE, error), head


@triton.jit
def read_gaps(data, size, c, is_last, n, listed, VALUE_BITS: tl.constexpr):
    """A chunk's gaps plus 1, behind its first position, a lane of its streams each in parallel; how
    many positions it has, 0 if it is refused, and the error."""
    code = tl.load(data).to(tl.int32)
    found = tl.load(data + 1, mask=size > 2, other=0).to(tl.int32)
    found |= tl.load(data + 2, mask=size > 2, other=0).to(tl.int32) << 8
    room = size - found * (VALUE_BITS // 8)
    error, head = check_head(code, found, c, is_last, size, room)
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
    return tl.where(error == 0, found, 0), error


@triton.jit
def add_gaps(listed, count, BLOCK: tl.constexpr):
    """Positions from a chunk's gaps; the last one."""
    position = tl.zeros((), tl.int64)
    for first in range(0, count, BLOCK):
        i = first + tl.arange(0, BLOCK)
        gap = tl.load(listed + i, mask=i < count, other=0)
        tl.store(listed + i, position + tl.cumsum(gap, 0), mask=i < count)
        position += tl.sum(gap, axis=0)
    return position


@triton.jit
def order_error(listed, count, before, scalar, SCALAR: tl.constexpr):
    """What is wrong with a chunk's first position, which grows from the last one before it, or with
    a scalar that goes with positions."""
    first = tl.load(listed, mask=count > 0, other=0)
    error = tl.where((count > 0) & (first <= before), CORRUPT, 0)
    if SCALAR == 1:  # 0 without positions
        error = tl.where((count == 0) & (scalar != 0), CORRUPT, error)
    if SCALAR == 2:  # and only then
        error = tl.where((count == 0) != (scalar == 0), CORRUPT, error)
    return error


@triton.jit
def load_bytes(data, at, ok, BYTES: tl.constexpr):
    """A number of so many bytes."""
    number = tl.zeros_like(at).to(tl.int32)
    for byte in tl.static_range(BYTES):
        number |= tl.load(data + at + byte, mask=ok, other=0).to(tl.int32) << (8 * byte)
    return number


@triton.jit
def load_value(data, i, ok, step_bits, VALUE_BITS: tl.constexpr):
    """Sent values, and whether no encoder sends them."""
    code = load_bytes(data, i * (VALUE_BITS // 8), ok, VALUE_BITS // 8)
    if VALUE_BITS == 8:
        code = (code << 24) >> 24
        step = step_bits.to(tl.int32).to(tl.float32, bitcast=True)
        bad = (code == -128) | tl.where(step_bits == 0, code != 0, False)
        value = code.to(tl.float32) * step
    else:
        if VALUE_BITS == 16:
            code = code << 16
        bad = (code & 0x7F800000) == 0x7F800000
        value = code.to(tl.float32, bitcast=True)
    return value, bad & ok


@triton.jit
def has_wrong(data, count, scalar, VALUE_BITS: tl.constexpr, BLOCK: tl.constexpr):
    """1 if a chunk has a value that no encoder sends."""
    wrong = tl.zeros((BLOCK,), tl.int32)
    for first in range(0, count, BLOCK):
        i = first + tl.arange(0, BLOCK)
        _, bad = load_value(data, i, i < count, scalar, VALUE_BITS)
        wrong |= bad.to(tl.int32)
    return tl.max(wrong, axis=0)


@triton.jit
def put_sent(
    data,
    listed,
    i,
    count,
    out_ptr,
    scalar,
    scale,
    VALUE_BITS: tl.constexpr,
    ADD: tl.constexpr,
):
    """Values times scale to the places of a chunk's count positions. data: its values."""
    ok = i < count
    at = tl.load(listed + i, mask=ok, other=0)
    if VALUE_BITS == 0:
        value = tl.where(ok, scalar.to(tl.int32).to(tl.float32, bitcast=True), 0.0)
    else:
        value, _ = load_value(data, i, ok, scalar, VALUE_BITS)
    put_floats(out_ptr, at, ok & (value != 0), value * scale, ADD)  # zeros go nowhere
