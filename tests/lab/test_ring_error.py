"""lab/papers/gcomp/ring_error.py: its arithmetic by hand, and a run on a tiny image set."""

import re

import numpy as np
import pytest

ring_error = pytest.importorskip("lab.papers.gcomp.ring_error")


def test_errors_are_in_units_of_the_significance():
    errors = ring_error.Errors()
    significance = np.array([2.0**23, 1.5 * 2.0**24, -(2.0**23)], np.float32)  # units of 1, 2, 1
    exact = np.array([10, -10, 7])
    errors.add(np.array([7, -14, 8], np.float32), exact, significance)
    assert (errors.count, errors.largest, errors.above_one) == (3, 3.0, 2)
    assert (errors.drift, errors.squares) == (-3.0 + 2.0 + 1.0, 9.0 + 4.0 + 1.0)


def test_a_ring_of_one_rank_is_one_encoding():
    ring = ring_error.Ring()
    gradient = np.linspace(-1, 1, 5000, dtype=np.float32)
    seen = np.full(5000, 2.0**20, np.float32)
    mean = ring.reduce([gradient], seen)
    assert 0 < np.abs(mean - gradient).max() <= 2.0**-3
    assert ring.encodings == ring.means
    assert ring.means.count == 5000
    assert ring.values == 5000 and 0 < ring.bits < 16 * 5000


def test_bits_without_levels_by_hand():
    values = np.array([1.0, -1.0, 2.0, 1.5 + 2.0**-22, 1e-40, 0.0, 0.0, 0.0], np.float32)
    seen = np.full(8, 2.0**19, np.float32)  # cuts 20 bits of 1, 19 of 2
    # Half are zeros, three eighths have the exponent of 1, an eighth that of 2.
    codes = 4 * 1 + 3 * np.log2(8 / 3) + 3
    assert ring_error.bits_without_levels(values, seen) == pytest.approx(codes + 3 * 4 + 5)
    assert ring_error.bits_without_levels(values, 0 * seen) == pytest.approx(codes + 4 * 24)


def test_four_lines(image_folder, capsys):
    options = ["--data", str(image_folder), "--steps", "7", "--ranks", "3", "--batch", "8"]
    assert ring_error.main(options) == 0
    one, mean, bits, without_levels = capsys.readouterr().out.splitlines()
    assert 0 < float(re.search(r"largest ([\d.]+)", one)[1]) <= 1
    assert 0 < float(re.search(r"largest ([\d.]+)", mean)[1]) <= 3.1  # with float32's own rounding
    assert mean.startswith("mean of 3:")
    assert float(without_levels.split()[0]) < float(bits.split()[0]) < 32


def test_missing_data_is_one_line(tmp_path, capsys):
    assert ring_error.main(["--data", str(tmp_path)]) == 1
    assert str(tmp_path) in capsys.readouterr().err
