"""What stands before the blocks of gcomp's chunks: first byte and table
(src/codecs/gcomp/spec.md, sections 1 and 2). A chunk a program; symbols as in gcomp_tables.
"""

import triton
import triton.language as tl

from deltawire.torch.gpu.kernels.bit_streams import CORRUPT, TRUNCATED
from deltawire.torch.gpu.kernels.gcomp_codes import places_of_codes, reversed_8
from deltawire.torch.gpu.kernels.gcomp_tables import load_static
from deltawire.torch.gpu.kernels.gcomp_values import elements_of
from deltawire.torch.gpu.kernels.part_tables import ELEMENTS, unit_of

HEADS = 296  # numbers of a chunk: 256 symbols by code; lengths of level 0 by row; then
BELOW = tl.constexpr(288)  # the exponent below the window,
WHOLE = tl.constexpr(289)  # whether the chunk is whole,
MODE = tl.constexpr(290)  # its mode, 4 if it is refused,
AREA = tl.constexpr(291)  # where its index of blocks begins,
HAS_TINY = tl.constexpr(292)  # whether tiny values have a code,
IN_BYTES = tl.constexpr(293)  # whether mantissas are bytes
# An entry: exponent's row, width of the mantissa from bit 8 on, length from bit 13 on; and
ESCAPE = tl.constexpr(1 << 17)
TINY = tl.constexpr(1 << 18)
ZERO = tl.constexpr(1 << 19)


@triton.jit
def load_byte(data, at, size):
    """A byte, 0 behind the last one."""
    return tl.load(data + at, mask=at < size, other=0).to(tl.int32)


@triton.jit
def read_windows(data, size, at, levels):
    """Of each level: entries, first exponent and place of the window's lengths, 0 entries without
    one; where the windows end, and an error."""
    level = tl.arange(0, 8)
    counts = tl.zeros((8,), tl.int32)
    firsts = tl.zeros((8,), tl.int32)
    places = tl.zeros((8,), tl.int32)
    error = tl.full((), 0, tl.int32)
    for number in range(8):
        here = (((levels >> number) & 1) != 0) & (error == 0)
        m = load_byte(data, at, size)
        first = load_byte(data, at + 1, size)
        wrong = (m < 1) | (m > 30) | (first < 1) | (first + m - 1 > tl.where(number > 0, 254, 255))
        found = tl.where(at + 2 + (m + 1) // 2 > size, TRUNCATED, 0)
        found = tl.where(wrong, CORRUPT, found)
        found = tl.where(at + 2 > size, TRUNCATED, found)
        error = tl.where(here, found, error)
        good = here & (error == 0)
        mine = (level == number) & tl.where(good, level >= 0, False)
        counts = tl.where(mine, m, counts)
        firsts = tl.where(mine, first, firsts)
        places = tl.where(mine, at + 2, places)
        at += tl.where(good, 2 + (m + 1) // 2, 0)
    return counts, firsts, places, at, error


@triton.jit
def read_own_table(data, size, whole):
    """Lengths of all symbols, the exponent below the window, where the table ends, an error."""
    pair = load_byte(data, 1, size)
    tiny = tl.where(whole, load_byte(data, 2, size), 0)
    at = tl.where(whole, 3, 2)
    levels = load_byte(data, at, size)
    bad = (pair & 15 > 8) | (pair >> 4 > 8) | (tiny > 8) | tl.where(whole, levels > 1, False)
    head_error = tl.where(at + 1 > size, TRUNCATED, tl.where(bad, CORRUPT, 0))
    levels = tl.where(head_error == 0, levels, 0)
    counts, firsts, places, end, error = read_windows(data, size, at + 1, levels)
    lowest = tl.min(tl.where(counts > 0, firsts, 256), axis=0)
    highest = tl.max(tl.where(counts > 0, firsts + counts - 1, 0), axis=0)
    below = tl.where(highest > 0, lowest - 1, 0)
    row = tl.arange(0, 32)[None, :]
    k = tl.arange(0, 32)[None, :]
    count = counts[:, None]
    place = places[:, None]
    byte = tl.load(data + place + k // 2, mask=k < ((count + 1) // 2) * 2, other=0).to(tl.int32)
    nibble = (byte >> (4 * (k & 1))) & 15
    wrong = (nibble > 8) | ((k >= count) & (nibble != 0))
    wrong |= (count > 0) & ((k == 0) | (k == count - 1)) & (nibble == 0)
    any_wrong = tl.max(tl.max(wrong.to(tl.int32), axis=1), axis=0) > 0
    any_wrong = any_wrong | ((highest > 0) & (highest - lowest >= 30))
    error = tl.where(error == 0, tl.where(any_wrong, CORRUPT, 0), error)
    error = tl.where(head_error == 0, error, head_error)
    k = below + row - firsts[:, None]
    inside = (k >= 0) & (k < count) & (row >= 1) & (row <= 30)
    byte = tl.load(data + place + k // 2, mask=inside, other=0).to(tl.int32)
    lengths = tl.reshape(tl.where(inside, (byte >> (4 * (k & 1))) & 15, 0), (256,))
    i = tl.arange(0, 256)
    lengths = tl.where(i == 0, pair >> 4, tl.where(i == 31, pair & 15, lengths))
    return tl.where(i == 32, tiny, lengths), below, end, error


@triton.jit
def read_static_table(data, size, shape, level):
    """The same of a static table."""
    top = load_byte(data, 1, size)
    bad = (top < 12) | (top > 254)
    error = tl.where(size < 2, TRUNCATED, tl.where(bad, CORRUPT, 0))
    return load_static(shape, level), top - 12, error


@triton.jit
def put_entries(heads, lengths, unused):
    """The entry of every code of 8 bits. unused: low bits of the mantissa that no value has."""
    i = tl.arange(0, 256)
    begin, total = places_of_codes(lengths)
    step = tl.where(unused > 0, 1, 3)
    most = (24 - unused) << 8
    lengths_ = lengths << 13
    entry = (i & 31) | (most - ((step * (i >> 5)) << 8)) | lengths_
    entry = tl.where(i == 0, ZERO | lengths_, entry)
    entry = tl.where(i == 31, ESCAPE | most | lengths_, entry)
    entry = tl.where(i == 32, TINY | most | lengths_, entry)
    codes = tl.where(lengths > 0, tl.full((256,), 256, tl.int32) >> lengths, 0)
    for k in range(tl.max(codes, axis=0)):
        tl.store(heads + (reversed_8(begin + k) & 255), entry, mask=k < codes)
    tl.store(heads + 256 + i, lengths, mask=i < 32)
    return tl.where(total == 256, 0, CORRUPT)


@triton.jit
def read_first(first, HALVES: tl.constexpr):
    """A chunk's first byte: mode, level and number of its table, low bits that its values don't
    have, and an error. HALVES: as read_heads has it."""
    mode = first & 3
    level = (first >> 2) & 7
    table = (first >> 5) & 3
    leveled = (mode == 3) & (table > 0)
    bad = ((mode < 2) & (table > 0)) | (leveled != (level > 0))
    of_halves = first >= 128
    allowed = (mode == HALVES) & (table == 0) & ((level == 1) | (level == 2))
    bad = tl.where(of_halves, (HALVES == 0) | (allowed == 0), bad)
    unused = tl.where(of_halves, tl.where(level == 1, 16, 13), 0)
    return mode, level, table, unused, tl.where(bad, CORRUPT, 0)


@triton.jit(do_not_specialize=["errors_ptr"])
def read_heads(
    table_ptr,
    chunks_ptr,
    spans_ptr,
    data_ptr,
    shapes_ptr,
    heads_ptr,
    errors_ptr,
    HALVES: tl.constexpr,
):
    """What stands before each chunk's blocks. A chunk a program. HALVES: mode of chunks of halves,
    0 where none may be."""
    part, c = unit_of(chunks_ptr)
    g = tl.program_id(0).to(tl.int64)
    n = elements_of(tl.load(table_ptr + part * 4 + ELEMENTS), c)
    begin = tl.load(spans_ptr + 2 * g)
    size = (tl.load(spans_ptr + 2 * g + 1) - begin).to(tl.int32)
    data = data_ptr + begin
    heads = heads_ptr + g * 296
    first = tl.load(data).to(tl.int32)
    mode, level, table, unused, error = read_first(first, HALVES)
    if (mode < 2) & (error == 0):
        wanted = 1 + tl.where(mode == 0, 4 * n, 0)
        error = tl.where(size < wanted, TRUNCATED, tl.where(size > wanted, CORRUPT, 0))
    elif error == 0:
        whole = mode == 2
        if table > 0:
            shape = shapes_ptr + (table - 1) * 16
            lengths, below, error = read_static_table(data, size, shape, level)
            end = tl.full((), 2, tl.int32)
        else:
            lengths, below, end, error = read_own_table(data, size, whole)
        if error == 0:
            error = put_entries(heads, lengths, unused)
            blocks = (n + 32767) >> 15
            short = end + 4 * (blocks - 1) > size
            error = tl.where(error == 0, tl.where(short, TRUNCATED, 0), error)
            i = tl.arange(0, 256)
            tiny = tl.max(tl.where(i == 32, lengths, 0), axis=0)
            tl.store(heads + BELOW, below)
            tl.store(heads + WHOLE, whole.to(tl.int32))
            tl.store(heads + IN_BYTES, (whole & (unused == 0)).to(tl.int32))
            tl.store(heads + AREA, end)
            tl.store(heads + HAS_TINY, (tiny > 0).to(tl.int32))
    tl.store(heads + MODE, tl.where(error == 0, mode, 4))
    tl.atomic_or(errors_ptr + part, error, sem="relaxed")
