"""examples/weights/*_live.py: what they print; they compare all weights themselves."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "weights"
EXPECTED = {
    "vllm_live.py": {"a server at version 3, which read #,### bytes from the trainer": 2}
    | {"a server at version 3, which read #,### bytes from a server": 2},
    "verl_live.py": {"a rollout at version 2, which read #,### bytes": 2},
}


@pytest.mark.parametrize("name", EXPECTED)
def test_example(name: str) -> None:
    done = subprocess.run(
        [sys.executable, FOLDER / name], capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stderr
    lines = re.sub(r"\d+,\d{3}", "#,###", done.stdout).splitlines()
    assert {line: lines.count(line) for line in lines} == EXPECTED[name]
