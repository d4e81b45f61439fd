"""The decoder written from the documents, against the golden files and against broken ones."""

import re
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from file_writing import bare, coded, file_header, frame
from refusals import raised
from spec_codecs import BASELINES, CODECS
from spec_decoder import DecodeError, decode_file, parse_frame
from spec_hashes import crc32c, xxh64

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "files"
FILES = sorted(p for p in GOLDEN.glob("*.dw") if re.split("[._]", p.name)[0] not in BASELINES)
ARCHIVES = sorted((GOLDEN.parent / "archives").glob("*.dwz"))
SMALL_LIMIT = 2500
ONE = struct.unpack("<I", struct.pack("<f", 1.0))[0]


def name_of(data: bytes) -> str:
    """Read the codec's name out of a good file."""
    at = 32 + 8 * data[11]
    spec = data[at : at + struct.unpack_from("<I", data, 24)[0]]
    return spec.decode().partition(":")[0]


BY_CODEC: dict[str, list[Path]] = {}
for _path in FILES:
    BY_CODEC.setdefault(name_of(_path.read_bytes()), []).append(_path)


def small_files() -> list[Path]:
    """Give the smallest file with frames of each codec, and the largest below the limit."""
    chosen = []
    for paths in BY_CODEC.values():
        found = []
        for path in paths:
            data = path.read_bytes()
            if struct.unpack_from("<I", data, 12)[0] < len(data) <= SMALL_LIMIT:
                found.append((len(data), path))
        found.sort()
        chosen += [path for _, path in found[:1] + found[1:][-1:]]
    return chosen


SMALL = small_files()


def refusal(data: bytes) -> str:
    """Give the kind of error with which a file is refused; fail if it isn't."""
    return raised(DecodeError, decode_file, data).kind


# Good files.


def test_golden_files_are_there() -> None:
    """Without golden files nothing below would be tested."""
    assert FILES and ARCHIVES, f"no golden files in {GOLDEN}"
    names = {name_of(path.read_bytes()) for path in SMALL}
    assert names == CODECS.keys() == BY_CODEC.keys(), "no small golden file for some codec"


def test_hashes() -> None:
    """The published check values."""
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"6789", crc32c(b"12345")) == 0xE3069283
    assert xxh64(b"") == 0xEF46DB3751D8E999
    assert xxh64(b"abc") == 0x44BC2CF5AD770999
    assert xxh64(b"Nobody inspects the spammish repetition") == 0xFBCEA83C8A378BF1


@pytest.mark.parametrize("codec", BY_CODEC)
def test_golden_files(codec: str) -> None:
    """Shape and bytes are as expected, NaN bits included."""
    for path in BY_CODEC[codec]:
        print(path.stem)
        expected = np.load(path.with_suffix(".npz"))["values"]
        decoded = decode_file(path.read_bytes())
        dtypes = {1: "<f4", 2: "V2", 3: "<f2"}
        assert decoded.dtype == expected.dtype == np.dtype(dtypes[path.read_bytes()[10]])
        assert decoded.shape == expected.shape
        assert decoded.tobytes() == expected.tobytes()


@pytest.mark.parametrize("path", ARCHIVES, ids=lambda path: path.stem)
def test_golden_archive(path: Path) -> None:
    """An uncompressed zip of .dw files, one for each array."""
    with zipfile.ZipFile(path) as archive, np.load(path.with_suffix(".npz")) as expected:
        assert archive.namelist() == [f"{name}.dw" for name in expected]
        for name in expected:
            decoded = decode_file(archive.read(f"{name}.dw"))
            assert decoded.dtype == expected[name].dtype
            assert decoded.shape == expected[name].shape
            assert decoded.tobytes() == expected[name].tobytes()


def test_cut_into_frames() -> None:
    """A part may be cut at any multiple of the chunk, into segments and into frames."""
    spec, count = b"int8", 3 * 65536 + 1
    chunks = [b"\1" + bytes(min(65536, count - 65536 * i) - 1) for i in range(4)]
    cut = [coded(65536 * i, 65536, [chunks[i]], (ONE,), codec=7) for i in range(2)]
    rest = coded(2 * 65536, 65537, chunks[2:], (ONE,), codec=7)
    data = file_header(spec, (count,)) + frame(spec, count, cut)
    decoded = decode_file(data + frame(spec, count, [rest], seq=1))
    assert decoded.shape == (count,)
    assert np.flatnonzero(decoded).tolist() == [0, 65536, 131072, 196608]


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
    """Every truncation is refused, as such; of long files, which take long, a few hundred."""
    data = path.read_bytes()
    sizes = range(0, len(data), 1 + len(data) // 500)
    assert {refusal(data[:size]) for size in sizes} == {"Truncated"}


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
    for at, versions in ((8, (0, 2, 9)), (frame_at + 4, (0, 5, 9))):
        for version in versions:
            broken = data.copy()
            broken[at] = version
            assert refusal(bytes(broken)) == "UnsupportedVersion"


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
    caught = raised(DecodeError, parse_frame, frame(b"3lc:s=1,mode=auto,runs=on", 5, segments))
    assert caught.kind == "Corrupt"
