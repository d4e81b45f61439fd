"""Bit streams: codes into words, and windows on what is read."""

import triton
import triton.language as tl

# Bits of a decoder's error.
CORRUPT = tl.constexpr(1)
TRUNCATED = tl.constexpr(2)
INTERPOLATIVE = tl.constexpr(4)  # positions that only the CPU decodes

# Entry j is floor(2^32 (1 - (phi - 1)^(2^-j))): src/codecs/sbc/spec.md, section 6.
RICE_BOUNDS = (
    *(1640531526, 918472838, 486826900, 250732083, 127251137, 64103956, 32172475, 16116475),
    *(8065811, 4034800, 2017874, 1009055, 504557, 252286, 126144, 63072),
    *(31536, 15768, 7884, 3942, 1971, 985, 492, 246),
)


@triton.jit
def put_code(words_ptr, limit, bit, code, ok):
    """Ors up to 64 bits of code (uint64) into zeroed words from `bit` on, up to `limit`."""
    word = bit >> 5
    shift = (bit & 31).to(tl.uint64)
    low = ((code << shift) & 0xFFFFFFFF).to(tl.uint32).to(tl.int32, bitcast=True)
    middle = ((code >> (32 - shift)) & 0xFFFFFFFF).to(tl.uint32).to(tl.int32, bitcast=True)
    high = ((code >> 32) >> (32 - shift)).to(tl.uint32).to(tl.int32, bitcast=True)
    tl.atomic_or(words_ptr + word, low, mask=ok & (low != 0) & (word < limit), sem="relaxed")
    more = ok & (middle != 0) & (word + 1 < limit)
    tl.atomic_or(words_ptr + word + 1, middle, mask=more, sem="relaxed")
    more = ok & (high != 0) & (word + 2 < limit)
    tl.atomic_or(words_ptr + word + 2, high, mask=more, sem="relaxed")


@triton.jit
def read_window(data_ptr, bit, size):
    """The next 57 bits of a stream of `size` bytes; zeros behind it."""
    first = bit >> 3
    window = (bit * 0).to(tl.uint64)
    for i in tl.static_range(8):
        byte = tl.load(data_ptr + first + i, mask=first + i < size, other=0)
        window |= byte.to(tl.uint64) << (8 * i)
    return window >> (bit & 7).to(tl.uint64)


@triton.jit
def read_gap(window, k, ESCAPE_BITS: tl.constexpr):
    """A Rice code's number (int64), its length, and whether it is an escape without need."""
    low = (window & 0xFFFFFF).to(tl.int32)
    first_zero = (low + 1) & ~low  # at most 2^24, which float32 holds
    u = (first_zero.to(tl.float32).to(tl.int32, bitcast=True) >> 23) - 127
    mask = (tl.full((), 1, tl.int64) << k) - 1
    rest = (window >> (u + 1).to(tl.uint64)).to(tl.int64) & mask
    escaped = (window >> 24).to(tl.int64) & ((1 << ESCAPE_BITS) - 1)
    short = u < 24
    gap = tl.where(short, (u.to(tl.int64) << k) | rest, escaped)
    length = tl.where(short, u + 1 + k, 24 + ESCAPE_BITS)
    return gap, length, (u == 24) & ((escaped >> k) < 24)
