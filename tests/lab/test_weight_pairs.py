"""Patches of real weights next to other ways to send them."""

from pathlib import Path

import numpy as np
import pytest

weight_pairs = pytest.importorskip("lab.probes.weight_pairs.__main__")
ways = pytest.importorskip("lab.probes.weight_pairs.ways")


def versions(kind: type, share: float) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(1)
    old = random.integers(0, 256, 60_000).astype(kind)
    new = old.copy()
    changed = random.random(len(old)) < share
    changed[[0, 20_000, -1]] = share > 0  # with gaps of one, two and three bytes
    new[changed] ^= random.integers(1, 256, np.count_nonzero(changed)).astype(kind)
    return old, new


@pytest.mark.parametrize("way", ways.WAYS, ids=lambda way: way.name)
@pytest.mark.parametrize("kind", [np.uint16, np.uint8])
def test_every_way_gives_the_new_version_back(way, kind):
    if way.missing:
        pytest.skip(f"{way.missing} is not installed")
    sizes = [way.bytes(*versions(kind, share)) for share in (0, 1e-5, 0.01, 1)]
    assert sizes == sorted(sizes)
    assert sizes[1] < 300 < sizes[3]


def test_simple_ways_take_the_bytes_that_they_must():
    old, new = versions(np.uint16, 1e-5)
    sizes = {way.name: way.bytes(old, new) for way in ways.WAYS[2:4]}
    changes = np.count_nonzero(old != new)
    assert sizes["int32 + value"] == 6 * changes
    gaps = np.diff(np.flatnonzero(old != new), prepend=-1) - 1
    gap_bytes = sum(1 + (gap >= 128) + (gap >= 128**2) for gap in gaps)
    assert sizes["varint gap + value"] == 2 * changes + gap_bytes


def test_a_way_that_loses_something_is_not_counted():
    way = ways.Way("forgetful", lambda old, new: b"", lambda sent, old: old)
    assert way.bytes(*versions(np.uint8, 0)) == 0
    with pytest.raises(ways.WayFailed, match="forgetful: the new version does not come back"):
        way.bytes(*versions(np.uint8, 0.1))
    assert ways.Way("far", len, len, "no-such-program", "sh").missing == "no-such-program"


@pytest.fixture
def texts(tmp_path: Path, monkeypatch) -> Path:
    """A folder for files; DELTAWIRE_DATA has two small texts."""
    for name in ("wikitext-2/wiki.valid.tokens", "shakespeare/input.txt"):
        file = tmp_path / "data" / name
        file.parent.mkdir(parents=True)
        file.write_bytes(b"To be, or not to be, that is the question. " * 20)
    monkeypatch.setenv("DELTAWIRE_DATA", str(tmp_path / "data"))
    return tmp_path / "pairs"


def test_the_table_and_the_files(texts: Path, monkeypatch, capsys):
    absent = ways.Way("absent", len, len, "no-such-program")
    monkeypatch.setattr(weight_pairs, "WAYS", (*ways.WAYS[:3], absent))
    words = "--width 8 --layers 1 --base-steps 2 --rates 1e-3 1e-5 --steps 1 3 --files"
    assert weight_pairs.main([*words.split(), str(texts)]) == 0
    out, said = capsys.readouterr()
    assert "absent: left out, no-such-program is missing" in said
    header, _, *rows = out.splitlines()
    assert header.endswith("| patch | XOR, zstd -3 | int32 + value |")
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    kinds = [("bf16", "1"), ("fp8", "1"), ("bf16", "3"), ("fp8", "3")]
    assert [(row[0], row[2]) for row in cells] == 2 * kinds
    assert [row[1] for row in cells] == 4 * ["0.001"] + 4 * ["1e-05"]
    old, new = (np.fromfile(texts / f"0.001-{step}", np.uint16) for step in (0, 3))
    changed = np.count_nonzero(old != new)
    assert cells[2][3] == f"{100 * changed / len(old):.2f}"
    assert cells[2][7] == "48.0"
    patch_bits = float(cells[2][5])
    assert float(cells[2][4]) == pytest.approx(16 * len(old) / changed / patch_bits, rel=0.02)
    # Larger steps change more.
    assert float(cells[0][3]) > float(cells[4][3])


def test_missing_texts_and_steps_that_do_not_ascend(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setenv("DELTAWIRE_DATA", str(tmp_path))
    assert weight_pairs.main([]) == 1
    assert "wiki.valid.tokens" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        weight_pairs.main(["--steps", "4", "1"])
    assert "--steps must ascend" in capsys.readouterr().err
