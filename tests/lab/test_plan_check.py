"""`lab.probes.plan_check`: a table of the times that `deltawire plan` predicts and the demo
took."""

import json
import os
import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from lab.data.batches import Batches  # noqa: E402
from lab.demo.workloads import WORKLOADS  # noqa: E402
from lab.probes import plan_check  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("DELTAWIRE_BIN", ROOT / "build" / "release" / "deltawire"))
TRACE = ROOT / "tests" / "traces" / "lenet5-sgd"  # its names are the demo's


def row(method: str, ms: float, failed: str | None = None) -> dict:
    return {"method": method, "ms_per_step": ms, "compute_ms": 20.0, "failed": failed}


@pytest.fixture
def results(image_folder: Path) -> dict:
    words = WORKLOADS["lenet5"].words
    return {
        "settings": {
            **{"network": words, "data": str(image_folder), "batch_per_rank": 8},
            **{"ranks": 4, "link": "1mbit"},
        },
        "machine": {"cores": 2},
        "rows": [
            row("plain", 1000),
            row("fp32", 5000),
            row("sbc:p=1%@10", 50),
            row("powersgd:rank=4", 50),
            row("bf16", 50, failed="it hung"),
        ],
    }


def run(results: dict, path: Path, trace: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    path.write_text(json.dumps(results))
    arguments = [str(path), "--input", str(trace), "--program", str(PROGRAM)]
    monkeypatch.setattr(sys, "argv", ["plan_check", *arguments])
    return plan_check.main()


def test_the_table_shows_predictions_and_measurements(
    results: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    assert run(results, tmp_path / "results.json", TRACE, monkeypatch) == 0
    lines = capsys.readouterr().out.splitlines()[2:]
    found = [re.fullmatch(r"\| `(\S+)` \| (\S+) \| (\S+) \| ([+-]\d+)% \|", each) for each in lines]
    assert [each[1] for each in found] == ["plain", "fp32"]
    # 51,532 values of 4 bytes go 1.5 times over 125,000 bytes a second: the link limits the speed.
    wire = 1e3 * 1.5 * 4 * 51_532 / 125_000
    for each in found:
        assert wire < float(each[2]) < 1.1 * wire
        assert float(each[4]) == pytest.approx(100 * (float(each[2]) / float(each[3]) - 1), abs=1)


def test_what_cannot_be_compared_is_said(
    results: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    other = TRACE.with_name("lstm-sgd")
    assert run(results, tmp_path / "results.json", other, monkeypatch) == 1
    assert "lstm-sgd is of another network: it has " in capsys.readouterr().err
    results["settings"]["network"] = "AlexNet"
    assert run(results, tmp_path / "results.json", TRACE, monkeypatch) == 1
    assert "'AlexNet' is not one of lab.demo.workloads" in capsys.readouterr().err


def test_gradients_are_ready_from_the_end_of_the_network(image_folder: Path) -> None:
    workload = WORKLOADS["lenet5"]
    batches = Batches(workload.load_images(image_folder), seed=1, batch=8, place=(0, 1))
    shares = plan_check.readiness(workload.make_network(1), batches.at(0))
    order = ["fc2.weight", "fc1.weight", "conv2.weight", "conv1.weight"]
    assert sorted(order, key=shares.get) == order
    assert 0 < shares["fc2.weight"] < shares["conv1.weight"] <= 1
