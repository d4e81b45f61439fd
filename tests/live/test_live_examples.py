"""examples/weights/*_live.py: what they print; they compare all weights themselves."""

import re
from pathlib import Path

import pytest
from programs import output_of

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "weights"
EXPECTED = {
    "vllm_live.py": {"a server at version 3, which read #,### bytes from the trainer": 2}
    | {"a server at version 3, which read #,### bytes from a server": 2},
    "verl_live.py": {"a rollout at version 2, which read #,### bytes": 2},
}


@pytest.mark.parametrize("name", EXPECTED)
def test_example(name: str) -> None:
    lines = re.sub(r"\d+,\d{3}", "#,###", output_of(FOLDER / name)).splitlines()
    assert {line: lines.count(line) for line in lines} == EXPECTED[name]
