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
