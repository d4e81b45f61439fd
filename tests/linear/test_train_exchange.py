"""`deltawire train linear --codec`: who sends gradients to whom, and who says so."""

import json
from pathlib import Path

import numpy as np
import pytest
from cli_program import USAGE, assert_refused, must_run

FEATURES = 40000  # enough for keys to be dealt to owners


def rows(path: Path, count: int, low: int, seed: int = 1) -> Path:
    """Rows of which all have some of the first `low` features, as most data do, and one beyond."""
    random = np.random.default_rng(seed)
    lines = []
    for i in range(count):
        keys = np.sort(random.choice(low, size=20, replace=False)) + 1
        far = low + 1 + random.integers(FEATURES - low)
        values = random.normal(size=20)
        features = " ".join(f"{k}:{v:.3f}" for k, v in zip(keys, values, strict=True))
        lines.append(f"{(-1) ** i} {features} {far}:1")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    return rows(tmp_path / "shared.libsvm", 1500, 300)


def train(data: Path, *arguments: object) -> dict:
    settings = ("--data", data, "--epochs", 2, "--stop", 0, "--lr", 0.05, "--json", "-")
    return json.loads(must_run("train", "linear", *settings, *arguments))


def test_direct_sends_less_where_ranks_share_keys_and_trains_alike(shared: Path) -> None:
    codec = "fastsgd:tau=2047,b=1.02"
    gather, direct = (
        train(shared, "--workers", 4, "--batch", 0.5, "--codec", spec)
        for spec in (codec, f"direct({codec})")
    )
    assert gather["settings"]["exchange_used"].startswith("gather(fastsgd")
    assert direct["settings"]["exchange_used"].startswith("direct(fastsgd")
    assert direct["final"]["train_loss"] == pytest.approx(gather["final"]["train_loss"], rel=0.02)
    assert direct["final"]["bytes_per_step"] < 0.8 * gather["final"]["bytes_per_step"]


def test_it_is_said_in_words_once(shared: Path) -> None:
    settings = ("--data", shared, "--epochs", 2, "--stop", 0, "--workers", 3)
    said = must_run("train", "linear", *settings, "--codec", "direct(fastsgd)").decode()
    lines = [line for line in said.splitlines() if line.startswith("exchange by ")]
    assert len(lines) == 1 and lines[0].startswith("exchange by direct(fastsgd")
    alone = must_run("train", "linear", "--data", shared, "--epochs", 1).decode()
    assert "exchange by" not in alone and "one worker: nothing is sent" in alone


def test_what_is_no_exchange_is_refused(shared: Path) -> None:
    command = ("train", "linear", "--data", shared, "--codec")
    assert_refused(USAGE, ["--codec", "owners"], *command, "owners(fp32)")
    assert_refused(USAGE, ["--codec", "bf15"], *command, "direct(bf15)")
