"""examples/flower runs as it stands: in the simulation engine, and with TLS and node keys."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip(
    "ray", reason="Flower is not installed whole: pip install -r requirements-flower.txt"
)

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "flower"


@pytest.mark.timeout(420)
@pytest.mark.parametrize("script", [["simulate.sh", "2", "2"], ["deploy.sh", "2"]])
def test_the_script_runs_and_learns(script, tmp_path):
    said = subprocess.run(
        [EXAMPLE / script[0], *script[1:]],
        env={**os.environ, "PYTHON": sys.executable, "WORK": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=400,
    )
    text = said.stdout + said.stderr
    assert said.returncode == 0, text
    accuracy = [float(found) for found in re.findall(r"round \d: accuracy ([0-9.]+)", text)]
    assert len(accuracy) == 2 and accuracy[1] > 0.1, text
    counts = re.search(r"counts: \{(.*)\}", text)[1]
    assert "'full': 2" in counts and "'delta': " in counts and "refused" not in counts


ENDS = "echo its own words; exit 1"
SERVES = "cd $FLWR_HOME; >health; echo ERROR its own words; exec $SERVER $6"


@pytest.mark.parametrize("superlink", [ENDS, SERVES], ids=["it ends", "it serves"])
def test_what_the_superlink_says_of_its_failure_is_shown_at_once(superlink, tmp_path, monkeypatch):
    monkeypatch.setenv("SERVER", f"{sys.executable} -m http.server --bind 127.0.0.1")
    for name, does in (("flower-superlink", superlink), ("flwr", "exit 3")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHON": "", "WORK": str(tmp_path)}
    script = EXAMPLE / "simulate.sh"
    said = subprocess.run([script], env=environment, capture_output=True, timeout=100)
    assert said.returncode != 0 and b"its own words" in said.stderr
