"""FastSGD's bits of keys, and the reader of sparse rows: arithmetic by hand."""

import numpy as np
import pytest

keys = pytest.importorskip("lab.papers.fastsgd.keys")
sparse_rows = pytest.importorskip("lab.data.sparse_rows")
SMALL = "1 1:3 4:4\n-1 2:2\n\n1\n"


@pytest.fixture
def small(tmp_path):
    """Three examples; the last has no feature."""
    path = tmp_path / "small.libsvm"
    path.write_text(SMALL)
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
    found = keys.gradient_of(rows, np.array([1, 0]), weights)
    first = -1 / (1 + np.exp(0.6)) / 2
    second = 1 / (1 + np.exp(-0.5)) / 2
    assert found.dtype == np.float32
    assert found == pytest.approx([0.6 * first, second, 0, 0.8 * first])
    assert keys.gradient_of(rows, np.array([2]), weights).tolist() == [0, 0, 0, 0]


def test_bits_of_keys_by_hand():
    gradient = np.zeros(1000, np.float32)
    gradient[[343, 575, 578]] = 4, -2, 2  # figure 3 of the paper: gaps of 231 and 2
    spec = "fastsgd:b=2,tau=128,l=2"
    assert keys.keys_of(gradient, spec) == (3, 8 + 16)
    assert keys.keys_of(np.zeros(1000, np.float32), spec) == (0, 0)
