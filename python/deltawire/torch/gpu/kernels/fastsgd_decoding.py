"""fastsgd's chunks into values (src/codecs/fastsgd/spec.md, sections 3 and 4). Where a gap lies
follows from the flags, which are before all gaps, so a chunk's pairs are read side by side."""

import triton
import triton.language as tl

from deltawire.torch.gpu.kernels.bit_streams import CORRUPT, TRUNCATED, read_window
from deltawire.torch.gpu.kernels.fastsgd_encoding import (
    EMPTY,
    HEAD,
    flag_bytes_of,
    flag_of,
    length_of,
    value_bytes_of,
    width_of,
)
from deltawire.torch.gpu.kernels.part_tables import (
    ELEMENTS,
    GIVEN,
    SLOT,
    floats_at,
    put_floats,
    unit_of,
)
from deltawire.torch.gpu.kernels.positions_decoding import is_wrong_count
from deltawire.torch.gpu.kernels.sparse_parts import is_last_of_part


@triton.jit
def number_of(bytes_, FIRST: tl.constexpr, BYTES: tl.constexpr):
    """A number among a chunk's first bytes."""
    i = tl.arange(0, 16) - FIRST
    ok = (i >= 0) & (i < BYTES)
    return tl.sum(tl.where(ok, bytes_ << (8 * tl.where(ok, i, 0)), 0), axis=0)


@triton.jit
def read_head(data, size):
    """Pairs, base, bits of the codes above it, bits of the longest gap, first key; zeros behind the
    chunk's end."""
    i = tl.arange(0, 16)
    bytes_ = tl.load(data + i, mask=i < tl.minimum(size, HEAD), other=0).to(tl.int64)
    codes = number_of(bytes_, 2, 2).to(tl.int32)
    longest = number_of(bytes_, 4, 1).to(tl.int32)
    count = number_of(bytes_, 0, 2).to(tl.int32)
    return count, codes & 2047, codes >> 11, longest, number_of(bytes_, 5, 4)


@triton.jit
def head_error(count, code_bits, longest, c, is_last, size, FLAG_BITS: tl.constexpr):
    """What is wrong with the head of chunk c, or with the room behind it: streams are read without
    looking for its end."""
    streams = value_bytes_of(count, code_bits) + flag_bytes_of(count, longest, FLAG_BITS)
    error = tl.where(streams > size - HEAD, TRUNCATED, 0)
    error = tl.where((code_bits > 11) | (longest > 32), CORRUPT, error)
    error = tl.where(size < HEAD, TRUNCATED, error)
    error = tl.where(count == 0, tl.where(size > EMPTY, CORRUPT, 0), error)
    return tl.where(
        size < EMPTY, TRUNCATED, tl.where(is_wrong_count(count, c, is_last), CORRUPT, error)
    )


@triton.jit
def value_of(scalar, power):
    """What a code stands for: the sum divided by a power of the base."""
    sum_ = scalar.to(tl.int32).to(tl.float32, bitcast=True)
    return (sum_.to(tl.float64) / power).to(tl.float32)


@triton.jit
def read_code(data, i, code_bits, behind):
    """Codes of a chunk above its base, and their signs. behind: where the values end."""
    window = read_window(data, i * (code_bits + 1) + 8 * HEAD, behind).to(tl.int64)
    code = window & ((tl.full((), 1, tl.int64) << code_bits) - 1)
    return code.to(tl.int32), ((window >> code_bits) & 1).to(tl.int32)


@triton.jit
def has_wrong_codes(
    data, count, base, code_bits, powers_ptr, scalar, LIMIT: tl.constexpr, BLOCK: tl.constexpr
):
    """1 if the codes are not allowed, don't fill the range that the head states, or bits follow."""
    behind = value_bytes_of(count, code_bits) + HEAD
    least = tl.full((), 2047, tl.int32)
    most = tl.full((), 0, tl.int32)
    for first in range(0, count, BLOCK):
        i = first + tl.arange(0, BLOCK)
        code, _ = read_code(data, i, code_bits, behind)
        least = tl.minimum(least, tl.min(tl.where(i < count, code, 2047), axis=0))
        most = tl.maximum(most, tl.max(tl.where(i < count, code, 0), axis=0))
    inside = base + most <= LIMIT  # what codes stand for never grows
    power = tl.load(powers_ptr + base + most, mask=inside, other=1.0)
    good = inside & (value_of(scalar, power) > 0) & (least == 0) & (width_of(most) == code_bits)
    rest = read_window(data, count * (code_bits + 1) + 8 * HEAD, behind)
    return tl.where(good & (rest == 0), 0, CORRUPT)


@triton.jit
def read_keys(
    data, size, count, begin, longest, key, listed, FLAG_BITS: tl.constexpr, BLOCK: tl.constexpr
):
    """A chunk's keys into a list; the last, and the error. begin: where the flags do; key: the
    first."""
    flags = 8 * begin
    behind = begin + flag_bytes_of(count, longest, FLAG_BITS)
    gaps = 8 * behind
    position = tl.full((), -1, tl.int64)
    longest_gap = tl.full((), 0, tl.int64)
    wrong = tl.full((), 0, tl.int32)
    for first in range(0, count, BLOCK):
        i = first + tl.arange(0, BLOCK)
        ok = (i > 0) & (i < count)
        window = read_window(data, flags + (i - 1) * FLAG_BITS, behind)
        flag = window.to(tl.int32) & ((1 << FLAG_BITS) - 1)
        length = tl.where(ok, length_of(flag, longest, FLAG_BITS), 0)
        window = read_window(data, gaps + tl.cumsum(length, 0) - length, size)
        gap = window.to(tl.int64) & ((tl.full((), 1, tl.int64) << length) - 1)
        gaps += tl.sum(length, axis=0)
        needless = ok & (flag != flag_of(gap, longest, FLAG_BITS))
        wrong |= tl.max(needless.to(tl.int32), axis=0)
        longest_gap = tl.maximum(longest_gap, tl.max(gap, axis=0))
        step = tl.where(i == 0, key, gap) + 1
        step = tl.where(i < count, step, 0)
        tl.store(listed + i, position + tl.cumsum(step, 0), mask=i < count)
        position += tl.sum(step, axis=0)
    rest = read_window(data, flags + (count - 1) * FLAG_BITS, behind)
    rest |= read_window(data, gaps, size)
    good = (wrong == 0) & (width_of(longest_gap) == longest) & (rest == 0)
    good = good & ((gaps + 7) // 8 >= size)
    return position, tl.where(gaps > 8 * size, TRUNCATED, tl.where(good, 0, CORRUPT))


@triton.jit(do_not_specialize=["errors_ptr"])
def read_pairs(
    table_ptr,
    chunks_ptr,
    spans_ptr,
    data_ptr,
    powers_ptr,
    list_ptr,
    counts_ptr,
    lasts_ptr,
    errors_ptr,
    LIMIT: tl.constexpr,
    FLAG_BITS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Keys of a chunk, how many there are, and the last; its values are only checked. A chunk a
    program."""
    part, c = unit_of(chunks_ptr)
    g = tl.program_id(0).to(tl.int64)
    row = table_ptr + part * 4
    start = tl.load(spans_ptr + 2 * g)
    size = (tl.load(spans_ptr + 2 * g + 1) - start).to(tl.int32)
    data = data_ptr + start
    count, base, code_bits, longest, key = read_head(data, size)
    is_last = is_last_of_part(chunks_ptr, part)
    error = head_error(count, code_bits, longest, c, is_last, size, FLAG_BITS)
    last = tl.full((), -1, tl.int64)
    if (error == 0) & (count > 0):
        begin = value_bytes_of(count, code_bits) + HEAD
        listed = list_ptr + g * 16384
        last, error = read_keys(data, size, count, begin, longest, key, listed, FLAG_BITS, BLOCK)
        scalar = tl.load(row + GIVEN)
        wrong = has_wrong_codes(data, count, base, code_bits, powers_ptr, scalar, LIMIT, BLOCK)
        wrong |= tl.where(last >= tl.load(row + ELEMENTS), CORRUPT, 0)
        error = tl.where(error == 0, wrong, error)
    tl.store(counts_ptr + g, tl.where(error == 0, count, 0))
    tl.store(lasts_ptr + g, last)
    tl.atomic_or(errors_ptr + part, error, sem="relaxed")


@triton.jit(do_not_specialize=["errors_ptr"])
def put_values(
    table_ptr,
    chunks_ptr,
    spans_ptr,
    data_ptr,
    powers_ptr,
    list_ptr,
    counts_ptr,
    errors_ptr,
    scale,
    ADD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A chunk's values to their places; nothing if the part is refused."""
    part, _ = unit_of(chunks_ptr)
    g = tl.program_id(0).to(tl.int64)
    row = table_ptr + part * 4
    start = tl.load(spans_ptr + 2 * g)
    data = data_ptr + start
    good = tl.load(errors_ptr + part) == 0
    size = tl.where(good, tl.load(spans_ptr + 2 * g + 1) - start, 0).to(tl.int32)
    count, base, code_bits, _, _ = read_head(data, size)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    ok = i < tl.where(good, tl.load(counts_ptr + g), 0)
    code, sign = read_code(data, i, code_bits, value_bytes_of(count, code_bits) + HEAD)
    power = tl.load(powers_ptr + base + code, mask=ok, other=1.0)
    value = value_of(tl.load(row + GIVEN), power) * scale
    value = (value.to(tl.int32, bitcast=True) ^ (sign << 31)).to(tl.float32, bitcast=True)
    at = tl.load(list_ptr + g * 16384 + i, mask=ok, other=0)
    put_floats(floats_at(tl.load(row + SLOT)), at, ok, value, ADD)
