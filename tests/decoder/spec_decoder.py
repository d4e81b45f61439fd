"""A decoder for `.dw` files, written from the documents alone, without the library's code."""

import math
import struct
from dataclasses import dataclass

import numpy as np
from spec_codecs import FP32, Codec, check_wide_end, codec_of_spec
from spec_hashes import DecodeError, crc32c, require, xxh64

__all__ = ["DecodeError", "decode_file"]

FILE_MAGIC = b"DWFILE\r\n"
FILE_FIXED = 32
FRAME_MAGIC = 0x46575744
FRAME_FIXED = 64
FRAME_LIMIT = 1 << 28
FLOAT32 = 1
DTYPES = (1, 2, 3)
HIGH_BIT = 1 << 31
BARE_BIT = 1 << 30
BARE_STATES = (0, 1)  # nothing; not finite


@dataclass(frozen=True)
class FileHeader:
    """What a file says before its frames."""

    shape: tuple[int, ...]
    dtype: int
    min_elements: int
    spec: bytes
    header_bytes: int

    @property
    def count(self) -> int:
        """Elements of the tensor."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Segment:
    """A run of whole chunks of one part."""

    part: int
    bare: bool
    raw: bool
    first: int
    count: int
    scalar: int


@dataclass(frozen=True)
class Chunk:
    """One entry of the chunk index; begin and end count from the payload's first byte."""

    number: int
    begin: int
    end: int
    crc: int


@dataclass(frozen=True)
class Frame:
    """A frame whose own syntax has been checked; `runs` holds the chunks of each segment."""

    identity: dict[str, int]
    segments: list[Segment]
    runs: list[list[Chunk]]
    payload: bytes
    frame_bytes: int


def parse_file_header(data: bytes) -> FileHeader:
    """Check and read the header of a file."""
    require(len(data) >= FILE_FIXED, "Truncated", "file header")
    require(data[:8] == FILE_MAGIC, "Corrupt", "file magic")
    version, dtype, dimensions, header_bytes, min_elements, spec_bytes, reserved = (
        struct.unpack_from("<HBBIQII", data, 8)
    )
    require(version == 0, "UnsupportedVersion", f"file version {version}")
    require(dimensions <= 8, "Limit", f"{dimensions} dimensions")
    require(spec_bytes <= 1024, "Limit", f"{spec_bytes} bytes of spec")
    computed = FILE_FIXED + 8 * dimensions + spec_bytes + 4
    require(header_bytes == computed, "Corrupt", "file header_bytes")
    require(header_bytes <= len(data), "Truncated", "file header")
    (crc,) = struct.unpack_from("<I", data, header_bytes - 4)
    require(crc == crc32c(data[: header_bytes - 4]), "Corrupt", "file header CRC")
    require(dtype in DTYPES, "Corrupt", f"dtype {dtype}")
    require(reserved == 0, "Corrupt", "bytes 28-31 set")
    shape = struct.unpack_from(f"<{dimensions}Q", data, FILE_FIXED)
    extents = [extent for extent in shape if extent != 0]
    require(math.prod(extents) < 1 << 32, "Limit", "too many elements")
    spec = data[FILE_FIXED + 8 * dimensions : header_bytes - 4]
    require(all(0x20 <= byte <= 0x7E for byte in spec), "Corrupt", "codec spec is not ASCII")
    return FileHeader(shape, dtype, min_elements, spec, header_bytes)


def parse_index(data: bytes, at: int, chunks: int, segments: int, size: int) -> list[list[Chunk]]:
    """Check and read the chunk index; gives the chunks of each segment."""
    runs: list[list[Chunk]] = [[]]
    begin, last = 0, True
    for number in range(chunks):
        word, crc = struct.unpack_from("<II", data, at + 8 * number)
        end, last = word & ~HIGH_BIT, bool(word & HIGH_BIT)
        require(end > begin, "Corrupt", "chunk ends do not grow")
        runs[-1].append(Chunk(number, begin, end, crc))
        begin = end
        if last:
            runs.append([])
    require(last, "Corrupt", "the last chunk does not end a segment")
    runs.pop()
    require(len(runs) == segments, "Corrupt", "segments in the chunk index")
    require(begin == size, "Corrupt", "the last chunk end is not the payload's end")
    return runs


def parse_segments(data: bytes, at: int, segments: int) -> list[Segment]:
    """Check and read the segments of a frame."""
    result = []
    for number in range(segments):
        word, first, count, scalar = struct.unpack_from("<IIII", data, at + 16 * number)
        require(count >= 1, "Corrupt", "a segment without elements")
        require(first + count <= (1 << 32) - 1, "Corrupt", "a segment beyond 2^32 - 1")
        bare, raw = bool(word & BARE_BIT), bool(word & HIGH_BIT)
        if bare:
            require(not raw, "Corrupt", "a bare segment that is raw")
            require(scalar in BARE_STATES, "Corrupt", "state of a bare segment")
        result.append(Segment(word & ~(HIGH_BIT | BARE_BIT), bare, raw, first, count, scalar))
    return result


def parse_frame(data: bytes) -> Frame:
    """Check and read the frame at the beginning of data, in the order that the document gives."""
    require(len(data) >= FRAME_FIXED, "Truncated", "frame header")
    magic, version, flags, codec_id, header_bytes, frame_bytes = struct.unpack_from("<IBBHII", data)
    require(magic == FRAME_MAGIC, "Corrupt", "frame magic")
    require(version == 0, "UnsupportedVersion", f"frame version {version}")
    params_hash, spec_hash, step, epoch, seq = struct.unpack_from("<QQQII", data, 16)
    rank, world, slice_, segments, chunks, crc = struct.unpack_from("<HHHHII", data, 48)
    computed = FRAME_FIXED + 16 * segments + 8 * chunks
    require(header_bytes == computed, "Corrupt", "frame header_bytes")
    require(header_bytes <= len(data), "Truncated", "frame header")
    require(crc == crc32c(data[64:header_bytes], crc32c(data[:60])), "Corrupt", "frame header CRC")
    require(flags == 0, "Corrupt", "frame flags")
    require(segments >= 1, "Corrupt", "a frame without segments")
    require(frame_bytes <= FRAME_LIMIT, "Limit", "frame_bytes beyond 2^28")
    index_at = FRAME_FIXED + 16 * segments
    parsed = parse_segments(data, FRAME_FIXED, segments)
    coded = sum(not segment.bare for segment in parsed)
    coded_runs = iter(parse_index(data, index_at, chunks, coded, frame_bytes - header_bytes))
    runs = [[] if segment.bare else next(coded_runs) for segment in parsed]
    require(frame_bytes <= len(data), "Truncated", "frame payload")
    require(rank < world, "Corrupt", "rank not below world")
    identity = {
        "codec id": codec_id,
        "params_hash": params_hash,
        "spec_hash": spec_hash,
        "world": world,
        "rank": rank,
        "epoch": epoch,
        "step": step,
        "slice": slice_,
        "seq": seq,
    }
    return Frame(identity, parsed, runs, data[header_bytes:frame_bytes], frame_bytes)


def expected_identity(header: FileHeader, codec: Codec) -> dict[str, int]:
    """Give what each frame of a file must carry, apart from seq."""
    params = header.spec + b";min=%d" % header.min_elements
    name = b"tensor"
    spec = struct.pack("<I", len(name)) + name + struct.pack("<QQB", 0, header.count, header.dtype)
    return {
        "codec id": codec.codec_id,
        "params_hash": xxh64(params),
        "spec_hash": xxh64(spec),
        "world": 1,
        "rank": 0,
        "epoch": 0,
        "step": 0,
        "slice": 0,
    }


def check_identity(frame: Frame, expected: dict[str, int]) -> None:
    """Check that a frame is the expected one."""
    for field, value in expected.items():
        require(frame.identity[field] == value, "Mismatch", f"another {field}")


def check_place(segment: Segment, position: int, header: FileHeader, codec: Codec) -> None:
    """Check that a segment continues the part at position, and may end where it does."""
    require(segment.part == 0, "Corrupt", "a part that the message does not have")
    require(segment.first == position, "Corrupt", "a gap or overlap between segments")
    end = segment.first + segment.count
    require(end <= header.count, "Corrupt", "a segment beyond its part")
    raw = header.count < header.min_elements
    require(segment.raw == raw, "Corrupt", "raw is not as the policy says")
    require(not segment.bare, "Corrupt", "a bare segment in a file")
    if end < header.count:
        at_chunk = codec.chunk_elements and segment.count % codec.chunk_elements == 0
        require(bool(at_chunk), "Corrupt", "a cut inside a chunk")


def decode_segment(
    segment: Segment, chunks: list[Chunk], payload: bytes, codec: Codec
) -> list[np.ndarray]:
    """Decode a segment; what it allocates is bounded by its number of chunks."""
    if codec.chunk_elements:
        expected = -(-segment.count // codec.chunk_elements)
        require(len(chunks) == expected, "Corrupt", "number of chunks of a segment")
    codec.check_scalar(segment.scalar)
    values = []
    bodies = []
    for number, chunk in enumerate(chunks):
        body = payload[chunk.begin : chunk.end]
        require(crc32c(body, chunk.number) == chunk.crc, "Corrupt", "chunk CRC")
        if codec.decode is None:
            bodies.append(body)
            continue
        first = number * codec.chunk_elements
        last = min(segment.count, first + codec.chunk_elements)
        if codec.width:
            check_wide_end(codec.width, chunk.end - chunks[0].begin, last)
        values.append(codec.decode(body, last - first, segment.scalar))
    if codec.decode_part:
        values.append(codec.decode_part(bodies, segment.count, segment.scalar))
    return values


def decode_frames(data: bytes, header: FileHeader, codec: Codec) -> list[np.ndarray]:
    """Decode the message of one part that follows the file header."""
    expected = expected_identity(header, codec)
    part_codec = FP32 if header.count < header.min_elements else codec
    values: list[np.ndarray] = []
    position, at, seq = 0, header.header_bytes, 0
    while position < header.count:
        frame = parse_frame(data[at:])
        check_identity(frame, expected | {"seq": seq})
        for segment, chunks in zip(frame.segments, frame.runs, strict=True):
            check_place(segment, position, header, part_codec)
            values += decode_segment(segment, chunks, frame.payload, part_codec)
            position += segment.count
        at += frame.frame_bytes
        seq += 1
    require(at == len(data), "Corrupt", "bytes after the last frame")
    return values


def empty_tensor(shape: tuple[int, ...]) -> np.ndarray:
    """Give a tensor without elements, if its shape can be held at all."""
    try:
        return np.zeros(shape, "<f4")
    except (ValueError, OverflowError, MemoryError) as error:
        raise DecodeError("Limit", f"shape {shape}") from error


def decode_file(data: bytes) -> np.ndarray:
    """Decode a `.dw` file to its float32 tensor, or raise `DecodeError`."""
    header = parse_file_header(data)
    codec = codec_of_spec(header.spec)
    require(header.dtype == FLOAT32, "Mismatch", "the codecs carry float32 alone")
    values = decode_frames(data, header, codec)
    if not values:
        return empty_tensor(header.shape)
    return np.concatenate(values).reshape(header.shape)
