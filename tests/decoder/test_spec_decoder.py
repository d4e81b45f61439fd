"""The decoder written from the documents, against the golden files and against broken ones."""

import random
import struct
from pathlib import Path

import numpy as np
import pytest
from file_writing import bare, coded, file_header, frame
from spec_decoder import DecodeError, decode_file, parse_frame
from spec_hashes import crc32c, xxh64

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "files"
FILES = sorted(GOLDEN.glob("*.dw"))
SMALL_LIMIT = 2500
NAMES = (b"fp32", b"bf16", b"3lc", b"sbc", b"gcomp", b"fastsgd", b"int8", b"randomk")
CODECS = {name: number for number, name in enumerate(NAMES, 1)}
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


def one_chunk(chunk: bytes, count: int, m: int = ONE, **changed: int) -> bytes:
    """Build a 3lc file of one chunk."""
    spec = b"3lc:s=1,mode=auto,runs=on"
    head = file_header(spec, (count,))
    return head + frame(spec, count, [coded(0, count, [chunk], (m,) if m else ())], **changed)


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
    sizes = [min(40960, count - 40960 * i) for i in range(4)]
    segments = [coded(40960 * i, sizes[i], [chunks[i]], (ONE,)) for i in range(4)]
    data = file_header(spec, (count, 1)) + frame(spec, count, segments[:2])
    data += frame(spec, count, [coded(2 * 40960, 40961, chunks[2:], (ONE,))], seq=1)
    decoded = decode_file(data)
    assert decoded.shape == (count, 1)
    assert np.flatnonzero(decoded).tolist() == [0, 40961, 81922]


def test_raw() -> None:
    """Parts below min_elements are fp32, and only these."""
    spec = b"3lc:s=1,mode=auto,runs=on"
    raw = [coded(0, 1, [struct.pack("<f", 2.5)], codec=1)]
    other = [coded(0, 1, [b"\0\x79"], (ONE,))]
    head = file_header(spec, (), least=2)
    assert decode_file(head + frame(spec, 1, raw, least=2)) == 2.5
    assert refusal(head + frame(spec, 1, other, least=2)) == "Corrupt"
    head = file_header(spec, (), least=1)
    assert decode_file(head + frame(spec, 1, other, least=1)) == 0
    assert refusal(head + frame(spec, 1, raw, least=1)) == "Corrupt"


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
        ("flags", 4, "Corrupt"),
        ("segments", 0, "Corrupt"),
        ("segments", 2, "Corrupt"),
        ("head_bytes", 27, "Corrupt"),
        ("head_bytes", 50, "Corrupt"),
        ("head_bytes", 1000, "Truncated"),
        ("frame_bytes", (1 << 28) + 1, "Limit"),
        ("frame_bytes", 52, "Corrupt"),
        ("params_hash", 1, "Mismatch"),
        ("layout_hash", 1, "Mismatch"),
        ("step", 1, "Mismatch"),
        ("step", 1 << 64, "Corrupt"),
        ("bucket", 1, "Mismatch"),
        ("bucket", 1 << 16, "Corrupt"),
        ("stage", 1, "Mismatch"),
        ("scale", 0x40000000, "Mismatch"),
        ("scale", ONE, "Corrupt"),
        ("scale", 0, "Corrupt"),
        ("scale", 0x7F800000, "Corrupt"),
        ("seq", 1, "Mismatch"),
        ("rank", 1, "Corrupt"),
        ("world", 0, "Corrupt"),
        ("world", 2, "Mismatch"),
    ],
)
def test_refused_frame(field: str, value: int, kind: str) -> None:
    """Frames with one wrong field and a right checksum."""
    assert refusal(one_chunk(b"\0\x79", 5, **{field: value})) == kind


def test_refused_message() -> None:
    """Bytes after the part, a missing rest, gaps, cuts inside a chunk, another codec's words."""
    spec, body = b"fp32", [bytes(8)]
    head = file_header(spec, (2,))
    halves = [coded(0, 1, [bytes(4)], codec=1), coded(1, 1, [bytes(4)], codec=1)]
    assert refusal(head + frame(spec, 2, halves)) == "Corrupt"
    assert refusal(head + frame(spec, 2, halves[1:])) == "Corrupt"
    assert refusal(head + frame(spec, 2, [coded(0, 2, body, codec=1, part=1)])) == "Corrupt"
    assert refusal(head + frame(spec, 2, [coded(0, 2, body, codec=2)])) == "Corrupt"
    assert refusal(head + frame(spec, 2, [coded(0, 2, body, (1,), codec=1)])) == "Corrupt"
    assert refusal(head + frame(spec, 2, [coded(0, 2, body, (0, 1), codec=1)])) == "Corrupt"
    assert refusal(head + frame(spec, 2, [coded(0, 2, [bytes(7)], codec=1)])) == "Truncated"
    assert refusal(head + frame(spec, 2, [coded(0, 2, [bytes(9)], codec=1)])) == "Corrupt"
    assert refusal(head + frame(spec, 2, [coded(0, 2, [bytes(4)] * 2, codec=1)])) == "Corrupt"
    assert refusal(head) == "Truncated"
    good = head + frame(spec, 2, [coded(0, 2, body, codec=1)])
    assert decode_file(good).tobytes() == bytes(8)
    assert refusal(good + b"\0") == "Corrupt"
    assert refusal(file_header(spec, (0,)) + b"\0") == "Corrupt"
    assert refusal(file_header(spec, (1 << 16, 1 << 16))) == "Limit"
    assert refusal(file_header(spec, (1 << 31,))) == "Truncated"
    assert refusal(file_header(spec, (1,) * 9)) == "Limit"
    assert refusal(file_header(spec, (1,), dtype=4)) == "Corrupt"


def test_bare_segments() -> None:
    """A bare segment is a legal one of a frame, but not of a file."""
    spec = b"3lc:s=1,mode=auto,runs=on"
    head = file_header(spec, (5,))
    segment = coded(0, 5, [b"\0\x79"], (ONE,))
    for state in (1, 2):
        segments = parse_frame(frame(spec, 5, [bare(state, 5)])).segments
        assert [(s.bare, s.state, s.part, s.count) for s in segments] == [(True, state, 0, 5)]
        both = parse_frame(frame(spec, 5, [bare(state, 5, part=1), segment]))
        assert [s.part for s in both.segments] == [1, 0]
        assert [len(s.chunks) for s in both.segments] == [0, 1]
        assert refusal(head + frame(spec, 5, [bare(state, 5)])) == "Corrupt"


CODED = coded(0, 5, [b"\0\x79"], (ONE,))[0]


@pytest.mark.parametrize(
    "segments",
    [
        [bare(3, 5)],
        [bare(1 | 4, 5)],
        [bare(1 | 16, 5)],
        [(bare(1, 5)[0], [b"\0\x79"])],
        [bare(1, 0)],
        [(CODED + b"\0", [])],
        [coded(0, 5, [b"\0\x79"], (0,))],
        [coded(0, 5, [b"\0\x79"], (ONE, 0))],
        [coded(0, 5, [b"\0\x79"], (1, 1, 1))],
        [coded(0, 5, [b"\0\x79"], codec=0)],
        [coded(0, 5, [b"\0\x79"], codec=1 << 16)],
        [coded(0, 5, [b""])],
        [coded(0, 0, [b"\0\x79"])],
        [coded((1 << 32) - 5, 5, [b"\0\x79"])],
        [coded(0, 5, [b"\0\x79"], part=1 << 32)],
        [(bytes([32]) + CODED[1:], [b"\0\x79"])],
        [(b"\x10\0\0\x05\x03", [b"\0\x79"])],  # a begin of 0
        [(b"\0\x80\0\x05\x03", [b"\0\x79"])],  # part 0 in two bytes
        [],
    ],
)
def test_refused_segments(segments: list[tuple[bytes, list[bytes]]]) -> None:
    """Segments that break a rule, behind a good checksum."""
    with pytest.raises(DecodeError) as caught:
        parse_frame(frame(b"3lc:s=1,mode=auto,runs=on", 5, segments))
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
