"""3lc's encoder: digits five to a byte, zero runs, positions with signs."""

import triton
import triton.language as tl

from deltawire.torch.gpu.kernels.bit_streams import put_code


@triton.jit
def threshold_of(status_ptr, s):
    """m, its bits, and the smallest magnitude that is sent; 1 where m is 0, as all values are."""
    m = tl.load(status_ptr).to(tl.float32, bitcast=True) * s
    bits = m.to(tl.int32, bitcast=True)
    half = tl.where(bits >= 0x01000000, m * 0.5, ((bits + 1) >> 1).to(tl.float32, bitcast=True))
    return m, bits, tl.where(bits == 0, 1.0, half)


@triton.jit
def larger(a, b):
    """What a scan finds the last place with."""
    return tl.maximum(a, b)


@triton.jit
def put_runs(base, slot, size, RUNS: tl.constexpr, BLOCK: tl.constexpr):
    """Mode 1 of `size` bytes of mode 0 into a slot, and how many bytes it takes.

    Without two zero bytes in a row these are the bytes of mode 0, and then their mode is 0.
    """
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
    return 1 + total


@triton.jit
def parameter_of(nonzeros, count, bounds_ptr):
    """Mode 2's k."""
    entry = tl.arange(0, 16)
    bound = tl.load(bounds_ptr + entry, mask=entry < 15, other=0)
    small = nonzeros.to(tl.int64) * 4294967296 <= bound * count.to(tl.int64)
    return tl.sum(((entry < 15) & small).to(tl.int32), axis=0)


@triton.jit
def can_be_shorter(nonzeros, k, size):
    """Whether mode 2 may take fewer bytes than `size`: a digit has at least k + 2 bits."""
    return 4 + (nonzeros * (k + 2) + 7) // 8 < size


@triton.jit
def put_entries(bytes_, elements, row, listed):
    """The digits that aren't 0 of rows of `elements` elements, which are number `row` of a chunk, a
    column of each."""
    i = tl.arange(0, 512)[None, :]
    p = i >> 6
    j = i & 63
    t = (elements + 4) // 5
    place = p * t + j
    ok = (p < 5) & (j < t) & (place < elements)
    byte = tl.load(bytes_ + j, mask=ok, other=121).to(tl.int32)
    low = tl.where(p == 2, byte // 9, tl.where(p == 3, byte // 3, byte))
    digit = tl.where(p == 0, byte // 81, tl.where(p == 1, byte // 27, low)) % 3
    found = (ok & (digit != 1)).to(tl.int32)
    entry = (row * 320 + place) | ((digit == 0).to(tl.int32) << 16)
    tl.store(listed + tl.cumsum(found, 1) - 1, entry, mask=found != 0)


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


@triton.jit
def put_positions_head(slot, k, nonzeros):
    """What mode 2 begins with."""
    tl.store(slot, tl.full((), 2, tl.uint8))
    tl.store(slot + 1, k.to(tl.uint8))
    tl.store(slot + 2, (nonzeros & 0xFF).to(tl.uint8))
    tl.store(slot + 3, (nonzeros >> 8).to(tl.uint8))


@triton.jit
def copy_words(words, slot, bytes_, BLOCK: tl.constexpr):
    """The words of one such chunk."""
    size = tl.where(tl.load(slot) == 2, bytes_ - 4, 0)
    i = tl.arange(0, BLOCK)
    for first in range(0, size, BLOCK):
        at = first + i
        word = tl.load(words + (at >> 2), mask=at < size, other=0)
        tl.store(slot + 4 + at, ((word >> (8 * (at & 3))) & 0xFF).to(tl.uint8), mask=at < size)
