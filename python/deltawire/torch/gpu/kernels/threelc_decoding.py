"""3lc's decoder: chunks of all modes into bytes of five digits, digits into values."""

import triton
import triton.language as tl

from deltawire.torch.gpu.kernels.bit_streams import CORRUPT, TRUNCATED, read_gap, read_window
from deltawire.torch.gpu.kernels.part_tables import put_floats


@triton.jit
def expand_chunk_runs(
    data, bytes_, count, base, error_ptr, BYTES: tl.constexpr, BLOCK: tl.constexpr
):
    """One such chunk of `count` elements."""
    wanted = (count + 4) // 5
    size = bytes_ - 1
    mode = tl.load(data).to(tl.int32)
    if mode > 2:
        tl.atomic_or(error_ptr, CORRUPT, sem="relaxed")
    if mode < 2:
        bad = tl.zeros((BLOCK,), tl.int32)
        total = 0
        for first in range(0, tl.minimum(size, BYTES), BLOCK):
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
        wrong = (tl.max(bad, axis=0) > 0) | (size > BYTES)
        error = tl.where(wrong, CORRUPT, tl.where(total < wanted, TRUNCATED, 0))
        tl.atomic_or(error_ptr, error, sem="relaxed")


@triton.jit
def expand_chunk_positions(data, bytes_, count, base, error_ptr):
    """One such chunk of `count` elements."""
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
        tl.atomic_or(error_ptr, error, sem="relaxed")


@triton.jit
def put_rows(bytes_, out, elements, bits, scale, refused, ADD: tl.constexpr):
    """Rows of so many elements, each a row of the tensors given; 1 if no encoder writes one."""
    j = tl.arange(0, 64)[None, :]
    t = (elements + 4) // 5
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
    return tl.max(tl.max(bad.to(tl.int32), axis=1), axis=0)
