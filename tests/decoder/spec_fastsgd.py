"""The codec fastsgd, decoded as its spec.md says, all chunks of a part together."""

import struct
from collections.abc import Callable

import numpy as np
from spec_bits import BitReader
from spec_hashes import require

FULL_CHUNK = 16384
LARGEST_CODE = 2047
MOST_CODE_BITS = 11
MOST_KEY_BITS = 32
HEAD_BYTES = 9


def check_sum(scalar: int) -> None:
    """Check that the sum is finite, at least 0 and not -0."""
    require(scalar < 0x7F800000, "Corrupt", "the sum is negative, infinite or NaN")


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


def fastsgd_decoder(
    b: str, tau: str, flag_bits: int
) -> Callable[[list[bytes], int, int], np.ndarray]:
    """Give the decoder of parts for the parameters of a spec."""

    def decode_part(chunks: list[bytes], count: int, scalar: int) -> np.ndarray:
        total = np.frombuffer(struct.pack("<I", scalar), "<f4")[0]
        allowed = code_values(b, tau, total)
        values = np.zeros(count, "<f4")
        least = 0
        for number, chunk in enumerate(chunks):
            is_last = number == len(chunks) - 1
            pairs = chunk_pairs(chunk, number == 0, is_last)
            if pairs == 0:
                continue
            found = chunk_values(chunk, pairs, allowed)
            keys = chunk_keys(chunk, pairs, flag_bits)
            require(keys[0] >= least, "Corrupt", "a key that isn't above those before")
            require(keys[-1] < count, "Corrupt", "a key outside the tensor")
            values[keys] = found
            least = keys[-1] + 1
        return values

    return decode_part


def chunk_pairs(chunk: bytes, is_first: bool, is_last: bool) -> int:
    """Read and check the number of pairs of a chunk."""
    require(len(chunk) >= 2, "Truncated", "the end inside a chunk's head")
    (pairs,) = struct.unpack_from("<H", chunk)
    require(pairs <= FULL_CHUNK, "Corrupt", f"{pairs} pairs")
    require(is_last or pairs == FULL_CHUNK, "Corrupt", "a short chunk before the last")
    require(pairs > 0 or is_first, "Corrupt", "an empty chunk beside others")
    require(pairs > 0 or len(chunk) == 2, "Corrupt", "bytes after an empty chunk")
    require(pairs == 0 or len(chunk) >= HEAD_BYTES, "Truncated", "the end inside a chunk's head")
    return pairs


def value_bytes(chunk: bytes, pairs: int) -> int:
    """Give the length of the stream of values, which must be in the chunk."""
    (codes,) = struct.unpack_from("<H", chunk, 2)
    require(codes >> 11 <= MOST_CODE_BITS, "Corrupt", f"codes of {codes >> 11} bits")
    size = -(-pairs * ((codes >> 11) + 1) // 8)
    require(HEAD_BYTES + size <= len(chunk), "Truncated", "the end inside the values")
    return size


def chunk_values(chunk: bytes, pairs: int, allowed: list[np.float32]) -> list[np.float32]:
    """Read the values of a chunk."""
    (codes,) = struct.unpack_from("<H", chunk, 2)
    base, width = codes & 2047, codes >> 11
    size = value_bytes(chunk, pairs)
    stream = BitReader(chunk[HEAD_BYTES : HEAD_BYTES + size])
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


def chunk_keys(chunk: bytes, pairs: int, flag_bits: int) -> list[int]:
    """Read the keys of a chunk."""
    longest, first = struct.unpack_from("<BI", chunk, 4)
    require(longest <= MOST_KEY_BITS, "Corrupt", f"gaps of {longest} bits")
    stream = BitReader(chunk[HEAD_BYTES + value_bytes(chunk, pairs) :])
    keys, gaps = [first], [0]
    for _ in range(pairs - 1):
        gaps.append(read_gap(stream, longest, flag_bits) if longest else 0)
        keys.append(keys[-1] + 1 + gaps[-1])
    stream.finish()
    require(max(gaps).bit_length() == longest, "Corrupt", "no gap is as long as stated")
    return keys


def read_gap(stream: BitReader, longest: int, flag_bits: int) -> int:
    """Read a flag and its gap."""
    lengths = [-(-(flag + 1) * longest // 2**flag_bits) for flag in range(2**flag_bits)]
    flag = stream.number(flag_bits)
    gap = stream.number(lengths[flag])
    fits = next(i for i, length in enumerate(lengths) if gap.bit_length() <= length)
    require(flag == fits, "Corrupt", "a flag that isn't the smallest")
    return gap
