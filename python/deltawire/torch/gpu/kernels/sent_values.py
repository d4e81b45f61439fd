"""What sparse codecs send besides positions: a value each, or one mean for all."""

import triton
import triton.language as tl

from deltawire.torch.gpu.kernels.int8 import nearest_code, smallest_step
from deltawire.torch.gpu.kernels.positions_encoding import load_position


@triton.jit
def nearest_bf16(x):
    """The upper half of the nearest bfloat16, ties to even, but never Inf."""
    bits = x.to(tl.int32, bitcast=True)
    magnitude = bits & 0x7FFFFFFF
    rounded = (magnitude + 0x7FFF + ((magnitude >> 16) & 1)) >> 16
    return tl.minimum(rounded, 0x7F7F) | ((bits >> 16) & 0x8000)


@triton.jit
def sent_code(x, step, VALUE_BYTES: tl.constexpr):
    """A value's code, and what it stands for."""
    if VALUE_BYTES == 4:
        code = x.to(tl.int32, bitcast=True)
        value = x
    elif VALUE_BYTES == 2:
        code = nearest_bf16(x)
        value = (code << 16).to(tl.float32, bitcast=True)
    else:
        number = nearest_code(x, step)
        code = number.to(tl.int32)
        value = tl.where(code == 0, 0.0, number * step.to(tl.float32, bitcast=True))
    return code, value


@triton.jit
def put_codes(out, i, ok, code, VALUE_BYTES: tl.constexpr):
    """Codes as so many bytes each."""
    for byte in tl.static_range(VALUE_BYTES):
        part = ((code >> (8 * byte)) & 0xFF).to(tl.uint8)
        tl.store(out + i * VALUE_BYTES + byte, part, mask=ok)


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


@triton.jit
def append_values(
    list_ptr,
    sent_ptr,
    left_ptr,
    status_ptr,
    slots_ptr,
    sizes_ptr,
    slot_bytes,
    VALUE_BYTES: tl.constexpr,
    HAS_R: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """topk's values behind the positions of each chunk, and what they leave."""
    c = tl.program_id(0)
    most = tl.load(status_ptr)
    n = tl.minimum(tl.load(sent_ptr + 1) - c * 16384, 16384)
    n = tl.where(most < 0x7F800000, tl.maximum(n, 0), 0)
    positions = list_ptr + tl.load(sent_ptr).to(tl.int64) + c.to(tl.int64) * 16384
    size = tl.load(sizes_ptr + c)
    out = slots_ptr + c.to(tl.int64) * slot_bytes + size
    step = smallest_step(most, 127, 0x7C010203)
    for first in range(0, n, BLOCK):
        i = first + tl.arange(0, BLOCK)
        ok = i < n
        at = load_position(positions, i, ok)
        x = tl.load(left_ptr + at, mask=ok, other=0.0).to(tl.float32)
        code, value = sent_code(x, step, VALUE_BYTES)
        put_codes(out, i, ok, code, VALUE_BYTES)
        if HAS_R:
            tl.store(left_ptr + at, x - value, mask=ok)
    if n > 0:
        tl.store(sizes_ptr + c, size + n * VALUE_BYTES)
        if VALUE_BYTES == 1:
            tl.store(status_ptr + 1, step)


@triton.jit(do_not_specialize=["k", "blocks"])
def sum_blocks(left_ptr, chosen_ptr, list_ptr, sums_ptr, k, blocks):
    """The sum of 4,096 magnitudes in the order of sbc's spec: 64 lanes, then their tree."""
    block = tl.program_id(0)
    side = tl.program_id(1)
    count = tl.load(chosen_ptr + side * 8 + 2)
    positions = list_ptr + side.to(tl.int64) * k
    lane = tl.arange(0, 64)
    total = tl.zeros((64,), tl.float64)
    if block * 4096 < count:
        for group in range(4):
            for row in tl.static_range(16):  # so that loads don't wait for each other
                i = block * 4096 + (group * 16 + row) * 64 + lane
                at = load_position(positions, i, i < count)
                x = tl.load(left_ptr + at, mask=i < count, other=0.0).to(tl.float32)
                total += tl.abs(x).to(tl.float64)
    tl.store(sums_ptr + side * blocks + block, tree_of_64(total))


@triton.jit(do_not_specialize=["k", "blocks"])
def choose_side(chosen_ptr, sums_ptr, status_ptr, sent_ptr, k, blocks):
    """The side with the larger mean; what is sent of it, and the mean as the part's scalar."""
    a = tl.load(chosen_ptr + 2)
    b = tl.load(chosen_ptr + 10)
    first, mean = larger_side(sums_ptr, sums_ptr + blocks, blocks, a, b)
    tl.store(status_ptr + 1, mean.to(tl.int32, bitcast=True))
    tl.store(sent_ptr, tl.where(first, 0, k).to(tl.int32))
    tl.store(sent_ptr + 1, tl.where(first, a, b))


@triton.jit
def take_mean(left_ptr, list_ptr, sent_ptr, status_ptr, BLOCK: tl.constexpr):
    """What the mean leaves where it is sent."""
    mean = tl.load(status_ptr + 1).to(tl.float32, bitcast=True)
    finite = tl.load(status_ptr) < 0x7F800000
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = i < tl.where(finite, tl.load(sent_ptr + 1), 0)
    at = load_position(list_ptr + tl.load(sent_ptr), i, ok)
    x = tl.load(left_ptr + at, mask=ok, other=0.0)
    tl.store(left_ptr + at, x - mean, mask=ok)


@triton.jit
def count_chunks(sent_ptr, status_ptr):
    """How many chunks the positions take."""
    n = tl.load(sent_ptr + 1)
    tl.store(status_ptr + 3, tl.maximum((n + 16383) // 16384, 1))
