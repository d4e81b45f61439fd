"""The decoder written from the documents, against the golden files and against broken ones."""

import random
import struct
from pathlib import Path

import numpy as np
import pytest
from spec_decoder import DecodeError, decode_file, parse_frame
from spec_hashes import crc32c, xxh64

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "files"
FILES = sorted(GOLDEN.glob("*.dw"))
SMALL_LIMIT = 2500
CODECS = {b"fp32": 1, b"bf16": 2, b"3lc": 3, b"sbc": 4, b"gcomp": 5, b"fastsgd": 6, b"int8": 7}
ONE = struct.unpack("<I", struct.pack("<f", 1.0))[0]


def spec_of(data: bytes) -> bytes:
    """Read the codec spec out of a good file."""
    at = 32 + 8 * data[11]
    return data[at : at + struct.unpack_from("<I", data, 24)[0]]


def small_files() -> list[Path]:
    """Give the smallest file with frames of each codec, and the largest below the limit."""
    chosen = []
    for codec in CODECS:
        found = []
        for path in FILES:
            data = path.read_bytes()
            has_frames = len(data) > struct.unpack_from("<I", data, 12)[0]
            if has_frames and len(data) <= SMALL_LIMIT and spec_of(data).startswith(codec):
                found.append((len(data), path))
        found.sort()
        chosen += [path for _, path in found[:1] + found[1:][-1:]]
    return chosen


SMALL = small_files()


# A builder of files, kept apart from the decoder's reading.


def file_header(spec: bytes, shape: tuple[int, ...], least: int = 0, dtype: int = 1) -> bytes:
    """Build the header of a file."""
    size = 32 + 8 * len(shape) + len(spec) + 4
    head = b"DWFILE\r\n" + struct.pack("<HBBIQII", 0, dtype, len(shape), size, least, len(spec), 0)
    head += struct.pack(f"<{len(shape)}Q", *shape) + spec
    return head + struct.pack("<I", crc32c(head))


def frame(
    spec: bytes,
    count: int,
    segments: list[tuple[int, int, int, int, list[bytes]]],
    **changed: int,
) -> bytes:
    """Build a frame; a segment is (part and raw bit, first, count, scalar, chunks)."""
    table, index, payload, number = b"", b"", b"", 0
    for word, first, size, scalar, chunks in segments:
        table += struct.pack("<IIII", word, first, size, scalar)
        for place, chunk in enumerate(chunks):
            payload += chunk
            last = (place == len(chunks) - 1) << 31
            index += struct.pack("<II", len(payload) | last, crc32c(chunk, number))
            number += 1
    header_bytes = 64 + len(table) + len(index)
    name = struct.pack("<I", 6) + b"tensor" + struct.pack("<QQB", 0, count, 1)
    fields = {
        "magic": 0x46575744,
        "version": 0,
        "flags": 0,
        "codec": CODECS[spec.partition(b":")[0]],
        "header_bytes": header_bytes,
        "frame_bytes": header_bytes + len(payload),
        "params_hash": xxh64(spec + b";min=%d" % changed.pop("least", 0)),
        "spec_hash": xxh64(name),
        "step": 0,
        "epoch": 0,
        "seq": 0,
        "rank": 0,
        "world": 1,
        "slice": 0,
        "segments": len(segments),
        "chunks": number,
    }
    assert changed.keys() <= fields.keys()
    head = struct.pack("<IBBHIIQQQIIHHHHI", *(fields | changed).values())
    head += struct.pack("<I", crc32c(head + table + index))
    return head + table + index + payload


def one_chunk(chunk: bytes, count: int, m: int = ONE, **changed: int) -> bytes:
    """Build a 3lc file of one chunk."""
    spec = b"3lc:s=1,mode=auto,runs=on"
    head = file_header(spec, (count,))
    return head + frame(spec, count, [(0, 0, count, m, [chunk])], **changed)


def rice(k: int, codes: list[str], nonzeros: int | None = None) -> bytes:
    """Build a chunk of mode 2 from codes written as strings of bits, first bit first."""
    bits = "".join(codes)
    bits += "0" * (-len(bits) % 8)
    stream = bytes(int(bits[at : at + 8][::-1], 2) for at in range(0, len(bits), 8))
    return struct.pack("<BBH", 2, k, len(codes) if nonzeros is None else nonzeros) + stream


def low_first(value: int, bits: int) -> str:
    """Write a number least significant bit first."""
    return "".join(str(value >> place & 1) for place in range(bits))


def refusal(data: bytes) -> str:
    """Give the kind of error with which a file is refused; fail if it isn't."""
    with pytest.raises(DecodeError) as caught:
        decode_file(data)
    return caught.value.kind


# Good files.


def test_golden_files_are_there() -> None:
    """Without golden files nothing below would be tested."""
    assert FILES, f"no golden files in {GOLDEN}"
    names = {spec_of(path.read_bytes())[:3] for path in SMALL}
    assert names == {codec[:3] for codec in CODECS}, "no small golden file for some codec"


def test_hashes() -> None:
    """The published check values."""
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"6789", crc32c(b"12345")) == 0xE3069283
    assert xxh64(b"") == 0xEF46DB3751D8E999
    assert xxh64(b"abc") == 0x44BC2CF5AD770999
    assert xxh64(b"Nobody inspects the spammish repetition") == 0xFBCEA83C8A378BF1


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_golden_file(path: Path) -> None:
    """Shape and bytes are as expected, NaN bits included."""
    expected = np.load(path.with_suffix(".npy"))
    decoded = decode_file(path.read_bytes())
    assert decoded.dtype == expected.dtype == np.dtype("<f4")
    assert decoded.shape == expected.shape
    assert decoded.tobytes() == expected.tobytes()


GOOD = {
    "mode 0": (bytes([0, 121 + 81]), 1, [1]),
    "mode 0, three elements in a row": (bytes([0, 81 * 2 + 9 + 3 + 1]), 3, [1, -1, 0]),
    "mode 0, two bytes": (bytes([0, 121 + 81, 121 - 27]), 8, [1, 0, 0, -1, 0, 0, 0, 0]),
    "mode 1, 15 zero bytes": (bytes([1, 255, 121]), 75, [0] * 75),
    "mode 1, 28 zero bytes": (bytes([1, 255, 255]), 140, [0] * 140),
    "mode 1, two zero bytes": (bytes([1, 243]), 10, [0] * 10),
    "mode 2, none": (rice(15, []), 4, [0] * 4),
    "mode 2": (rice(1, ["0" + "1" + "1", "10" + "0" + "0"]), 6, [0, -1, 0, 0, 1, 0]),
    "mode 2, escape": (rice(0, ["1" * 24 + low_first(24, 16) + "0"]), 25, [0] * 24 + [1]),
    "mode 2, longest code": (rice(0, ["1" * 23 + "0" + "1"]), 24, [0] * 23 + [-1]),
}


@pytest.mark.parametrize("name", GOOD)
def test_handmade(name: str) -> None:
    """Small files whose values follow from the documents by hand; the builder is right, too."""
    chunk, count, expected = GOOD[name]
    assert decode_file(one_chunk(chunk, count)).tobytes() == np.array(expected, "<f4").tobytes()


def test_cut_into_frames() -> None:
    """A part may be cut at any multiple of the chunk, into segments and into frames."""
    spec, count = b"3lc:s=1.75,mode=auto,runs=on", 3 * 40960 + 1
    chunks = [rice(15, ["0" + low_first(place, 15) + "0"]) for place in range(4)]
    chunks[3] = rice(15, [])
    segments = [(0, 40960 * i, min(40960, count - 40960 * i), ONE, [chunks[i]]) for i in range(4)]
    data = file_header(spec, (count, 1)) + frame(spec, count, segments[:2])
    data += frame(spec, count, [(0, 2 * 40960, 40961, ONE, chunks[2:])], seq=1)
    decoded = decode_file(data)
    assert decoded.shape == (count, 1)
    assert np.flatnonzero(decoded).tolist() == [0, 40961, 81922]


def test_raw() -> None:
    """Parts below min_elements are fp32, and only these."""
    spec, raw = b"3lc:s=1,mode=auto,runs=on", 1 << 31
    body = struct.pack("<f", 2.5)
    head = file_header(spec, (), least=2)
    assert decode_file(head + frame(spec, 1, [(raw, 0, 1, 0, [body])], least=2)) == 2.5
    assert refusal(head + frame(spec, 1, [(0, 0, 1, ONE, [b"\0\x79"])], least=2)) == "Corrupt"
    head = file_header(spec, (), least=1)
    assert refusal(head + frame(spec, 1, [(raw, 0, 1, 0, [body])], least=1)) == "Corrupt"


# Broken files.


@pytest.mark.parametrize("path", SMALL, ids=lambda path: path.stem)
def test_truncations(path: Path) -> None:
    """Every truncation is refused, as such."""
    data = path.read_bytes()
    assert {refusal(data[:size]) for size in range(len(data))} == {"Truncated"}


@pytest.mark.parametrize("path", SMALL, ids=lambda path: path.stem)
def test_bit_flips(path: Path) -> None:
    """A flipped bit anywhere is refused."""
    data = path.read_bytes()
    for number in range(200):
        broken = bytearray(data)
        broken[number * len(data) // 200] ^= 1 << number % 8
        refusal(bytes(broken))


@pytest.mark.parametrize("path", SMALL, ids=lambda path: path.stem)
def test_versions(path: Path) -> None:
    """Another version of file or frame is named as such, whatever else is wrong then."""
    data = bytearray(path.read_bytes())
    frame_at = struct.unpack_from("<I", data, 12)[0]
    for at in (8, frame_at + 4):
        broken = data.copy()
        broken[at] = 9
        assert refusal(bytes(broken)) == "UnsupportedVersion"


REFUSED = {
    "wrong pad digit": (bytes([0, 81 * 2 + 27 + 9 + 3 + 2]), 1, "Corrupt"),
    "wrong pad digit, mode 1": (bytes([1, 81 * 2 + 27 + 9 + 3]), 1, "Corrupt"),
    "byte above 242": (bytes([0, 243]), 5, "Corrupt"),
    "mode 0 too short": (bytes([0, 121]), 6, "Truncated"),
    "mode 0 too long": (bytes([0, 121, 121]), 5, "Corrupt"),
    "split run of single bytes": (bytes([1, 121, 121]), 10, "Corrupt"),
    "split run of short codes": (bytes([1, 243, 243]), 20, "Corrupt"),
    "split run, long code last": (bytes([1, 121, 255]), 75, "Corrupt"),
    "run past the rows": (bytes([1, 244]), 10, "Corrupt"),
    "mode 1 too short": (bytes([1, 255]), 75, "Truncated"),
    "mode 1 too long": (bytes([1, 243, 122]), 10, "Corrupt"),
    "escape with a shorter code": (rice(0, ["1" * 24 + low_first(23, 16) + "0"]), 30, "Corrupt"),
    "Rice padding": (rice(0, ["00000001"], nonzeros=1), 5, "Corrupt"),
    "byte after the last sign": (rice(0, ["00"]) + b"\0", 5, "Corrupt"),
    "byte without digits": (rice(0, []) + b"\0", 5, "Corrupt"),
    "position beyond the chunk": (rice(0, ["11111" + "0" + "0"]), 5, "Corrupt"),
    "k above 15": (rice(16, []), 5, "Corrupt"),
    "more digits than elements": (rice(0, ["00"] * 2), 1, "Corrupt"),
    "stream too short": (rice(0, ["00"] * 4, nonzeros=5), 5, "Truncated"),
    "mode 2 too short": (bytes([2, 0, 0]), 5, "Truncated"),
    "unknown mode": (bytes([3, 121]), 5, "Corrupt"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_chunk(name: str) -> None:
    """Chunks that break a rule of 3lc, in files whose checksums are right."""
    chunk, count, kind = REFUSED[name]
    assert refusal(one_chunk(chunk, count)) == kind


def test_refused_scalar() -> None:
    """m must be finite and not negative, and 0 goes with digits of 0 alone."""
    assert decode_file(one_chunk(b"\0\x79", 5, m=0)).tobytes() == bytes(20)
    for chunk in (bytes([0, 122]), bytes([1, 122]), rice(0, ["00"])):
        assert refusal(one_chunk(chunk, 5, m=0)) == "Corrupt"
    for m in (0x7FC00000, 0x7F800000, 0x80000000, 0xBF800000):
        assert refusal(one_chunk(b"\0\x79", 5, m=m)) == "Corrupt"


@pytest.mark.parametrize(
    ("field", "value", "kind"),
    [
        ("flags", 1, "Corrupt"),
        ("codec", 1, "Mismatch"),
        ("header_bytes", 89, "Corrupt"),
        ("frame_bytes", (1 << 28) + 1, "Limit"),
        ("frame_bytes", 89, "Corrupt"),
        ("params_hash", 1, "Mismatch"),
        ("spec_hash", 1, "Mismatch"),
        ("step", 1, "Mismatch"),
        ("epoch", 1, "Mismatch"),
        ("seq", 1, "Mismatch"),
        ("rank", 1, "Corrupt"),
        ("world", 0, "Corrupt"),
        ("world", 2, "Mismatch"),
        ("slice", 1, "Mismatch"),
    ],
)
def test_refused_frame(field: str, value: int, kind: str) -> None:
    """Frames with one wrong field and a right checksum."""
    assert refusal(one_chunk(b"\0\x79", 5, **{field: value})) == kind


def test_refused_message() -> None:
    """Bytes after the part, a missing rest, gaps and cuts inside a chunk."""
    spec, chunk = b"fp32", [bytes(4)]
    head = file_header(spec, (2,))
    halves = [(0, 0, 1, 0, chunk), (0, 1, 1, 0, chunk)]
    assert refusal(head + frame(spec, 2, halves)) == "Corrupt"
    assert refusal(head + frame(spec, 2, halves[1:])) == "Corrupt"
    assert refusal(head + frame(spec, 2, [(1, 0, 2, 0, [bytes(8)])])) == "Corrupt"
    assert refusal(head + frame(spec, 2, [(0, 0, 2, 1, [bytes(8)])])) == "Corrupt"
    assert refusal(head + frame(spec, 2, [(0, 0, 2, 0, [bytes(7)])])) == "Truncated"
    assert refusal(head + frame(spec, 2, [(0, 0, 2, 0, [bytes(9)])])) == "Corrupt"
    assert refusal(head + frame(spec, 2, [(0, 0, 2, 0, [bytes(4)] * 2)])) == "Corrupt"
    assert refusal(head) == "Truncated"
    assert refusal(head + frame(spec, 2, [(0, 0, 2, 0, [bytes(8)])]) + b"\0") == "Corrupt"
    assert refusal(file_header(spec, (0,)) + b"\0") == "Corrupt"
    assert refusal(file_header(spec, (1 << 16, 1 << 16))) == "Limit"
    assert refusal(file_header(spec, (1 << 31,))) == "Truncated"
    assert refusal(file_header(spec, (1,) * 9)) == "Limit"
    assert refusal(file_header(spec, (1,), dtype=4)) == "Corrupt"


def test_bare_segments() -> None:
    """A bare segment is a legal one of a frame, but not of a file."""
    spec, bare = b"3lc:s=1,mode=auto,runs=on", 1 << 30
    head = file_header(spec, (5,))
    coded = (0, 0, 5, ONE, [b"\0\x79"])
    for state in (0, 1):
        segments = parse_frame(frame(spec, 5, [(bare, 0, 5, state, [])])).segments
        assert [(s.bare, s.raw, s.part, s.scalar) for s in segments] == [(True, False, 0, state)]
        both = parse_frame(frame(spec, 5, [(bare | 1, 0, 5, state, []), coded]))
        assert [s.part for s in both.segments] == [1, 0]
        assert [len(run) for run in both.runs] == [0, 1]
        assert refusal(head + frame(spec, 5, [(bare, 0, 5, state, [])])) == "Corrupt"
    for segments in [
        [(bare, 0, 5, 2, [])],
        [(bare | 1 << 31, 0, 5, 0, [])],
        [(bare, 0, 5, 0, [b"\0\x79"])],
        [(0, 0, 5, ONE, [])],
        [(bare, 0, 0, 0, [])],
        [],
    ]:
        with pytest.raises(DecodeError) as caught:
            parse_frame(frame(spec, 5, segments))
        assert caught.value.kind == "Corrupt"


def test_random_chunks() -> None:
    """Random bytes with right checksums give a value or a `DecodeError`, nothing else."""
    source = random.Random(7)
    decoded = 0
    for _ in range(400):
        chunk = bytes([source.randrange(4)]) + source.randbytes(source.randrange(12))
        try:
            decoded += decode_file(one_chunk(chunk, source.randrange(1, 400))).size > 0
        except DecodeError:
            continue
    assert decoded > 0
