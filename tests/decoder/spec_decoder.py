"""A decoder for `.dw` files, written from the documents alone, without the library's code."""

import math
import struct
from dataclasses import dataclass

import numpy as np
from spec_codec import Codec, Coded
from spec_codecs import CODECS, codec_of_spec, decode_coded
from spec_hashes import DecodeError, crc32c, require, xxh64

__all__ = ["DecodeError", "decode_file"]

FILE_MAGIC = b"DWFILE\r\n"
FILE_VERSION = 1
FRAME_VERSIONS = (1, 2, 3, 4)
FILE_FIXED = 32
FRAME_MAGIC = 0x46575744
FRAME_FIXED = 28
FRAME_LIMIT = 1 << 28
FLOAT32, BFLOAT16 = 1, 2
DTYPES = (1, 2, 3)
HALF_CODECS = {2: "bf16", 3: "fp16"}  # of tensors of 16 bits, from frames of version 2 on
SCALE_FLAG = 2
ONE = 0x3F800000
INFINITY = 0x7F800000
CODED, NOT_FINITE = 0, 2
BEGIN_BIT, PARTS_BIT = 16, 32
U16, U32, U64 = (1 << 16) - 1, (1 << 32) - 1, (1 << 64) - 1


@dataclass(frozen=True)
class FileHeader:
    """What a file says before its frames."""

    shape: tuple[int, ...]
    dtype: int
    min_elements: int
    spec: bytes
    header_bytes: int
    part_elements: int = 0

    @property
    def count(self) -> int:
        """Elements of the tensor."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Chunk:
    """A chunk's place in the payload, from its first byte, and its checksum."""

    number: int
    begin: int
    end: int
    crc: int


@dataclass(frozen=True)
class Segment:
    """A run of whole chunks of one part, or of several raw parts as if they were one.

    A bare one has no chunks and no codec.
    """

    state: int
    part: int
    begin: int
    count: int
    codec_id: int
    scalars: tuple[int, int]
    chunks: list[Chunk]
    parts: int = 1

    @property
    def bare(self) -> bool:
        """Whether it stands for a whole part without a payload."""
        return self.state != CODED


@dataclass(frozen=True)
class Frame:
    """A frame whose own syntax has been checked."""

    identity: dict[str, int]
    segments: list[Segment]
    payload: bytes
    frame_bytes: int
    version: int


class Head:
    """Takes the fields of a head off its front; where they end too early, the head is corrupt."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data = data
        self.at = at

    def fixed(self, size: int) -> int:
        """Take a number of so many bytes."""
        require(self.at + size <= len(self.data), "Corrupt", "the head ends within a field")
        value = int.from_bytes(self.data[self.at : self.at + size], "little")
        self.at += size
        return value

    def number(self, most: int) -> int:
        """Take a number of 7 bits a byte, in its one form."""
        value, shift = 0, 0
        while True:
            byte = self.fixed(1)
            value |= (byte & 0x7F) << shift
            require(value <= most, "Corrupt", "a number beyond its type")
            if byte < 0x80:
                require(byte != 0 or shift == 0, "Corrupt", "a number in a longer form")
                return value
            shift += 7
            require(shift < 70, "Corrupt", "a number without an end")


def parse_file_header(data: bytes) -> FileHeader:
    require(len(data) >= FILE_FIXED, "Truncated", "file header")
    require(data[:8] == FILE_MAGIC, "Corrupt", "file magic")
    version, dtype, dimensions, header_bytes, min_elements, spec_bytes, cut = struct.unpack_from(
        "<HBBIQII", data, 8
    )
    require(version == FILE_VERSION, "UnsupportedVersion", f"file version {version}")
    require(dimensions <= 8, "Limit", f"{dimensions} dimensions")
    require(spec_bytes <= 1024, "Limit", f"{spec_bytes} bytes of spec")
    computed = FILE_FIXED + 8 * dimensions + spec_bytes + 4
    require(header_bytes == computed, "Corrupt", "file header_bytes")
    require(header_bytes <= len(data), "Truncated", "file header")
    (crc,) = struct.unpack_from("<I", data, header_bytes - 4)
    require(crc == crc32c(data[: header_bytes - 4]), "Corrupt", "file header CRC")
    require(dtype in DTYPES, "Corrupt", f"dtype {dtype}")
    shape = struct.unpack_from(f"<{dimensions}Q", data, FILE_FIXED)
    extents = [extent for extent in shape if extent != 0]
    require(math.prod(extents) < 1 << 32, "Limit", "too many elements")
    count = math.prod(shape)
    require(cut < max(count, 1), "Corrupt", f"parts of {cut} elements of {count}")
    spec = data[FILE_FIXED + 8 * dimensions : header_bytes - 4]
    require(all(0x20 <= byte <= 0x7E for byte in spec), "Corrupt", "codec spec is not ASCII")
    return FileHeader(shape, dtype, min_elements, spec, header_bytes, cut)


def parse_chunks(head: Head, number: int, begin: int) -> list[Chunk]:
    """Read the chunks of a segment; the first has this number and begins here."""
    chunks = []
    left = head.number(U32)
    require(left >= 1, "Corrupt", "a coded segment without chunks")
    while left > 0:
        size = head.number(U32)
        require(size >= 1, "Corrupt", "an empty chunk")
        chunks.append(Chunk(number, begin, begin + size, head.fixed(4)))
        number, begin, left = number + 1, begin + size, left - 1
    return chunks


def parse_segment(head: Head, number: int, position: int, version: int) -> Segment:
    """Check and read a segment whose first chunk has this number and begins at position."""
    tag = head.fixed(1)
    state, scalars = tag & 3, tag >> 2 & 3
    packed = version > 1 and tag == PARTS_BIT
    legal = state <= NOT_FINITE and scalars <= 2 and (tag < PARTS_BIT or packed)
    require(legal, "Corrupt", "a segment's first byte")
    require(state == CODED or tag == state, "Corrupt", "a bare segment with more than a state")
    part = head.number(U32)
    parts = head.number(U32) if packed else 1
    require(not packed or parts >= 2, "Corrupt", "a run of fewer than two parts")
    begin = head.number(U32) if tag & BEGIN_BIT else 0
    require(begin >= 1 or not tag & BEGIN_BIT, "Corrupt", "a begin of 0 that is written")
    count = head.number(U32)
    require(count >= parts, "Corrupt", "a segment with too few elements")
    require(begin + count <= U32, "Corrupt", "a segment beyond 2^32 - 1")
    if state != CODED:
        return Segment(state, part, begin, count, 0, (0, 0), [])
    codec_id = head.number(U16)
    require(codec_id >= 1, "Corrupt", "a codec of id 0")
    values = [head.fixed(4) for _ in range(scalars)]
    require(not values or values[-1] != 0, "Corrupt", "a last scalar of 0 that is written")
    first, second = (*values, 0, 0)[:2]
    chunks = parse_chunks(head, number, position)
    return Segment(state, part, begin, count, codec_id, (first, second), chunks, parts)


def parse_identity(head: Head, flags: int) -> dict[str, int]:
    """Check and read the fields between the hashes and the segments."""
    scale = ONE
    if flags & SCALE_FLAG:
        scale = head.fixed(4)
        require(0 < scale < INFINITY and scale != ONE, "Corrupt", "a scale that may not be written")
    limits = {"step": U64, "bucket": U16, "stage": U16, "seq": U32, "rank": U16, "world": U16}
    fields = {name: head.number(most) for name, most in limits.items()}
    require(fields["rank"] < fields["world"], "Corrupt", "rank not below world")
    return fields | {"scale": scale}


def parse_frame(data: bytes) -> Frame:
    """Check and read the frame at the beginning of data, in the order that the document gives."""
    require(len(data) >= FRAME_FIXED, "Truncated", "frame header")
    magic, version, flags, count, head_bytes, frame_bytes, crc, params_hash, layout_hash = (
        struct.unpack_from("<IBBHIIIII", data)
    )
    require(magic == FRAME_MAGIC, "Corrupt", "frame magic")
    require(version in FRAME_VERSIONS, "UnsupportedVersion", f"frame version {version}")
    require(head_bytes >= FRAME_FIXED, "Corrupt", "frame head_bytes")
    require(head_bytes <= len(data), "Truncated", "frame head")
    require(crc == crc32c(data[20:head_bytes], crc32c(data[:16])), "Corrupt", "frame head CRC")
    require(flags & ~SCALE_FLAG == 0, "Corrupt", "frame flags")
    require(count >= 1, "Corrupt", "a frame without segments")
    require(frame_bytes <= FRAME_LIMIT, "Limit", "frame_bytes beyond 2^28")
    head = Head(data[:head_bytes], FRAME_FIXED)
    identity = parse_identity(head, flags)
    segments: list[Segment] = []
    chunks, position = 0, 0
    for _ in range(count):
        segments.append(parse_segment(head, chunks, position, version))
        chunks += len(segments[-1].chunks)
        if segments[-1].chunks:
            position = segments[-1].chunks[-1].end
    require(head.at == head_bytes, "Corrupt", "bytes behind the last segment")
    require(position == frame_bytes - head_bytes, "Corrupt", "chunks that do not fill the payload")
    require(frame_bytes <= len(data), "Truncated", "frame payload")
    identity |= {"params_hash": params_hash, "layout_hash": layout_hash}
    return Frame(identity, segments, data[head_bytes:frame_bytes], frame_bytes, version)


@dataclass(frozen=True)
class Part:
    """A part of the tensor, with the number of its first element."""

    first: int
    count: int


def parts_of(header: FileHeader) -> list[Part]:
    """Give the parts that a file's messages hold, one each."""
    size = header.part_elements or header.count
    firsts = range(0, header.count, size) if header.count else ()
    return [Part(first, min(size, header.count - first)) for first in firsts]


def expected_identity(header: FileHeader, part: Part) -> dict[str, int]:
    """Give what each frame of a part must carry, apart from seq, in the order of comparison."""
    params = header.spec + b";min=%d" % header.min_elements
    name = b"tensor"
    layout = struct.pack("<I", len(name)) + name
    whole = header.shape or (1,)
    dims = (part.count,) if header.part_elements else whole
    layout += struct.pack("<QQB", part.first, part.count, header.dtype)
    layout += struct.pack("<QB", header.count, len(whole))
    layout += struct.pack(f"<{len(dims)}Q", *dims)
    return {
        "params_hash": xxh64(params) & U32,
        "world": 1,
        "rank": 0,
        "step": 0,
        "bucket": 0,
        "stage": 0,
        "layout_hash": xxh64(layout) & U32,
        "scale": ONE,
    }


def check_identity(frame: Frame, expected: dict[str, int]) -> None:
    """Check that a frame is the expected one."""
    for field, value in expected.items():
        require(frame.identity[field] == value, "Mismatch", f"another {field}")


def codec_due(due: Codec, dtype: int, segment: Segment, version: int) -> Codec:
    """Give the codec that a segment must have: the part's, or the one of its tensor's 16 bits."""
    if version > 1 and dtype in HALF_CODECS:
        half = CODECS[HALF_CODECS[dtype]]
        return half if segment.codec_id == half.codec_id else due
    return due


def parameters_due(given: dict[str, str], codec: Codec, dtype: int, version: int) -> dict[str, str]:
    """Give a segment's parameters: from version 3 on gcomp has a form for tensors of 16 bits, from
    version 4 on a lossless one."""
    has_form = codec.name == "gcomp" and version > (2 if given["lossless"] == "off" else 3)
    if has_form and dtype in HALF_CODECS and given["values"] == "fp32":
        return given | {"values": HALF_CODECS[dtype]}
    return given


def check_place(segment: Segment, position: int, count: int, codec: Codec) -> None:
    """Check that a segment continues the part at position, and may end where it does."""
    require(segment.parts == 1, "Corrupt", "a run of parts in a file")
    require(segment.part == 0, "Corrupt", "a part that the message does not have")
    require(segment.begin == position, "Corrupt", "a gap or overlap between segments")
    end = segment.begin + segment.count
    require(end <= count, "Corrupt", "a segment beyond its part")
    require(not segment.bare, "Corrupt", "a bare segment in a file")
    require(segment.codec_id == codec.codec_id, "Corrupt", "another codec than the policy says")
    if end < count:
        at_chunk = codec.chunk_elements and segment.count % codec.chunk_elements == 0
        require(bool(at_chunk), "Corrupt", "a cut inside a chunk")


def decode_segment(
    segment: Segment, payload: bytes, codec: Codec, given: dict[str, str]
) -> np.ndarray:
    """Check a segment's chunks and decode it."""
    bodies = [payload[chunk.begin : chunk.end] for chunk in segment.chunks]
    for chunk, body in zip(segment.chunks, bodies, strict=True):
        require(crc32c(body, chunk.number) == chunk.crc, "Corrupt", "chunk CRC")
    return decode_coded(codec, Coded(bodies, segment.count, segment.scalars, given))


def decode_frames(
    data: bytes, header: FileHeader, codec: Codec, given: dict[str, str]
) -> list[np.ndarray]:
    """Decode the messages that follow the file header, one for each part."""
    values: list[np.ndarray] = []
    at = header.header_bytes
    for part in parts_of(header):
        expected = expected_identity(header, part)
        part_codec = CODECS["fp32"] if part.count < header.min_elements else codec
        position, seq = 0, 0
        while position < part.count:
            frame = parse_frame(data[at:])
            check_identity(frame, expected | {"seq": seq})
            for segment in frame.segments:
                due = codec_due(part_codec, header.dtype, segment, frame.version)
                check_place(segment, position, part.count, due)
                known = parameters_due(given, due, header.dtype, frame.version)
                values.append(decode_segment(segment, frame.payload, due, known))
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


def rounded(values: np.ndarray, dtype: int) -> np.ndarray:
    """Round float32 values to a file's dtype; of bfloat16 NumPy has the bits alone, as `V2`."""
    if dtype == FLOAT32:
        return values
    bits = values.view("<u4").astype("<u8")
    magnitude = bits & 0x7FFFFFFF
    least, quiet = (0x7F7F8000, 0x7FC0) if dtype == BFLOAT16 else (0x477FF000, 0x7E00)
    beyond = (magnitude >= least) & (magnitude < INFINITY)
    require(not beyond.any(), "Range", "a value beyond the file's dtype")
    if dtype == BFLOAT16:
        narrow = (bits + 0x7FFF + (bits >> 16 & 1) >> 16).astype("<u2")
    else:
        narrow = values.astype("<f2").view("<u2")
    narrow = np.where(magnitude > INFINITY, bits >> 16 & 0x8000 | quiet, narrow).astype("<u2")
    return narrow.view("V2" if dtype == BFLOAT16 else "<f2")


def decode_file(data: bytes) -> np.ndarray:
    """Decode a `.dw` file to its tensor, or raise `DecodeError`."""
    header = parse_file_header(data)
    codec, given = codec_of_spec(header.spec)
    values = decode_frames(data, header, codec, given)
    whole = np.concatenate(values) if values else empty_tensor(header.shape)
    return rounded(np.ascontiguousarray(whole).reshape(-1), header.dtype).reshape(header.shape)
