"""The decoder written from the documents, on the golden messages of two steps."""

import struct
from pathlib import Path

import numpy as np
import pytest
from spec_decoder import parse_file_header
from spec_hashes import DecodeError
from spec_message import Expected, decode_message

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
LEAST = 8
TENSORS = {"w": (10, 100), "b": (5,), "none": (0, 3), "v": (300,)}
RULES = {
    "w": b"topk:k=0.1,values=bf16,positions=golomb",
    "v": b"sbc:p=0.1",
}
RULES_TEXT = (
    b"w: topk:k=0.1,values=bf16,positions=golomb, v: sbc:p=0.1 with momentum=0.9, rest int8"
)
PATHS = sorted((GOLDEN / "messages").glob("*.message"))


def expected_of(stem: str, step: int) -> Expected:
    """What a receiver of a golden message knows."""
    if stem == "rules":
        specs, text = RULES, RULES_TEXT
    else:
        text = parse_file_header((GOLDEN / "files" / f"{stem}.paper.min0.dw").read_bytes()).spec
        specs = dict.fromkeys(TENSORS, text)
    (scale,) = struct.unpack("<I", struct.pack("<f", 1.0 if step == 300 else 8.0))
    place = {"world": 5, "rank": 2, "step": step, "bucket": 0, "stage": 0, "scale": scale}
    return Expected(TENSORS, specs, text + b";min=%d" % LEAST, place)


def test_golden_messages_are_there() -> None:
    """Of each codec and of rules, two steps: without them nothing below would be tested."""
    codecs = list(ROOT.glob("src/codecs/**/spec.md"))
    assert len(PATHS) == 2 * (len(codecs) + 1)


@pytest.mark.parametrize("path", PATHS, ids=[path.stem for path in PATHS])
def test_golden_message(path: Path) -> None:
    """Its values are as expected; each other step, rank, scale and layout is a mismatch."""
    stem, step = path.stem.rsplit(".", 1)
    values = np.load(path.with_name(f"{stem}.npz"))
    expected = expected_of(stem, int(step))
    decoded = decode_message(path.read_bytes(), expected, LEAST)
    for name in TENSORS:
        assert decoded[name].tobytes() == values[f"{name}.{step}"].tobytes(), name
    for changed in (
        Expected(TENSORS, expected.specs, expected.params, expected.identity | {"rank": 1}),
        Expected(TENSORS, expected.specs, expected.params, expected.identity | {"scale": 1}),
        Expected(TENSORS, expected.specs, expected.params + b"0", expected.identity),
        Expected(TENSORS | {"v": (30, 10)}, expected.specs, expected.params, expected.identity),
    ):
        with pytest.raises(DecodeError) as caught:
            decode_message(path.read_bytes(), changed, LEAST)
        assert caught.value.kind == "Mismatch"


def test_some_have_bare_segments() -> None:
    """What a step keeps for later travels without a payload."""
    sizes = {path.stem: path.stat().st_size for path in PATHS}
    assert sizes["fp32.301"] > 4000 > 4 * sizes["3lc.301"]
