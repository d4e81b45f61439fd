"""A builder of files and frames, good and bad ones, kept apart from the decoder's reading."""

import struct

from spec_hashes import crc32c, xxh64


def file_header(spec: bytes, shape: tuple[int, ...], least: int = 0, dtype: int = 1) -> bytes:
    size = 32 + 8 * len(shape) + len(spec) + 4
    head = b"DWFILE\r\n" + struct.pack("<HBBIQII", 1, dtype, len(shape), size, least, len(spec), 0)
    head += struct.pack(f"<{len(shape)}Q", *shape) + spec
    return head + struct.pack("<I", crc32c(head))


def number(value: int) -> bytes:
    """Write a number, 7 bits a byte."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def coded(
    begin: int,
    count: int,
    chunks: list[bytes],
    scalars: tuple[int, ...] = (),
    codec: int = 3,
    part: int = 0,
) -> tuple[bytes, list[bytes]]:
    """Build a coded segment; its chunks' checksums are left to `frame`."""
    tag = len(scalars) << 2 | (16 if begin else 0)
    table = bytes([tag]) + number(part) + (number(begin) if begin else b"") + number(count)
    return table + number(codec) + b"".join(struct.pack("<I", s) for s in scalars), chunks


def bare(state: int, count: int, part: int = 0) -> tuple[bytes, list[bytes]]:
    """Build a segment without chunks."""
    return bytes([state]) + number(part) + number(count), []


def frame(
    spec: bytes, count: int, parts: list[tuple[bytes, list[bytes]]], /, **changed: int
) -> bytes:
    """Build a frame of segments from `coded` and `bare`."""
    table, payload, chunks_so_far = b"", b"", 0
    for start, chunks in parts:
        table += start + (number(len(chunks)) if chunks else b"")
        for chunk in chunks:
            payload += chunk
            table += number(len(chunk)) + struct.pack("<I", crc32c(chunk, chunks_so_far))
            chunks_so_far += 1
    name = struct.pack("<I", 6) + b"tensor" + struct.pack("<QQBQBQ", 0, count, 1, count, 1, count)
    low = (1 << 32) - 1
    params = xxh64(spec + b";min=%d" % changed.pop("least", 0)) & low
    numbers = {"step": 0, "bucket": 0, "stage": 0, "seq": 0, "rank": 0, "world": 1}
    scale = struct.pack("<I", changed.pop("scale")) if "scale" in changed else b""
    written = b"".join(number(changed.pop(key, value)) for key, value in numbers.items())
    head = scale + written + table
    fields = {
        "magic": 0x46575744,
        "version": 1,
        "flags": 2 if scale else 0,
        "segments": len(parts),
        "head_bytes": 28 + len(head),
        "frame_bytes": 28 + len(head) + len(payload),
    }
    hashes = {"params_hash": params, "layout_hash": xxh64(name) & low}
    assert changed.keys() <= fields.keys() | hashes.keys()
    start = struct.pack("<IBBHII", *(changed.get(key, value) for key, value in fields.items()))
    head = struct.pack("<II", *(changed.get(key, hashes[key]) for key in hashes)) + head
    return start + struct.pack("<I", crc32c(start + head)) + head + payload
