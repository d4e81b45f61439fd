"""Parameter servers over slow links: real processes behind real links, and the table."""

import json
from pathlib import Path

import pytest

from lab.papers.threelc.table import table_of

threelc_server = pytest.importorskip("lab.papers.threelc.__main__")

VALUES = 51_532  # of the small LeNet5, in eight tensors
TENSORS = 8


def test_servers_and_workers_over_a_link(namespaces, tmp_path: Path, capfd):
    file = tmp_path / "rows.json"
    words = "--clusters 2:1 --links 20mbit --size small --steps 3 --seconds 60 --warm-up 1"
    status = threelc_server.main([*words.split(), "--specs", "fp32", "3lc", "--out", str(file)])
    shown = capfd.readouterr()
    assert status == 0, shown.err
    rows = {row["method"]: row for row in json.loads(file.read_text())}
    assert len(rows) == 2 + 2 + 4 + 3
    assert all(row["ms"] > 0 for row in rows.values())
    assert all(row["steps"] == 3 or row["backup"] for row in rows.values()), "behind, it skips some"
    served = [row for row in rows.values() if not row["direct"]]
    assert all(row["encodes"] == TENSORS for row in served), "once for both workers"
    plain, packed = rows["`fp32`"], rows["`3lc`"]
    for way in ("push_bytes", "pull_bytes"):
        assert 4 * VALUES < plain[way] < 4.1 * VALUES
        assert packed[way] < plain[way] / 10
    # A copy for each worker; of three steps up to one may have left before the first was over.
    assert plain["server_sent"] > 2 * 2 / 3 * 0.95 * plain["pull_bytes"]
    assert plain["ms"] > 130, "412 KB less a burst at 2.5 MB/s: no machine is faster"
    slow = rows["`3lc`, one worker 5 times slower"]
    assert slow["late"] == 0 and packed["late"] == 0
    assert shown.out.count("\n| 2 workers, 1 server, 20mbit |") == len(rows)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--clusters", "4"], "'4' is not a cluster"),
        (["--clusters", "1:1"], "'1:1' is not a cluster"),
        (["--links", "none"], "a rate is needed"),
        (["--specs", "nonsense"], "nonsense"),
        (["--slowness", "1"], "--slowness at least 2"),
    ],
)
def test_wrong_words_are_refused_at_once(given: list[str], said: str, capsys, tmp_path: Path):
    with pytest.raises(SystemExit, match="2"):
        threelc_server.main([*given, "--out", str(tmp_path / "rows.json")])
    assert said in capsys.readouterr().err


def test_speeds_are_compared_within_a_cluster_and_link():
    def row(method: str, ms: float, direct: bool = False) -> dict:
        return {
            **{"cluster": "4 workers, 1 server", "link": "1gbit", "method": method, "ms": ms},
            **{"low_ms": ms - 1, "high_ms": ms + 1, "direct": direct, "encodes": 8.0},
            **{"push_bytes": 1.5e4, "pull_bytes": 2.5e5, "server_sent": 1e6},
            **{"server_received": 6e4, "worker_sent": 3e5, "worker_received": 4e5},
        }

    rows = [row("`fp32`", 200), row("`3lc`", 50), row("`direct(3lc)`", 100, direct=True)]
    shown = table_of([*rows, {**rows[1], "link": "10mbit"}]).splitlines()
    docs = Path(__file__).resolve().parents[2] / "docs"
    page = (docs / "results" / "papers.md").read_text()
    assert "\n".join(shown[:2]) in page, "docs/results/papers.md has another table"
    start = "| 4 workers, 1 server, 1gbit |"
    assert shown[2:] == [
        f"{start} `fp32` | 200 (199–201) | 1.00 | 15 | 250 | 1,000, 60 | 8 |",
        f"{start} `3lc` | 50 (49–51) | 4.00 | 15 | 250 | 1,000, 60 | 8 |",
        f"{start} `direct(3lc)` | 100 (99–101) | 2.00 | 300 sent | 400 received | - | - |",
        "| 4 workers, 1 server, 10mbit | `3lc` | 50 (49–51) | - | 15 | 250 | 1,000, 60 | 8 |",
    ]
