"""zstd, decoded as its spec.md says."""

import numpy as np
import zstandard
from spec_codec import SWITCH, Codec, Coded, one_of
from spec_hashes import require

LARGEST_CHUNK = 4 * 65536


def inflated(stream: bytes, size: int) -> bytes:
    """Give the `size` bytes of one frame."""
    try:
        header = zstandard.get_frame_parameters(stream)
        decompressor = zstandard.ZstdDecompressor().decompressobj()
        require(header.content_size == size, "Corrupt", "a frame of another size")
        plain = header.dict_id == 0 and not header.has_checksum
        require(plain, "Corrupt", "a dictionary or a checksum")
        require(header.window_size <= LARGEST_CHUNK, "Corrupt", "a window beyond the largest chunk")
        found = decompressor.decompress(stream)
    except zstandard.ZstdError as error:
        kind = "Truncated" if "not enough data" in str(error) else "Corrupt"
        require(False, kind, str(error))
    require(decompressor.eof, "Truncated", "the frame ends early")
    require(decompressor.unused_data == b"", "Corrupt", "bytes behind the frame")
    require(len(found) == size, "Corrupt", "another number of bytes")
    return found


def raw_bytes(coded: Coded) -> bytes:
    """Give the bytes of a chunk's values: stored, or in a frame."""
    size, mode, rest = 4 * coded.count, coded.chunk[0], coded.chunk[1:]
    require(mode in (0, 1), "Corrupt", "the first byte names no mode")
    if mode == 0:
        require(len(rest) >= size, "Truncated", "fewer bytes than the values have")
        require(len(rest) <= size, "Corrupt", "more bytes than the values have")
        return rest
    require(rest != b"", "Truncated", "no compressed bytes")
    require(len(rest) < size, "Corrupt", "compressed bytes as many as the values have")
    return inflated(rest, size)


def decode(coded: Coded) -> np.ndarray:
    """Put the bytes of each value together again, which may lie in planes."""
    raw = raw_bytes(coded)
    if coded.parameters["planes"] == "on":
        raw = np.frombuffer(raw, "u1").reshape(4, coded.count).T.tobytes()
    return np.frombuffer(raw, "<f4")


CODEC = Codec(
    "zstd",
    21,
    decode,
    chunk_elements=65536,
    parameters={"level": one_of(*(str(level) for level in range(1, 20))), "planes": SWITCH},
)

ON, OFF = {"level": "3", "planes": "on"}, {"level": "3", "planes": "off"}
# A frame of one block: 64 times the byte 0x3F.
FRAME = bytes.fromhex("28b52ffd20400302003f")


def part(chunk: bytes, count: int = 16, parameters: dict[str, str] = ON) -> Coded:
    """Make a part of one chunk."""
    return Coded([chunk], count, parameters=parameters)


GOOD = {
    "stored planes": (part(bytes([0, 0, 0, 0, 0, 0x80, 0x20, 0x3F, 0xC0]), 2), [1, -2.5]),
    "stored values": (part(bytes([0, 0, 0, 0x80, 0x3F]), 1, OFF), [1]),
    "a frame": (part(b"\x01" + FRAME), [float.fromhex("0x1.7e7e7ep-1")] * 16),
}
REFUSED = {
    "a mode": (part(b"\x02" + FRAME), "Corrupt"),
    "too few stored": (part(bytes(4), 1), "Truncated"),
    "too many stored": (part(bytes(6), 1), "Corrupt"),
    "no frame": (part(b"\x01"), "Truncated"),
    "a frame as long as its values": (part(b"\x01" + FRAME + bytes(54)), "Corrupt"),
    "another size": (part(b"\x01" + FRAME, 15), "Corrupt"),
    "a byte behind the frame": (part(b"\x01" + FRAME + b"\x00"), "Corrupt"),
    "a frame that is cut": (part(b"\x01" + FRAME[:-1]), "Truncated"),
    "a checksum": (part(b"\x01" + FRAME[:4] + b"\x24" + FRAME[5:] + bytes(4)), "Corrupt"),
    "another magic number": (part(b"\x01\x27" + FRAME[1:]), "Corrupt"),
}
