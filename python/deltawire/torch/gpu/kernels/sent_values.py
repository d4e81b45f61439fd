"""What sparse codecs send besides positions: a value each, or one mean for all."""

import triton
import triton.language as tl

from deltawire.torch.gpu.kernels.int8 import nearest_code


@triton.jit
def nearest_bf16(x):
    """The upper half of the nearest bfloat16, ties to even, but never Inf."""
    bits = x.to(tl.int32, bitcast=True)
    magnitude = bits & 0x7FFFFFFF
    rounded = (magnitude + 0x7FFF + ((magnitude >> 16) & 1)) >> 16
    return tl.minimum(rounded, 0x7F7F) | ((bits >> 16) & 0x8000)


@triton.jit
def sent_code(x, step, VALUE_BITS: tl.constexpr):
    """A value's code, and what it stands for."""
    if VALUE_BITS == 32:
        code = x.to(tl.int32, bitcast=True)
        value = x
    elif VALUE_BITS == 16:
        code = nearest_bf16(x)
        value = (code << 16).to(tl.float32, bitcast=True)
    else:
        number = nearest_code(x, step)
        code = number.to(tl.int32)
        value = tl.where(code == 0, 0.0, number * step.to(tl.float32, bitcast=True))
    return code, value


@triton.jit
def put_codes(out, i, ok, code, VALUE_BITS: tl.constexpr):
    """Codes as so many bytes each."""
    bytes_: tl.constexpr = VALUE_BITS // 8
    for byte in tl.static_range(bytes_):
        part = ((code >> (8 * byte)) & 0xFF).to(tl.uint8)
        tl.store(out + i * bytes_ + byte, part, mask=ok)


@triton.jit
def tree_of_64(total):
    """The sum of 64 lanes: 32 to 63 are added to 0 to 31, and the same with 16, 8, 4, 2 and 1."""
    t32 = tl.sum(tl.reshape(total, (2, 32)), axis=0)
    t16 = tl.sum(tl.reshape(t32, (2, 16)), axis=0)
    t8 = tl.sum(tl.reshape(t16, (2, 8)), axis=0)
    t4 = tl.sum(tl.reshape(t8, (2, 4)), axis=0)
    t2 = tl.sum(tl.reshape(t4, (2, 2)), axis=0)
    return tl.sum(t2, axis=0)


@triton.jit
def larger_side(plus_ptr, minus_ptr, blocks, a, b):
    """Whether the positive side is sent, and the mean that is, from the sums of blocks of both
    sides and how many values they have."""
    plus = tl.full((), 0, tl.float64)
    minus = tl.full((), 0, tl.float64)
    for group in range(0, blocks, 16):
        for j in tl.static_range(16):  # so that loads don't wait for each other
            i = group + j
            plus += tl.load(plus_ptr + i, mask=i < blocks, other=0.0)
            minus += tl.load(minus_ptr + i, mask=i < blocks, other=0.0)
    plus = plus / tl.maximum(a, 1).to(tl.float64)
    minus = minus / tl.maximum(b, 1).to(tl.float64)
    first = plus >= minus
    return first, tl.where(first, plus, -minus).to(tl.float32)
