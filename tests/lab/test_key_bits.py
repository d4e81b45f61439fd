"""key_bits and the reader of sparse rows: arithmetic by hand, and a run on a tiny file."""

import lzma
import os
import re
from pathlib import Path

import numpy as np
import pytest

key_bits = pytest.importorskip("lab.papers.fastsgd.key_bits")
sparse_rows = pytest.importorskip("lab.data.sparse_rows")
ROOT = Path(__file__).resolve().parents[2]
BINARY = os.environ.get("DELTAWIRE_BIN", str(ROOT / "build" / "release" / "deltawire"))
SMALL = "1 1:3 4:4\n-1 2:2\n\n1\n"


@pytest.fixture
def small(tmp_path):
    """Three examples; the last has no feature."""
    path = tmp_path / "small.libsvm"
    path.write_text(SMALL)
    return path


def write_rows(path, count, features, seed=5):
    """Examples with about 20 random features each, packed."""
    random = np.random.default_rng(seed)
    lines = []
    for i in range(count):
        columns = np.unique(random.integers(1, features + 1, 20))
        lines.append(" ".join([str(i % 3), *(f"{c}:{random.random():.3f}" for c in columns)]))
    path.write_bytes(lzma.compress("\n".join(lines).encode()))
    return path


def test_rows_have_length_one_and_columns_from_zero(small):
    rows = sparse_rows.load_sparse_rows(small)
    assert rows.labels.tolist() == [1, -1, 1]
    assert rows.begin.tolist() == [0, 2, 3, 3]
    assert rows.columns.tolist() == [0, 3, 1]
    assert rows.values.tolist() == [0.6, 0.8, 1]
    assert (rows.count, rows.features) == (3, 4)
    assert sparse_rows.load_sparse_rows(small, features=9).features == 9


def test_more_labels_are_two_halves(tmp_path):
    path = tmp_path / "many"
    path.write_text("1 1:1\n2 1:1\n3 1:1\n4 1:1\n")
    assert sparse_rows.load_sparse_rows(path).labels.tolist() == [-1, -1, 1, 1]


@pytest.mark.parametrize("text", ["", "1 0:1\n", "1 a:1\n", "1 1\n", "x 1:1\n"])
def test_damage_is_named(tmp_path, text):
    path = tmp_path / "damaged"
    path.write_text(text)
    with pytest.raises(sparse_rows.DataError, match="damaged"):
        sparse_rows.load_sparse_rows(path)


def test_a_gradient_is_the_mean_over_its_rows(small):
    rows = sparse_rows.load_sparse_rows(small)
    weights = np.array([1.0, 0.5, 0, 0])
    found = key_bits.gradient_of(rows, np.array([1, 0]), weights)
    first = -1 / (1 + np.exp(0.6)) / 2
    second = 1 / (1 + np.exp(-0.5)) / 2
    assert found.dtype == np.float32
    assert found == pytest.approx([0.6 * first, second, 0, 0.8 * first])
    assert key_bits.gradient_of(rows, np.array([2]), weights).tolist() == [0, 0, 0, 0]


def test_bits_of_keys_by_hand():
    gradient = np.zeros(1000, np.float32)
    gradient[[343, 575, 578]] = 4, -2, 2  # figure 3 of the paper: gaps of 231 and 2
    bits = key_bits.KeyBits("fastsgd:b=2,tau=128,l=2", BINARY)
    assert bits.add(gradient) == 3
    assert bits.add(np.zeros(1000, np.float32)) == 0
    assert (bits.bits, bits.keys) == (8 + 16, 3)
    assert np.isnan(key_bits.KeyBits("fastsgd", BINARY).each())


def test_the_tables(tmp_path, capsys):
    path = write_rows(tmp_path / "rows.xz", 60, 3000)
    options = [str(path), "--epochs", "1", "--batch", "0.5", "--ranks", "2", "--binary", BINARY]
    assert key_bits.main(options) == 0
    first, _, _, found, formula, auto, sketchml = capsys.readouterr().out.splitlines()
    assert first.startswith("4 gradients of ")
    bits = [float(text) for text in re.findall(r"[\d.]+", found)]
    assert len(bits) == 5
    assert all(after <= before + 1.3 for before, after in zip(bits, bits[1:], strict=False))
    steps = np.diff([float(text) for text in re.findall(r"[\d.]+", formula)])
    assert steps == pytest.approx([1, 1, 1, 1])
    assert float(auto.split()[1]) < min(bits)
    assert float(sketchml.split()[1]) >= 10


def test_missing_data_is_one_line(tmp_path, capsys):
    assert key_bits.main([str(tmp_path / "none")]) == 1
    assert "none" in capsys.readouterr().err
