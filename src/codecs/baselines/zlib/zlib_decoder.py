"""zlib, decoded as its spec.md says."""

import zlib

import numpy as np
from spec_codec import SWITCH, Codec, Coded, one_of
from spec_hashes import require
from spec_planes import raw_bytes, values_of


def inflated(stream: bytes, size: int) -> bytes:
    """Give the `size` bytes of one zlib stream."""
    decompressor = zlib.decompressobj()
    try:
        found = decompressor.decompress(stream, size + 1)
    except zlib.error as error:
        require(False, "Corrupt", str(error))
    require(len(found) <= size, "Corrupt", "too many bytes")
    require(decompressor.eof, "Truncated", "the stream ends early")
    require(len(found) == size, "Corrupt", "too few bytes")
    require(decompressor.unused_data == b"", "Corrupt", "bytes behind the stream")
    return found


def decode(coded: Coded) -> np.ndarray:
    """Put the bytes of each value together again."""
    return values_of(raw_bytes(coded, inflated), coded)


CODEC = Codec(
    "zlib",
    22,
    decode,
    chunk_elements=65536,
    parameters={"level": one_of(*(str(level) for level in range(1, 10))), "planes": SWITCH},
)

ON, OFF = {"level": "6", "planes": "on"}, {"level": "6", "planes": "off"}
# One block of fixed codes: 64 times the byte 0.
STREAM = bytes.fromhex("789c6360a00c000000400001")


def part(chunk: bytes, count: int = 16, parameters: dict[str, str] = ON) -> Coded:
    """Make a part of one chunk."""
    return Coded([chunk], count, parameters=parameters)


GOOD = {
    "stored planes": (part(bytes([0, 0, 0, 0, 0, 0x80, 0x20, 0x3F, 0xC0]), 2), [1, -2.5]),
    "stored values": (part(bytes([0, 0, 0, 0x80, 0x3F]), 1, OFF), [1]),
    "a stream": (part(b"\x01" + STREAM), [0] * 16),
}
REFUSED = {
    "a mode": (part(b"\x02" + STREAM), "Corrupt"),
    "too few stored": (part(bytes(4), 1), "Truncated"),
    "too many stored": (part(bytes(6), 1), "Corrupt"),
    "no stream": (part(b"\x01"), "Truncated"),
    "more bytes than wanted": (part(b"\x01" + STREAM, 15), "Corrupt"),
    "fewer": (part(b"\x01" + STREAM, 17), "Corrupt"),
    "a byte behind the stream": (part(b"\x01" + STREAM + b"\x00"), "Corrupt"),
    "a stream that is cut": (part(b"\x01" + STREAM[:-1]), "Truncated"),
    "another checksum": (part(b"\x01" + STREAM[:-1] + b"\x02"), "Corrupt"),
    "a stream as long as its values": (part(b"\x01" + STREAM, 3), "Corrupt"),
}
