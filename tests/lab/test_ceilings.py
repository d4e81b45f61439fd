"""Steps over slow links against the ceiling: real ranks behind real links, and the table."""

import json
from pathlib import Path

import pytest

ceilings = pytest.importorskip("lab.probes.ceilings.__main__")


def test_methods_take_turns_over_a_link(namespaces, tmp_path: Path, capfd):
    file = tmp_path / "cells.json"
    words = "--networks lenet5 --links 20mbit --size small --ranks 2 --steps 4 --warm-up 3"
    methods = ("barrier", "plain", "plain-again", "torch-powersgd-1", "3lc")
    assert ceilings.main([*words.split(), "--methods", *methods, "--out", str(file)]) == 0
    (cell,) = json.loads(file.read_text())
    rows = {row["method"]: row for row in cell["rows"]}
    assert tuple(rows) == ("compute", *methods)
    assert all(row["steps"] >= 4 and row["ms"] > 0 for row in rows.values())
    # Two ranks send one tensor each, of 51,532 values; PowerSGD and 3LC a small part of it.
    assert rows["compute"]["bytes_sent"] < 2e3 < 206e3 < rows["plain"]["bytes_sent"] < 260e3
    assert 0 < rows["barrier"]["bytes_sent"] < 2e3
    assert 206e3 < rows["plain-again"]["bytes_sent"] < 260e3
    assert all(rows[name]["bytes_sent"] < 40e3 for name in ("torch-powersgd-1", "3lc"))
    # 206 KB minus one burst at 2.5 MB/s: the link allows no machine to be faster.
    assert rows["plain"]["ms"] > 70
    assert rows["3lc"]["spec"].startswith("direct(3lc")
    shown = capfd.readouterr()
    assert shown.out.count("\n| lenet5, 20mbit |") == 6
    assert "lenet5, 20mbit: 3lc, " in shown.err


@pytest.mark.parametrize("name", ["nonsense", "torch-powersgd-0", "torch-powersgd-x"])
def test_unknown_methods_are_refused_at_once(name: str, capsys, tmp_path: Path):
    with pytest.raises(SystemExit, match="2"):
        ceilings.main(["--methods", name, "--out", str(tmp_path / "cells.json")])
    assert f"method '{name}'" in capsys.readouterr().err


def test_shares_are_of_the_time_without_exchange():
    def row(method: str, ms: float, predicted: float | None = None) -> dict:
        return {
            **{"method": method, "spec": method, "steps": 50, "ms": ms, "low_ms": ms - 1},
            **{"high_ms": ms + 1, "bytes_sent": 2e6, "predicted_ms": predicted},
            "measured_ms": ms,
        }

    rows = [row("compute", 50), row("plain", 200), row("auto", 100, 90)]
    rows[-1]["spec"] = "direct(3lc)"
    shown = ceilings.table_of([{"network": "lstm", "link": "1gbit", "ranks": 4, "rows": rows}])
    page = "docs/results/speed/slow-links.md"
    text = (Path(__file__).resolve().parents[2] / page).read_text()
    assert "\n".join(shown.splitlines()[:2]) in text, f"{page} has another table"
    assert shown.splitlines()[2:] == [
        "| lstm, 1gbit | compute alone | 50 (49–51) | 4.00 | 100% | 2.000 | - |",
        "| lstm, 1gbit | `plain` | 200 (199–201) | 1.00 | 25% | 2.000 | - |",
        "| lstm, 1gbit | `auto`: `direct(3lc)` | 100 (99–101) | 2.00 | 50% | 2.000 | 90 (-10%) |",
    ]


def test_a_cell_that_fails_leaves_the_others_results(tmp_path: Path, monkeypatch, capsys):
    out, files = tmp_path / "new folder" / "cells.json", []

    def run_cell(network, link, given):
        files.append(json.loads(out.read_text()) if out.exists() else None)
        if network == "resnet20":
            raise ceilings.RanksFailed("rank 1 ended")
        if network == "transformer":
            raise KeyboardInterrupt
        return {"network": network}

    monkeypatch.setattr(ceilings, "run_cell", run_cell)
    monkeypatch.setattr(ceilings, "table_of", lambda cells: f"{len(cells)} cells")
    names = ["--networks", "lenet5", "resnet20", "lstm", "--links", "10mbit", "--out", str(out)]
    assert ceilings.main(names) == 1
    kept = [{"network": "lenet5"}, {"network": "lstm"}]
    assert files == [None, kept[:1], kept[:1]] and json.loads(out.read_text()) == kept
    said = capsys.readouterr()
    assert (said.out, said.err) == ("2 cells\n", "resnet20, 10mbit: rank 1 ended\n")
    names[1:4] = ["lenet5", "transformer"]
    assert ceilings.main(names) == 130
    assert capsys.readouterr().out == "1 cells\n"
