"""fastsgd, decoded as its spec.md says, all chunks of a part together."""

import re
import struct

import numpy as np
from spec_bits import BitReader
from spec_codec import SHARE, SWITCH, Codec, Coded, number, one_of
from spec_hashes import require
from spec_positions import chunk_positions

FULL_CHUNK = 16384
LARGEST_CODE = 2047
MOST_CODE_BITS = 11
MOST_KEY_BITS = 32
HEAD_BYTES = 9
CODE_BYTES = 2  # before a chunk of positions, which has 3 bytes at least


def code_values(b: str, tau: str, total: np.float32) -> list[np.float32]:
    """Give what the allowed codes stand for, from 0 on."""
    base = float(np.float32(b))
    last = LARGEST_CODE if tau == "auto" else int(tau)
    values, power = [], 1.0
    for _ in range(last + 1):
        value = np.float32(float(total) / power)
        if value == 0:
            break
        values.append(value)
        power *= base
    return values


def decode(coded: Coded) -> np.ndarray:
    """Decode the pairs of all chunks."""
    require(coded.scalars[0] < 0x7F800000, "Corrupt", "the sum is negative, infinite or NaN")
    given = coded.parameters
    allowed = code_values(given["b"], given["tau"], coded.number())
    values = np.zeros(coded.count, "<f4")
    least = 0
    for i, chunk in enumerate(coded.chunks):
        is_first, is_last = i == 0, i == len(coded.chunks) - 1
        if given["keys"] == "flags":
            pairs = chunk_pairs(chunk, is_first, is_last)
            if pairs == 0:
                continue
            (codes,) = struct.unpack_from("<H", chunk, 2)
            begin = HEAD_BYTES + value_bytes(chunk, pairs)
            found = chunk_values(chunk[HEAD_BYTES:begin], codes, pairs, allowed)
            keys = chunk_keys(chunk, begin, pairs, int(given["l"]))
            require(keys[0] >= least, "Corrupt", "a key that isn't above those before")
            require(keys[-1] < coded.count, "Corrupt", "a key outside the tensor")
        else:
            begin = position_bytes(chunk, is_first, is_last)
            keys = chunk_positions(chunk[CODE_BYTES:begin], least, coded.count)
            if not keys:
                continue
            (codes,) = struct.unpack_from("<H", chunk)
            found = chunk_values(chunk[begin:], codes, len(keys), allowed)
        values[keys] = found
        least = keys[-1] + 1
    return values


def chunk_pairs(chunk: bytes, is_first: bool, is_last: bool) -> int:
    """Read and check the number of pairs of a chunk with flags."""
    require(len(chunk) >= 2, "Truncated", "the end inside a chunk's head")
    (pairs,) = struct.unpack_from("<H", chunk)
    check_pairs(pairs, is_first, is_last)
    require(pairs > 0 or len(chunk) == 2, "Corrupt", "bytes after an empty chunk")
    require(pairs == 0 or len(chunk) >= HEAD_BYTES, "Truncated", "the end inside a chunk's head")
    return pairs


def check_pairs(pairs: int, is_first: bool, is_last: bool) -> None:
    """Check that a chunk in this place may have so many pairs."""
    require(pairs <= FULL_CHUNK, "Corrupt", f"{pairs} pairs")
    require(is_last or pairs == FULL_CHUNK, "Corrupt", "a short chunk before the last")
    require(pairs > 0 or is_first, "Corrupt", "an empty chunk among others")


def value_bytes(chunk: bytes, pairs: int) -> int:
    """Give the length of the stream of values, which must be in the chunk with flags."""
    (codes,) = struct.unpack_from("<H", chunk, 2)
    require(codes >> 11 <= MOST_CODE_BITS, "Corrupt", f"codes of {codes >> 11} bits")
    size = -(-pairs * ((codes >> 11) + 1) // 8)
    require(HEAD_BYTES + size <= len(chunk), "Truncated", "the end inside the values")
    return size


def position_bytes(chunk: bytes, is_first: bool, is_last: bool) -> int:
    """Give where the values begin behind the positions of a chunk without flags."""
    least = CODE_BYTES + 3
    require(len(chunk) >= least, "Truncated", "the end inside a chunk's head")
    codes, _, pairs = struct.unpack_from("<HBH", chunk)
    check_pairs(pairs, is_first, is_last)
    require(codes >> 11 <= MOST_CODE_BITS, "Corrupt", f"codes of {codes >> 11} bits")
    require(pairs > 0 or codes == 0, "Corrupt", "codes of no pairs")
    size = -(-pairs * ((codes >> 11) + 1) // 8) if pairs else 0
    require(least + size <= len(chunk), "Truncated", "the end inside the values")
    return len(chunk) - size


def chunk_values(
    data: bytes, codes: int, pairs: int, allowed: list[np.float32]
) -> list[np.float32]:
    """Read the values of a chunk, whose base and width are in `codes`."""
    base, width = codes & 2047, codes >> 11
    stream = BitReader(data)
    values, offsets = [], []
    for _ in range(pairs):
        offset = stream.number(width)
        require(base + offset < len(allowed), "Corrupt", f"code {base + offset}")
        value = allowed[base + offset]
        values.append(-value if stream.bit() else value)
        offsets.append(offset)
    stream.finish()
    require(min(offsets) == 0, "Corrupt", "no pair has the base")
    require(max(offsets).bit_length() == width, "Corrupt", "codes in more bits than they need")
    return values


def chunk_keys(chunk: bytes, begin: int, pairs: int, flag_bits: int) -> list[int]:
    """Read the keys of a chunk, whose flags begin there."""
    longest, first = struct.unpack_from("<BI", chunk, 4)
    require(longest <= MOST_KEY_BITS, "Corrupt", f"gaps of {longest} bits")
    size = -(-(pairs - 1) * flag_bits // 8) if longest else 0
    require(begin + size <= len(chunk), "Truncated", "the end inside the flags")
    flags = BitReader(chunk[begin : begin + size])
    stream = BitReader(chunk[begin + size :])
    keys, gaps = [first], [0]
    for _ in range(pairs - 1):
        gaps.append(read_gap(flags, stream, longest, flag_bits) if longest else 0)
        keys.append(keys[-1] + 1 + gaps[-1])
    flags.finish()
    stream.finish()
    require(max(gaps).bit_length() == longest, "Corrupt", "no gap is as long as stated")
    return keys


def read_gap(flags: BitReader, stream: BitReader, longest: int, flag_bits: int) -> int:
    """Read a flag and its gap."""
    lengths = [-(-(flag + 1) * longest // 2**flag_bits) for flag in range(2**flag_bits)]
    flag = flags.number(flag_bits)
    gap = stream.number(lengths[flag])
    fits = next(i for i, length in enumerate(lengths) if gap.bit_length() <= length)
    require(flag == fits, "Corrupt", "a flag that isn't the smallest")
    return gap


def check_tau(text: str) -> None:
    """Check that tau is auto or a whole number 1 ... 2047."""
    whole = re.fullmatch("[1-9][0-9]{0,3}", text) is not None and int(text) <= LARGEST_CODE
    require(text == "auto" or whole, "Corrupt", f"tau of {text}")


CODEC = Codec(
    "fastsgd",
    6,
    decode,
    scalars=1,
    parameters={
        "b": number(np.float32(1.02), np.nextafter(np.float32(2), np.float32(3))),
        "tau": check_tau,
        "keep": SHARE,
        "l": one_of(*"12345"),
        "residual": SWITCH,
        "keys": one_of("flags", "auto"),
    },
    later={"keys": "flags"},
)
