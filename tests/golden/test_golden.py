"""Today's encoder makes the golden bytes, today's decoder the golden values: here too.

Of a codec whose bytes are those of a library's version the values alone count, there and back.
"""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from spec_decoder import parse_file_header

sys.path.insert(0, str(Path(__file__).parent))
from cases import INPUTS, cases  # noqa: E402
from update import FOLDER, decode, encode  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
BINARY = os.environ.get("DELTAWIRE_BIN", str(ROOT / "build" / "release" / "deltawire"))
FILES = sorted(FOLDER.glob("*.dw"))
FOLLOW_LIBRARY = {case.stem for case in cases(BINARY) if case.follows_library}


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_bytes_and_values(path: Path) -> None:
    golden = path.read_bytes()
    header = parse_file_header(golden)
    values = INPUTS[path.stem.split(".")[-2]]()
    again = encode(BINARY, header.spec.decode(), values, header.min_elements)
    decoded = decode(BINARY, golden)
    if path.stem in FOLLOW_LIBRARY:
        assert decode(BINARY, again).tobytes() == decoded.tobytes()
    else:
        assert again == golden
    expected = np.load(path.with_suffix(".npz"))["values"]
    assert decoded.shape == expected.shape == values.shape
    assert decoded.tobytes() == expected.tobytes()


def test_every_codec_has_its_files_and_no_file_is_left_over() -> None:
    wanted = {f"{case.stem}{suffix}" for case in cases(BINARY) for suffix in (".dw", ".npz")}
    assert {path.name for path in FOLDER.iterdir()} == wanted
