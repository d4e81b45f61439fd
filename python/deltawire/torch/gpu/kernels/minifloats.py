"""Floats of 8 and 4 bits, e4m3, e5m2, e2m1 and e3m0, with a power of two for each block."""

import triton
import triton.language as tl


@triton.jit
def minifloat_scale(most, CODE: tl.constexpr):
    """A block's byte s: the least with most <= R * 2^(s - 127): R is 1.75 * 2^exponent, or 24."""
    exponent = 8 if CODE == "e4m3" else 15 if CODE == "e5m2" else 2 if CODE == "e2m1" else 4
    below = 0x3FFFFF if CODE == "e3m0" else 0x1FFFFF
    field = (most + below) >> 23
    return tl.minimum(tl.maximum(field - exponent, 0), 254 - exponent)


@triton.jit
def power_of_two(s):
    """2^(s - 127), for s of 0 to 254."""
    return tl.where(s == 0, 0x00400000, s << 23).to(tl.float32, bitcast=True)


@triton.jit
def minifloat_code(y, CODE: tl.constexpr):
    """The code of the nearest number, ties to even, at most the largest."""
    mantissa: tl.constexpr = (
        3 if CODE == "e4m3" else 2 if CODE == "e5m2" else 1 if CODE == "e2m1" else 0
    )
    bias: tl.constexpr = (  # float32's less the format's
        120 if CODE == "e4m3" else 112 if CODE == "e5m2" else 126 if CODE == "e2m1" else 124
    )
    sign: tl.constexpr = 3 if CODE == "e2m1" or CODE == "e3m0" else 7
    dropped: tl.constexpr = 23 - mantissa
    ruler: tl.constexpr = (bias + 1 + dropped) << 23
    bits = y.to(tl.int32, bitcast=True)
    magnitude = bits & 0x7FFFFFFF
    even = (magnitude >> dropped) & 1
    normal = (magnitude - (bias << 23) + ((1 << (dropped - 1)) - 1) + even) >> dropped
    # The last bit of this sum is the format's smallest number.
    least = tl.full((), ruler, tl.int32).to(tl.float32, bitcast=True)
    total = magnitude.to(tl.float32, bitcast=True) + least
    small = total.to(tl.int32, bitcast=True) - ruler
    code = tl.where((magnitude >> 23) > bias, normal, small)
    greatest = 0x7E if CODE == "e4m3" else 0x7B if CODE == "e5m2" else 7
    return tl.minimum(code, greatest) | (((bits >> 31) & 1) << sign)


@triton.jit
def minifloat_number(code, CODE: tl.constexpr):
    """A code's number in float32."""
    mantissa: tl.constexpr = (
        3 if CODE == "e4m3" else 2 if CODE == "e5m2" else 1 if CODE == "e2m1" else 0
    )
    bias: tl.constexpr = (  # float32's less the format's
        120 if CODE == "e4m3" else 112 if CODE == "e5m2" else 126 if CODE == "e2m1" else 124
    )
    sign: tl.constexpr = 3 if CODE == "e2m1" or CODE == "e3m0" else 7
    least = tl.full((), (bias + 1 - mantissa) << 23, tl.int32).to(tl.float32, bitcast=True)
    magnitude = code & ((1 << sign) - 1)
    normal = ((magnitude << (23 - mantissa)) + (bias << 23)).to(tl.float32, bitcast=True)
    number = tl.where((magnitude >> mantissa) > 0, normal, magnitude.to(tl.float32) * least)
    bits = number.to(tl.int32, bitcast=True) | ((code >> sign) << 31)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def invalid(code, s, CODE: tl.constexpr):
    """Whether a code is no finite number, or s is above its format's largest."""
    largest = 0x7E if CODE == "e4m3" else 0x7B if CODE == "e5m2" else 0x7F
    exponent = 8 if CODE == "e4m3" else 15 if CODE == "e5m2" else 2 if CODE == "e2m1" else 4
    return ((code & 0x7F) > largest) | (s > 254 - exponent)
