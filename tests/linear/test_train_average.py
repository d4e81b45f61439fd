"""`deltawire train linear` judges and writes the average of weights over steps."""

import json
from pathlib import Path

import numpy as np
import pytest
from cli_program import USAGE, assert_refused, must_run
from linear_rows import FEATURES, dense, text_of

L2, POWER = 0.1, 2.5


def train(*arguments: object) -> dict:
    return json.loads(must_run("train", "linear", *arguments, "--stop", 0, "--json", "-"))


def weights(path: Path) -> np.ndarray:
    with np.load(path) as model:
        return model["weights"].astype(float)


@pytest.mark.parametrize("codec", ["gather(fp32)", "direct(fp32)"])
def test_the_model_is_the_average_over_steps(codec: str, data: Path, tmp_path: Path) -> None:
    """Full batches, whose steps NumPy can take."""
    rate, steps, model = 0.2, 12, tmp_path / "model.npz"
    report = train(
        *("--data", data, "--held-out", 0, "--loss", "squared", "--optimizer", "sgd"),
        *("--no-bias", "--decay", 0, "--lr", rate, "--l2", L2, "--batch", 1, "--epochs", steps),
        *("--codec", codec, "--workers", 3),
        *("--average-power", POWER, "--model", model),
    )
    rows, labels = dense(data)
    step = np.zeros(FEATURES + 1)
    sums, total = np.zeros(FEATURES + 1), 0.0
    for t in range(1, steps + 1):
        gradient = rows.T @ (rows @ step - labels) / len(labels) + L2 * step
        step = step - rate * gradient
        sums += t**POWER * step
        total += t**POWER
        margins = rows @ (sums / total)
        loss = ((margins - labels) ** 2).mean() / 2
        found = report["epochs"][t - 1]
        assert found["train_loss"] == pytest.approx(loss, rel=1e-5)
        squares = ((sums / total) ** 2).sum()
        assert found["objective"] == pytest.approx(loss + L2 / 2 * squares, rel=1e-5)
    assert weights(model) == pytest.approx(sums / total, abs=1e-6)
    assert np.abs(weights(model) - step).max() > 1e-3
    assert report["settings"]["average_power"] == POWER
    with np.load(model) as saved:
        assert json.loads(str(saved["settings"].astype(str)))["average_power"] == POWER


def test_held_out_loss_and_predictions_use_the_average(data: Path, tmp_path: Path) -> None:
    model, test = tmp_path / "model.npz", tmp_path / "test.libsvm"
    test.write_text(text_of(300, seed=2))
    settings = ("--data", data, "--test", test, "--loss", "hinge", "--model", model, "--no-bias")
    report = train(*settings, "--epochs", 4, "--l2", 0.01)
    rows, labels = dense(test)
    losses = np.maximum(0, 1 - labels * (rows @ weights(model)))
    assert report["final"]["test_loss"] == pytest.approx(losses.mean(), rel=1e-5)
    margins = must_run("predict", "--model", model, "--data", test).decode().split()
    assert np.array(margins, float) == pytest.approx(rows @ weights(model), rel=1e-4, abs=1e-5)


def test_a_kink_is_less_far_off(data: Path) -> None:
    settings = ("--data", data, "--held-out", 0, "--loss", "hinge", "--l2", 0.01, "--batch", 0.02)
    settings += ("--optimizer", "sgd", "--no-bias")
    rate = ("--lr", 2, "--decay", 0, "--epochs", 20)
    last, average = (train(*settings, *rate, *more)["final"] for more in (["--no-average"], []))
    slowing = ("--lr", 1, "--decay", 1, "--epochs", 300, "--no-average")
    best = train(*settings, *slowing)["final"]["objective"]
    assert abs(average["objective"] - best) < abs(last["objective"] - best) / 5


@pytest.mark.parametrize(("optimizer", "moments"), [("adam", 8), ("adagrad", 4), ("sgd", 0)])
def test_what_a_rank_keeps_with_an_average(optimizer: str, moments: int, data: Path) -> None:
    report = train("--data", data, "--workers", 2, "--optimizer", optimizer, "--epochs", 1)
    # 8 bytes for the sum, 4 for the steps that are in it, 4 for the weight; and moments.
    assert report["state_bytes_of_a_rank"] == (16 + moments) * (FEATURES + 2)


def test_a_power_without_averages_is_refused(data: Path) -> None:
    command = ("train", "linear", "--data", data, "--average-power")
    assert_refused(USAGE, ["--no-average"], *command, 2, "--no-average")
    assert_refused(USAGE, ["--average-power"], *command, -1)
