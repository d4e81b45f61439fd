"""The decoder written from the documents, on the golden messages of two steps."""

import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from refusals import raised
from spec_codecs import BASELINES, CODECS
from spec_decoder import parse_file_header, parse_frame
from spec_hashes import DecodeError, crc32c
from spec_message import Expected, decode_message

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
LEAST = 8
TENSORS = {"w": (10, 100), "b": (5,), "none": (0, 3), "v": (300,)}
MANY = {"a": (5,), "none": (0, 3), "b": (2, 3), "c": (3,), "w": (20, 20), "d": (7,), "e": ()}
FLOAT16 = 3
HALVES = dict.fromkeys("cwde", FLOAT16)
RULES = {"w": b"topk:k=0.1,values=bf16,positions=golomb", "v": b"sbc:p=0.1"}
RULES_TEXT = (
    b"w: topk:k=0.1,values=bf16,positions=golomb, v: sbc:p=0.1 with momentum=0.9, rest int8"
)
OF_RULES, OF_VERSION_2 = "rules", {"runs": "int8", "halves": "fp32"}
MESSAGES = (GOLDEN / "messages").glob("*.message")
PATHS = sorted(p for p in MESSAGES if p.name.partition(".")[0] not in BASELINES)


def canonical(codec: str) -> bytes:
    """A codec's canonical spec, as a file says it."""
    return parse_file_header((GOLDEN / "files" / f"{codec}.paper.min0.dw").read_bytes()).spec


def expected_of(stem: str, step: int) -> Expected:
    """What a receiver of a golden message knows."""
    tensors, text = TENSORS, RULES_TEXT
    if stem in OF_VERSION_2:
        tensors, text = MANY, canonical(OF_VERSION_2[stem])
    elif stem != OF_RULES:
        text = canonical(stem)
    specs = RULES if stem == OF_RULES else dict.fromkeys(tensors, text)
    (scale,) = struct.unpack("<I", struct.pack("<f", 1.0 if step == 300 else 8.0))
    place = {"world": 5, "rank": 2, "step": step, "bucket": 0, "stage": 0, "scale": scale}
    dtypes = HALVES if stem == "halves" else {}
    return Expected(tensors, specs, text + b";min=%d" % LEAST, place, LEAST, dtypes)


def test_golden_messages_are_there() -> None:
    """Of each frozen codec, of rules and of each kind of version 2, two steps: without them nothing
    below would be tested."""
    assert len(PATHS) == 2 * (len(CODECS) + 1 + len(OF_VERSION_2))


@pytest.mark.parametrize("path", PATHS, ids=[path.stem for path in PATHS])
def test_golden_message(path: Path) -> None:
    """Its values are as expected; each other step, rank, scale and layout is a mismatch."""
    stem, step = path.stem.rsplit(".", 1)
    values = np.load(path.with_name(f"{stem}.npz"))
    expected = expected_of(stem, int(step))
    decoded = decode_message(path.read_bytes(), expected)
    for name in expected.tensors:
        wanted = values[f"{name}.{step}"].astype(np.float32)
        assert decoded[name].tobytes() == wanted.tobytes(), name
    for changed in (
        replace(expected, identity=expected.identity | {"rank": 1}),
        replace(expected, identity=expected.identity | {"scale": 1}),
        replace(expected, params=expected.params + b"0"),
        replace(expected, tensors=expected.tensors | {"none": (0, 4)}),
        replace(expected, dtypes=expected.dtypes | {"none": 2}),
    ):
        assert raised(DecodeError, decode_message, path.read_bytes(), changed).kind == "Mismatch"


def test_some_have_bare_segments() -> None:
    """What a step keeps for later travels without a payload."""
    sizes = {path.stem: path.stat().st_size for path in PATHS}
    assert sizes["fp32.301"] > 4000 > 4 * sizes["3lc.301"]


def segments(stem: str) -> list[tuple[int, int, int]]:
    """(parts, count, codec) of each segment of a message, which is one frame of version 2."""
    frame = parse_frame((GOLDEN / "messages" / f"{stem}.message").read_bytes())
    assert frame.version == 2
    return [(each.parts, each.count, each.codec_id) for each in frame.segments]


def test_raw_tensors_share_segments() -> None:
    """docs/reference/format.md, section 10: by turns of dtype, and around the one that is coded."""
    fp32, int8, fp16 = 1, 7, 17
    assert segments("runs.300") == [(3, 14, fp32), (1, 400, int8), (2, 8, fp32)]
    assert segments("halves.300") == [(2, 11, fp32), (1, 3, fp16), (1, 400, fp16), (2, 8, fp16)]


def spoilt(stem: str, at: int, value: int) -> bytes:
    """A message with another byte in its head, from the first segment on, behind a good CRC."""
    data = bytearray((GOLDEN / "messages" / f"{stem}.message").read_bytes())
    head = int.from_bytes(data[8:12], "little")
    begin = data.index(bytes([32, 0]), 28)
    data[begin + at] = value
    data[16:20] = crc32c(bytes(data[20:head]), crc32c(bytes(data[:16]))).to_bytes(4, "little")
    return bytes(data)


@pytest.mark.parametrize(
    ("at", "value"),
    [(0, 33), (0, 96), (1, 1), (2, 1), (2, 2), (2, 4), (3, 13), (3, 15), (4, 2), (4, 7)],
)
def test_a_run_that_breaks_a_rule_is_refused(at: int, value: int) -> None:
    """The first byte, the first part, parts, count, codec."""
    with pytest.raises(DecodeError) as caught:
        decode_message(spoilt("runs.300", at, value), expected_of("runs", 300))
    assert caught.value.kind == "Corrupt"


def test_version_1_has_no_runs_and_no_16_bits() -> None:
    """The same segments are corrupt where the frame says version 1."""
    for stem in OF_VERSION_2:
        data = bytearray((GOLDEN / "messages" / f"{stem}.300.message").read_bytes())
        head = int.from_bytes(data[8:12], "little")
        data[4] = 1
        data[16:20] = crc32c(bytes(data[20:head]), crc32c(bytes(data[:16]))).to_bytes(4, "little")
        caught = raised(DecodeError, decode_message, bytes(data), expected_of(stem, 300))
        assert caught.kind == "Corrupt"
