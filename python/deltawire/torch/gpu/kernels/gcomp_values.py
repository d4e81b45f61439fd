"""What gcomp sends of values (src/codecs/gcomp/spec.md, section 6, 1 and 2).

How, is in `form`: dtype of the values; whether residuals have a factor; low bits that are 0 in all
values that are sent, 16 of bfloat16, 13 of float16, 0 of float32; a rule; its level. The rules::

    whole   nothing is cut of float32
    all     nor are subnormals and the signs of zeros
    level   all values are cut to the level
    seen    values are cut by their significances, to multiples of the level
    zeros   low bits are cut that are 0 anyway
"""

import triton
import triton.language as tl

from deltawire.torch.gpu.kernels.narrow_floats import bf16_of, fp16_of, fp16_value
from deltawire.torch.gpu.kernels.part_tables import BEFORE, CARRIER, SEEN, floats_at, load_part_sum


@triton.jit
def elements_of(count, c):
    """How many elements chunk c of a part has."""
    return tl.minimum(count - c * 262144, 262144).to(tl.int32)


@triton.jit
def nearest_half(x, UNUSED: tl.constexpr):
    """The nearest bfloat16 or float16, of finite values at most the largest; NaNs become quiet."""
    bits = x.to(tl.int32, bitcast=True)
    magnitude = bits & 0x7FFFFFFF
    if UNUSED == 16:
        near = tl.minimum((bf16_of(x) << 16) & 0x7FFFFFFF, 0x7F7F0000)
    else:
        near = fp16_value(fp16_of(x)).to(tl.int32, bitcast=True) & 0x7FFFFFFF
    quiet = tl.where(magnitude > 0x7F800000, 0x400000, 0)
    near = tl.where(magnitude < 0x7F800000, near, ((magnitude >> UNUSED) << UNUSED) | quiet)
    return (near | (bits & -0x80000000)).to(tl.float32, bitcast=True)


@triton.jit
def load_rounded(row, at, ok, form: tl.constexpr):
    """Values with their residual; and the same rounded to the 16 bits that are sent, if they are.
    A tensor's own 16 bits are not rounded."""
    x = load_part_sum(row, at, ok, form[0], form[1])
    rounded = x
    if form[2] != 0:
        rounded = nearest_half(x, form[2])
        if form[0] == ("bfloat16" if form[2] == 16 else "float16"):
            rounded = tl.where(tl.load(row + BEFORE) != 0, rounded, x)
    return x, rounded


@triton.jit
def levels_of(row, at, ok, bits, form: tl.constexpr):
    """The levels to which a rule cuts values."""
    if form[3] == "seen":
        step: tl.constexpr = (1 if form[2] != 0 else 3) * form[4]
        seen = tl.load(floats_at(tl.load(row + SEEN)) + at, mask=ok, other=0.0)
        seen = seen.to(tl.int32, bitcast=True) & 0x7FFFFFFF
        above = (seen >> 23) - ((bits >> 23) & 255) + 1
        above = tl.where(seen < 0x7F800000, above, tl.where(seen == 0x7F800000, 31, 0)) - form[2]
        level = tl.minimum(tl.maximum(above, 0) // step, 7 // form[4]) * form[4]
    elif form[3] == "zeros":
        level = tl.zeros_like(bits)
        for cut in tl.static_range(3, 24, 3):
            level += ((bits & ((1 << cut) - 1)) == 0).to(tl.int32)
        level = tl.where(((bits >> 23) & 255) <= 233, level, 0)
    else:
        level = tl.zeros_like(bits) + form[4]
    return level


@triton.jit
def highest_cut(row, form: tl.constexpr):
    """Exponents above are kept whole. The carrier of sums has their tensor's dtype."""
    highest = tl.full((), 253, tl.int32)
    if form[3] != "zeros":
        if form[0] == "float16":
            highest = tl.full((), 141, tl.int32)
        else:
            highest = tl.where(tl.load(row + CARRIER) == 3, 137, 253)
    return highest


@triton.jit
def load_sent(row, at, ok, form: tl.constexpr):
    """Of some values of a part: the bits that are sent, their exponents, their symbols' levels
    (1 of tiny values), and what is left."""
    x, rounded = load_rounded(row, at, ok, form)
    bits = rounded.to(tl.int32, bitcast=True)
    exponent = (bits >> 23) & 255
    if form[3] == "all":
        level = ((exponent == 0) & (bits != 0)).to(tl.int32)
        sent = bits
    elif form[3] == "whole":
        level = tl.zeros_like(bits)
        sent = tl.where(exponent == 0, 0, bits)
    else:
        is_cut = (exponent > 0) & (exponent <= highest_cut(row, form))
        level = tl.where(is_cut, levels_of(row, at, ok, bits, form), 0)
        drop = form[2] + (1 if form[2] != 0 else 3) * level
        low = (1 << drop) - 1
        up = (bits + (low >> 1) + ((bits >> drop) & low & 1)) & ~low
        sent = tl.where(exponent == 0, 0, tl.where(is_cut, up, bits))
    left = rounded - sent.to(tl.float32, bitcast=True)
    if form[2] != 0:
        left = (x - rounded) + left
    left = tl.where(exponent == 255, 0.0, left)
    return sent, (sent >> 23) & 255, level, left


@triton.jit
def may_have_low_zeros(row, first, n, form: tl.constexpr):
    """Whether a look at some of a chunk's n values, at least 1,024, says so: at least half of those
    that aren't +0 end with three zeros."""
    i = tl.arange(0, 1024)
    at = (i >> 8) * (n >> 2) + (i & 255)
    x = load_part_sum(row, first + at, at < n, form[0], form[1])
    bits = x.to(tl.int32, bitcast=True)
    some = tl.sum((bits != 0).to(tl.int32), axis=0)
    even = tl.sum(((bits != 0) & ((bits & 7) == 0)).to(tl.int32), axis=0)
    return tl.where(some == 0, 0, (2 * even >= some).to(tl.int32))


@triton.jit
def has_tiny(row, first, n, BLOCK: tl.constexpr, form: tl.constexpr):
    """Whether one of n values is a subnormal or -0."""
    found = tl.zeros((BLOCK,), tl.int32)
    for begin in range(0, n, BLOCK):
        i = begin + tl.arange(0, BLOCK)
        x = load_part_sum(row, first + i, i < n, form[0], form[1])
        bits = x.to(tl.int32, bitcast=True)
        found |= tl.where((bits & 0x7F800000) == 0, bits, 0)
    return tl.max((found != 0).to(tl.int32), axis=0)
