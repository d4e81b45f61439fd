"""`deltawire train linear --exchange`: who sends gradients to whom, and who says so."""

import json
from pathlib import Path

import numpy as np
import pytest
from cli_program import assert_refused, must_run

FEATURES = 40000  # enough for keys to be dealt to owners
USAGE = 2
CUT = "fastsgd:tau=64"  # drops most pairs


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


@pytest.fixture
def apart(tmp_path: Path) -> Path:
    return rows(tmp_path / "apart.libsvm", 600, FEATURES - 1)


def train(data: Path, *arguments: object) -> dict:
    settings = ("--data", data, "--epochs", 2, "--stop", 0, "--lr", 0.05, "--json", "-")
    return json.loads(must_run("train", "linear", *settings, *arguments))


def test_auto_takes_what_sends_less_and_says_why(shared: Path, apart: Path) -> None:
    used = train(shared, "--workers", 4, "--batch", 0.5)["settings"]["exchange_used"]
    assert used["reducer"].startswith("direct(fastsgd") and used["direct_to_gather"] < 0.8
    assert 0 < used["pairs_of_a_rank"] < used["distinct_pairs"] < 4 * used["pairs_of_a_rank"]
    used = train(apart, "--workers", 4, "--batch", 0.1)["settings"]["exchange_used"]
    assert used["reducer"].startswith("gather(fastsgd") and used["direct_to_gather"] >= 0.8
    # With fewer ranks, or a codec without pairs, there is nothing to measure.
    used = train(shared, "--workers", 2)["settings"]["exchange_used"]
    assert used["reducer"].startswith("gather(fastsgd") and used["direct_to_gather"] is None
    used = train(shared, "--workers", 3, "--codec", "3lc")["settings"]["exchange_used"]
    assert used["reducer"].startswith("direct(3lc") and used["pairs_of_a_rank"] is None


def test_direct_sends_what_was_predicted_and_trains_alike(shared: Path) -> None:
    settings = ("--workers", 4, "--batch", 0.5, "--codec", "fastsgd:tau=2047,b=1.02")
    gather = train(shared, *settings, "--exchange", "gather")
    direct = train(shared, *settings, "--exchange", "direct")
    auto = train(shared, *settings)
    assert auto["epochs"][-1]["train_loss"] == direct["epochs"][-1]["train_loss"]
    assert direct["final"]["train_loss"] == pytest.approx(gather["final"]["train_loss"], rel=0.02)
    predicted = auto["settings"]["exchange_used"]["direct_to_gather"]
    ratio = direct["final"]["bytes_per_step"] / gather["final"]["bytes_per_step"]
    assert ratio == pytest.approx(predicted, rel=0.2)


def test_it_is_said_in_words_once(shared: Path) -> None:
    settings = ("--data", shared, "--epochs", 2, "--stop", 0, "--workers", 3)
    said = must_run("train", "linear", *settings).decode().splitlines()
    lines = [line for line in said if line.startswith("exchange by ")]
    assert len(lines) == 1 and "of gather's bytes" in lines[0]
    said = must_run("train", "linear", *settings, "--exchange", "direct").decode()
    assert "exchange by direct(fastsgd" in said and "as asked" in said
    alone = must_run("train", "linear", "--data", shared, "--epochs", 1).decode()
    assert "exchange by" not in alone and "one worker: nothing is sent" in alone


def test_a_pattern_twice_is_refused(shared: Path) -> None:
    command = ("train", "linear", "--data", shared, "--exchange")
    words = ["--exchange gather", "--codec direct(fp32)", "leave one of them out"]
    assert_refused(USAGE, words, *command, "gather", "--codec", "direct(fp32)")
    assert_refused(USAGE, ["--exchange", "ring"], *command, "ring")


def weights(path: Path) -> np.ndarray:
    with np.load(path) as model:
        return model["weights"]


@pytest.mark.parametrize(("optimizer", "workers"), [("adam", 3), ("adagrad", 2), ("sgd", 4)])
def test_owners_train_the_model_that_every_rank_would(
    optimizer: str, workers: int, shared: Path, tmp_path: Path
) -> None:
    settings = ("--workers", workers, "--optimizer", optimizer, "--codec", "fp32")
    gather, owners = tmp_path / "gather.npz", tmp_path / "owners.npz"
    expected = train(shared, *settings, "--exchange", "gather", "--model", gather)
    found = train(shared, *settings, "--exchange", "owners", "--model", owners)
    assert np.count_nonzero(weights(gather)) > 500
    if optimizer == "sgd":  # what a weight has missed is a factor, rounded where it is asked for
        assert weights(owners) == pytest.approx(weights(gather), rel=0, abs=1e-6)
    else:
        assert (weights(owners) == weights(gather)).all()
    for figure in ("train_loss", "objective", "test_loss", "accuracy"):
        for before, after in zip(expected["epochs"], found["epochs"], strict=True):
            assert after[figure] == pytest.approx(before[figure], rel=1e-6)
    # A weight, what has been stepped of it, and moments: once in the cluster, not on every rank.
    once = expected["state_bytes_of_a_rank"] / workers
    assert once <= found["state_bytes_of_a_rank"] <= once + 16
    final = found["final"]
    assert 0 < final["weights_bytes_per_step"] < final["bytes_per_step"] < final["bytes_sent"]
    assert final["evaluation_bytes"] > 0 and expected["final"]["evaluation_bytes"] == 0
    assert expected["final"]["weights_bytes_per_step"] == 0


def test_ranks_send_owners_the_keys_of_test_data_once(apart: Path, tmp_path: Path) -> None:
    through, resumed, folder = (tmp_path / name for name in ("through.npz", "resumed.npz", "kept"))
    settings = ("train", "linear", "--data", apart, "--workers", 3, "--codec", "fp32", "--stop", 0)
    settings += ("--exchange", "owners", "--json", "-", "--epochs")

    def epochs(*arguments: object) -> list[dict]:
        return json.loads(must_run(*settings, *arguments))["epochs"]

    expected = epochs(4, "--model", through)
    told = [epoch["evaluation_bytes"] for epoch in expected]
    # Values take 4 bytes a key, which zstd hardly makes fewer, and gaps about one.
    assert 0.7 < told[1] / told[0] < 0.9
    assert told[1:] == pytest.approx([told[1]] * 3, rel=0.05)
    epochs(2, "--checkpoint", folder)
    found = epochs(4, "--checkpoint", folder, "--resume", "--model", resumed)
    assert resumed.read_bytes() == through.read_bytes()
    for before, after in zip(expected, found, strict=True):
        assert after["train_loss"] == before["train_loss"]
        assert after["test_loss"] == before["test_loss"]
    # Owners that start afresh after the second epoch are sent the keys of the test data again.
    again = [epoch["evaluation_bytes"] for epoch in found]
    assert [again[0], *again[2:]] == [told[0], *told[2:]]
    assert again[1] - told[1] == pytest.approx(told[0] - told[1], rel=0.1)


def test_owners_send_less_in_fewer_bits(apart: Path) -> None:
    # All rows in a step: messages of fewer than 256 values travel raw.
    settings = ("--workers", 3, "--batch", 1, "--exchange", "owners", "--codec", "fastsgd:tau=128")
    exact = train(apart, *settings)
    rounded = train(apart, *settings, "--weights-codec", "bf16")
    assert rounded["settings"]["exchange_used"]["reducer"].endswith(" back bf16)")
    ratio = rounded["final"]["weights_bytes_per_step"] / exact["final"]["weights_bytes_per_step"]
    assert 0.4 < ratio < 0.7
    assert rounded["final"]["train_loss"] == pytest.approx(exact["final"]["train_loss"], rel=0.01)


def test_owners_refuse_what_waits_for_later(shared: Path) -> None:
    command = ("train", "linear", "--data", shared, "--exchange")
    assert_refused(USAGE, ["3lc", "--exchange owners"], *command, "owners", "--codec", "3lc")
    words = ["leaves weights out"]
    assert_refused(USAGE, words, *command, "owners", "--weights-codec", "topk")
    words = ["--weights-codec goes with --exchange owners"]
    assert_refused(USAGE, words, *command, "gather", "--weights-codec", "bf16")


@pytest.mark.parametrize("exchange", ["auto", "owners"])
def test_feedback_brings_what_a_threshold_drops(exchange: str, shared: Path) -> None:
    settings = ("--data", shared, "--workers", 2, "--optimizer", "sgd", "--lr", 3, "--batch", 0.5)
    settings += ("--epochs", 15, "--stop", 0, "--exchange", exchange, "--json", "-", "--codec")
    loss = []
    for codec in (["fp32"], [CUT], [CUT, "--feedback"]):
        report = json.loads(must_run("train", "linear", *settings, *codec))
        loss.append(report["final"]["train_loss"])
    exact, lost, kept = loss
    assert abs(kept - exact) < abs(lost - exact) / 2


@pytest.mark.parametrize("exchange", ["gather", "owners"])
def test_what_waits_is_in_checkpoints(exchange: str, shared: Path, tmp_path: Path) -> None:
    through, resumed, folder = (tmp_path / name for name in ("through.npz", "resumed.npz", "kept"))
    settings = ("train", "linear", "--data", shared, "--workers", 2, "--batch", 0.5, "--stop", 0)
    settings += ("--codec", CUT, "--feedback", "--exchange", exchange)
    must_run(*settings, "--epochs", 4, "--model", through)
    must_run(*settings, "--epochs", 2, "--checkpoint", folder)
    must_run(*settings, "--epochs", 4, "--checkpoint", folder, "--resume", "--model", resumed)
    assert resumed.read_bytes() == through.read_bytes()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--codec", "plain"], "leave nothing out"),
        (["--codec", "3lc", "--exchange", "gather"], "keeps itself what it leaves out"),
        (["--codec", "bf16", "--exchange", "gather"], "takes no pairs"),
        (["--exchange", "direct"], "kept with gather and with owners"),
    ],
)
def test_feedback_is_refused_where_nothing_can_wait(
    more: list[str], words: str, shared: Path
) -> None:
    command = ("train", "linear", "--data", shared, "--workers", 2, "--feedback", *more)
    assert_refused(USAGE, ["--feedback", words], *command)
