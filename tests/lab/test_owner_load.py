"""owner_load: the partition is the one of docs/reference/format.md, and balances skewed keys."""

import sys

import numpy as np
import pytest

owner_load = pytest.importorskip("lab.papers.fastsgd.owner_load")


def test_stripes_are_the_librarys() -> None:
    """The same numbers as in src/reduce/patterns/key_partition_test.cc."""
    shards, places = owner_load.striped(np.arange(20), 3)
    assert shards.tolist() == [0, 1, 2, 1, 2, 0, 0, 1, 2, 2, 0, 1, 1, 2, 0, 0, 1, 2, 2, 0]
    assert places.tolist() == [key // 3 for key in range(20)]


def test_ranges_of_skewed_keys_are_uneven_and_hashes_cost_bits() -> None:
    random = np.random.default_rng(1)
    keys = np.flatnonzero(random.random(100000) < 1000 / (1000 + np.arange(100000)))
    most, far = owner_load.load(*owner_load.striped(keys, 8), 8)
    of_ranges, _ = owner_load.load(*owner_load.ranges(keys, 8, 100000), 8)
    of_hash, apart = owner_load.load(*owner_load.hashed(keys, 8), 8)
    assert most < 1.1 and of_hash < 1.2 and of_ranges > 2
    assert apart - far > 2


def test_it_prints_a_table(tmp_path, monkeypatch, capsys) -> None:
    data = tmp_path / "rows.libsvm"
    data.write_text("1 1:1 5:1\n-1 2:1 9:1\n" * 10)
    monkeypatch.setattr(sys, "argv", ["owner_load", str(data), "--ranks", "2", "--batch", "1"])
    owner_load.main()
    assert "| 2 | 10 | 4 |" in capsys.readouterr().out
