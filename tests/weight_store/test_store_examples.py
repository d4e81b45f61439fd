"""examples/weights: what they print, and that all weights are the trainer's. Those of live weights
compare all weights themselves."""

import re
from pathlib import Path

import pytest
from programs import output_of

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "weights"
LIVE = {
    "vllm_live.py": {"a server at version 3, which read #,### bytes from the trainer": 2}
    | {"a server at version 3, which read #,### bytes from a server": 2},
    "verl_live.py": {"a rollout at version 2, which read #,### bytes": 2},
}


@pytest.mark.parametrize("name", LIVE)
def test_live_weights(name: str) -> None:
    lines = re.sub(r"\d+,\d{3}", "#,###", output_of(FOLDER / name)).splitlines()
    assert {line: lines.count(line) for line in lines} == LIVE[name]


def test_replicas() -> None:
    """All end at the last version; one went around a damaged file."""
    said = output_of(FOLDER / "replicas.py", "--interval", "0.2")
    rows = re.findall(r"^ +(\d)  +10 .* (yes|NO)$", said, flags=re.M)
    assert rows == [(str(number), "yes") for number in range(8)], said
    assert "another way is taken" in said


def test_the_engine_in_vllms_shape() -> None:
    """Both servers end at the last version; the program asserts that the weights are equal."""
    said = output_of(FOLDER / "vllm_engine.py")
    assert len(re.findall(r"at version 3, which read 2\d\d,\d\d\d bytes", said)) == 2, said
