"""The figures of `deltawire train linear --json`."""

import json
from pathlib import Path

import pytest
from cli_program import must_run

PARTS = ("compute", "encode", "exchange", "decode", "update")


@pytest.mark.parametrize("workers", [1, 2])
def test_the_report_says_where_time_and_bytes_went(workers: int, data: Path) -> None:
    report = json.loads(
        must_run(
            *("train", "linear", "--data", data, "--workers", workers, "--epochs", 4, "--stop", 0),
            *("--batch", 0.1, "--hash-bits", 10, "--json", "-"),
        )
    )
    split = report["time_split"]
    assert split["seconds"] == report["final"]["seconds"]
    for part in PARTS:
        seconds = [epoch[f"{part}_seconds"] for epoch in report["epochs"]]
        assert split[f"{part}_seconds"] == pytest.approx(sum(seconds))
        assert (split[f"{part}_seconds"] > 0) or workers == 1
    assert sum(split[f"{part}_seconds"] for part in PARTS) < 1.001 * split["seconds"]
    sent = [epoch["bytes_sent"] for epoch in report["epochs"]]
    per_epoch = [10 * epoch["bytes_per_step"] for epoch in report["epochs"]]
    assert sent == pytest.approx([sum(per_epoch[: i + 1]) for i in range(len(per_epoch))])
    if workers > 1:  # each pair would take 8 bytes
        first = report["epochs"][0]
        plain = first["times_smaller_than_plain_pairs"] * workers * first["bytes_sent"]
        assert plain > 0 and plain % 8 == pytest.approx(0, abs=1e-3)
