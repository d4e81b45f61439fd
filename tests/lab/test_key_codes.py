"""lab/papers/fastsgd/key_codes.py: each code's bits by hand, and against what fastsgd writes."""

import json
import os
import subprocess
from pathlib import Path

import deltawire
import numpy as np
import pytest

key_codes = pytest.importorskip("lab.papers.fastsgd.key_codes")
ROOT = Path(__file__).resolve().parents[2]
BINARY = os.environ.get("DELTAWIRE_BIN", str(ROOT / "build" / "release" / "deltawire"))
FIGURE = np.array([231, 2])  # gaps of figure 3 of the paper of fastsgd


def section(keys: np.ndarray, spec: str, name: str) -> int:
    """The bits of one section of fastsgd's message for ones at the keys."""
    values = np.zeros(keys[-1] + 1, np.float32)
    values[keys] = 1
    command = [BINARY, "inspect", "--json", "-"]
    data = deltawire.encode(values, spec, min_elements=0)
    listed = subprocess.run(command, input=data, check=True, capture_output=True).stdout
    return {each["name"]: each["bits"] for each in json.loads(listed)["sections"]}.get(name, 0)


@pytest.mark.parametrize(
    ("code", "bits"),
    [
        ("l = 2", 2 * 2 + 8 + 2),
        ("best l", 2 * 1 + 8 + 4 + 3),
        ("Rice", 4 + 6 + 1 + 6),  # with 6 low bits
        ("Rice, blocks", 17 + 5),
        ("Elias-Fano", 2 * 7 + 3),  # with 6 low bits: 233 >> 6
        ("interpolative", 32 + 8),  # one of 234 places, not among the 22 shorter ones
        ("auto", 17),
    ],
)
def test_the_example(code, bits):
    assert key_codes.CODES[code](FIGURE) == bits


def test_keys_in_a_row_take_nothing():
    gaps = np.zeros(99, np.int64)
    assert key_codes.flags(gaps, 2) == key_codes.entropy(gaps) == 0
    assert key_codes.interpolative(gaps) == 32
    assert key_codes.golomb(gaps) == key_codes.rice(gaps) == 99


def test_the_entropy_is_of_the_density():
    assert key_codes.entropy(np.array([1, 1, 1, 1])) == pytest.approx(4 * 2)


def test_an_adapted_parameter_follows():
    gaps = np.concatenate([np.zeros(500, np.int64), np.full(500, 1000)])
    assert key_codes.rice_adapted(gaps) < 0.7 * key_codes.rice(gaps)


@pytest.mark.parametrize("density", [0.5, 0.05, 0.002])
def test_bits_are_what_the_codec_writes(density):
    """Apart from heads and padding bits."""
    keys = np.cumsum(np.random.default_rng(1).geometric(density, 3000)) - 1
    gaps = np.diff(keys) - 1
    assert 0 <= section(keys, "fastsgd:tau=2047", "keys") - key_codes.flags(gaps, 2) < 16
    auto = section(keys, "fastsgd:tau=2047,keys=auto", "keys")
    assert 0 <= auto - key_codes.golomb(gaps) < 32
    rows = np.arange(3000) // 100 * 5000 + np.arange(3000) % 100
    auto = section(rows, "fastsgd:tau=2047,keys=auto", "keys") + 32  # the last key is in the head
    assert 0 <= auto - key_codes.interpolative(np.diff(rows) - 1) < 8


def test_the_table(tmp_path, capsys):
    rows = tmp_path / "rows"
    rows.write_text("".join(f"{i % 2} {i + 1}:1 {3 * i + 99}:2 900:1\n" for i in range(40)))
    assert key_codes.main(["laplace:0.001", str(rows), "--gradients", "3"]) == 0
    _, _, laplace, found = capsys.readouterr().out.splitlines()
    assert laplace.startswith("| laplace:0.001 | 2,000 |")
    assert found.startswith("| rows | ")
    of_laplace = dict(zip(key_codes.CODES, map(float, laplace.split("|")[3:-1]), strict=True))
    assert of_laplace["entropy"] < of_laplace["auto"] < of_laplace["Elias-Fano"]
    assert of_laplace["auto"] < of_laplace["best l"] - 1


@pytest.mark.parametrize("name", ["none", "laplace:x"])
def test_missing_data_is_one_line(tmp_path, monkeypatch, capsys, name):
    monkeypatch.chdir(tmp_path)
    assert key_codes.main([name]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1
