"""Today's encoder makes the golden bytes, today's decoder the golden values: here too."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from cases import CASES, INPUTS  # noqa: E402
from update import FOLDER, decode, encode  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
BINARY = os.environ.get("DELTAWIRE_BIN", str(ROOT / "build" / "release" / "deltawire"))


@pytest.mark.parametrize("stem,spec,name,least", CASES, ids=[case[0] for case in CASES])
def test_bytes_and_values(stem: str, spec: str, name: str, least: int) -> None:
    golden = (FOLDER / f"{stem}.dw").read_bytes()
    assert encode(BINARY, spec, INPUTS[name](), least) == golden
    values = decode(BINARY, golden)
    expected = np.load(FOLDER / f"{stem}.npy")
    assert values.shape == expected.shape == INPUTS[name]().shape
    assert values.tobytes() == expected.tobytes()


def test_no_file_is_left_over() -> None:
    stems = {path.stem for path in FOLDER.iterdir()}
    assert stems == {case[0] for case in CASES}
