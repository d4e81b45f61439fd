"""`deltawire train linear` and `deltawire predict`: from text to a model and back, and refusals."""

import json
from pathlib import Path

import numpy as np
import pytest
from cli_program import FAILURE, USAGE, assert_refused, must_run, run
from linear_rows import FEATURES, dense, text_of

DIVERGING = ("--optimizer", "sgd", "--lr", "1e9", "--l2", "0", "--loss", "squared")


def train(*arguments: object) -> dict:
    return json.loads(must_run("train", "linear", *arguments, "--json", "-"))


def test_a_model_that_numpy_opens_and_predict_uses(data: Path, tmp_path: Path) -> None:
    model = tmp_path / "model.npz"
    test = tmp_path / "test.libsvm"
    test.write_text(text_of(500, seed=2))
    settings = ("--epochs", 20, "--stop", 0)
    report = train("--data", data, "--test", test, "--model", model, *settings)
    assert report["final"]["accuracy"] > 0.8
    assert len(report["epochs"]) == 20
    with np.load(model) as saved:
        weights, bias = saved["weights"], saved["bias"]
        settings = json.loads(bytes(saved["settings"]))
    assert weights.dtype == np.float32 and weights.shape == (FEATURES + 1,) and bias != 0
    assert settings["loss"] == "logistic"
    rows, labels = dense(test)
    margins = rows @ weights + bias
    losses = np.logaddexp(0, -labels * margins)
    assert report["final"]["test_loss"] == pytest.approx(losses.mean(), rel=1e-5)
    printed = must_run("predict", "--model", model, "--data", test).decode().split()
    np.testing.assert_allclose(np.array(printed, float), 1 / (1 + np.exp(-margins)), rtol=1e-5)
    printed = must_run(
        "predict", "--model", model, "--data", "-", "--margins", stdin=test.read_bytes()
    )
    np.testing.assert_allclose(np.array(printed.split(), float), margins, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("loss", ["logistic", "squared", "hinge", "squared-hinge"])
def test_the_objective_is_the_one_that_is_written_out(
    loss: str, data: Path, tmp_path: Path
) -> None:
    model = tmp_path / "model.npz"
    report = train(
        *("--data", data, "--held-out", 0, "--loss", loss, "--l2", 0.05, "--bias", "--stop", 0),
        *("--epochs", 5, "--lr", 0.1, "--codec", "direct(fp32)", "--model", model),
    )
    with np.load(model) as saved:
        weights, bias = saved["weights"].astype(float), float(saved["bias"])
    rows, y = dense(data)
    z = rows @ weights + bias
    short = np.maximum(0, 1 - y * z)
    losses = {
        "logistic": np.logaddexp(0, -y * z),
        "squared": (z - y) ** 2 / 2,
        "hinge": short,
        "squared-hinge": short**2 / 2,
    }
    expected = losses[loss].mean()
    assert report["final"]["train_loss"] == pytest.approx(expected, rel=1e-5)
    squares = (weights**2).sum() + bias**2
    assert report["final"]["objective"] == pytest.approx(expected + 0.025 * squares, rel=1e-5)
    assert report["final"]["test_loss"] is None


def test_exact_exchange_makes_workers_one(data: Path) -> None:
    """With full batches and no compression, two workers take the same steps as one."""
    settings = ("--data", data, "--batch", 1, "--epochs", 8, "--stop", 0, "--codec", "direct(fp32)")
    one = train(*settings)
    two = train(*settings, "--workers", 2)
    for a, b in zip(one["epochs"], two["epochs"], strict=True):
        assert a["train_loss"] == pytest.approx(b["train_loss"], rel=1e-5)
        assert a["test_loss"] == pytest.approx(b["test_loss"], rel=1e-5)
    assert two["final"]["bytes_per_step"] > 0 and one["final"]["bytes_per_step"] == 0


@pytest.mark.parametrize("codec", ["fastsgd", "logquant", "sketchml", "topk:k=50%", "3lc"])
def test_codecs_train_over_loopback(codec: str, data: Path) -> None:
    # Hashed to 2^10 features: gradients of fewer than 256 values travel raw.
    settings = ("--hash-bits", 10, "--optimizer", "adam", "--batch", 0.1)
    settings += ("--epochs", 20, "--stop", 0)
    report = train("--data", data, "--workers", 2, "--codec", codec, *settings)
    raw = train("--data", data, "--workers", 2, "--codec", "direct(fp32)", *settings)
    assert report["final"]["bytes_per_step"] < 0.7 * raw["final"]["bytes_per_step"]
    assert report["final"]["accuracy"] > 0.75
    assert report["final"]["times_smaller_than_plain_pairs"] > 0


def test_a_warning_of_an_optimizer_that_does_not_go_with_the_codec(data: Path) -> None:
    def said(workers: int, codec: str, optimizer: str) -> str:
        settings = ("--workers", workers, "--codec", codec, "--optimizer", optimizer)
        done = run("train", "linear", "--data", data, "--epochs", 1, "--json", "-", *settings)
        assert done.returncode == 0
        return done.stderr.decode()

    text = said(2, "topk:k=10%", "adam")
    assert text.startswith("warning: 'topk") and "beta1=0.9 of Adam delays it further" in text
    assert text.count("\n") == 1, "of one worker"
    assert said(1, "topk:k=10%", "adam") == said(2, "fastsgd", "adam") == ""
    assert said(2, "topk:k=10%", "sgd") == ""


def test_plain_pairs_are_what_nothing_compressed_gives(data: Path) -> None:
    settings = ("--data", data, "--workers", 3, "--stop", 0, "--epochs", 4, "--batch", 0.1)
    settings += ("--codec",)
    plain, dense = train(*settings, "plain"), train(*settings, "gather(fp32)")
    for a, b in zip(plain["epochs"], dense["epochs"], strict=True):
        assert a["train_loss"] == pytest.approx(b["train_loss"], rel=1e-6)
    assert plain["final"]["times_smaller_than_plain_pairs"] == 1
    # A batch of 140 rows touches all 50 features and the bias: pairs of 8 bytes to two others.
    assert plain["final"]["bytes_per_step"] == pytest.approx(2 * 8 * (FEATURES + 1), rel=0.01)
    assert plain["final"]["update_seconds"] > 0


def test_rows_in_a_file_train_alike(data: Path) -> None:
    runs = [train("--data", data), train("--data", data, "--memory", 0)]
    assert len({run["final"]["train_loss"] for run in runs}) == 1
    assert len({run["final"]["test_loss"] for run in runs}) == 1


@pytest.mark.parametrize("workers", [1, 2])
def test_training_ends_as_near_to_the_minimum_as_it_says(
    workers: int, data: Path, tmp_path: Path
) -> None:
    """The gap is |gradient|^2 / (2 L2), which NumPy computes from the model; it bounds the distance
    to the minimum."""
    model, l2 = tmp_path / "model.npz", 1e-3
    settings = ("--data", data, "--held-out", 0, "--l2", l2, "--codec", "fp32")
    settings += ("--workers", workers)
    report = train(*settings, "--stop", 2, "--model", model)
    last = report["final"]
    assert report["converged"] and report["gap_is_bound"] and len(report["epochs"]) < 300
    assert last["gap"] <= 0.02 < report["epochs"][-2]["gap"]
    with np.load(model) as saved:
        weights = np.append(saved["weights"], saved["bias"]).astype(float)
    rows, labels = dense(data)
    rows = np.column_stack([rows, np.ones(len(rows))])
    slopes = -labels / (1 + np.exp(labels * (rows @ weights)))
    gradient = rows.T @ slopes / len(rows) + l2 * weights
    above = gradient @ gradient / (2 * l2)
    assert last["gap"] == pytest.approx(above / (last["objective"] - above), rel=1e-3)
    best = train(*settings, "--stop", 0.001, "--epochs", 2000)["final"]
    assert best["gap"] <= 1e-5
    assert 0 <= last["objective"] / best["objective"] - 1 <= last["gap"]


def test_the_reason_for_the_end_is_printed_with_the_distance(data: Path) -> None:
    def said(*more: object) -> list[str]:
        settings = ("--data", data, "--l2", 1e-3, *more)
        return must_run("train", "linear", *settings).decode().splitlines()

    lines = said()
    assert lines[-1].startswith("ended by --stop 1: the objective, ")
    assert " is at most " in lines[-1] and " above its minimum" in lines[-1]
    assert "above the minimum by at most " in lines[-2] and "(a constant: " in lines[-2]
    assert lines[1] == "one worker: nothing is sent, and no codec is used"
    assert lines[2] == "no model will be written; --model FILE keeps it"
    early = said("--epochs", 1)[-1]
    assert early.startswith("ended by --epochs 1: ") and "--stop 1 asks for less" in early
    hinge = said("--loss", "hinge")[-1]
    assert " in the second half of the data epochs" in hinge and "at most" not in hinge
    few = said("--loss", "hinge", "--epochs", 2)[-1]
    assert "not known: there is no bound for this loss" in few and "4 data epochs" in few


def test_loss_and_accuracy_of_a_constant_are_printed_too(tmp_path: Path) -> None:
    """One row in ten is positive, and no feature tells which: no model is much better than a
    constant."""
    data, test = tmp_path / "rows", tmp_path / "test"
    data.write_text("".join(f"{int(i % 10 == 0)} {i % 7 + 1}:1\n" for i in range(1000)))
    test.write_text("".join(f"{int(i % 5 == 0)} {i % 7 + 1}:1\n" for i in range(1000)))
    final = train("--data", data, "--test", test)["final"]
    assert final["constant_accuracy"] == pytest.approx(0.8)
    expected = -0.2 * np.log(0.1) - 0.8 * np.log(0.9)
    assert final["constant_loss"] == pytest.approx(expected, rel=2e-3)
    assert final["test_loss"] == pytest.approx(expected, rel=0.02)
    barely = ("--data", data, "--test", test, "--epochs", 1, "--batch", 1, "--lr", 1e-6)
    assert b"no better than a constant" in must_run("train", "linear", *barely)
    numbers = train("--data", data, "--test", test, "--loss", "squared")["final"]
    assert numbers["constant_loss"] == pytest.approx((0.2 * 0.9**2 + 0.8 * 0.1**2) / 2, rel=1e-6)
    assert numbers["constant_accuracy"] is None


@pytest.mark.parametrize("codec", ["fastsgd:tau=32", "logquant", "3lc", "topk:k=1%", "plain"])
def test_one_worker_takes_its_gradient_as_it_is(codec: str, data: Path) -> None:
    settings = ("--data", data, "--hash-bits", 10, "--epochs", 3, "--stop", 0, "--codec")
    exact, coded = train(*settings, "direct(fp32)"), train(*settings, codec)
    assert coded["final"]["objective"] == exact["final"]["objective"]
    assert coded["final"]["bytes_sent"] == 0


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the data have no rows to train on"),
        ("1 1:1\n1 2:1\n", "all rows have one label"),
        ("1 1:1\n2 2:1\n", "takes labels 0 and 1, or -1 and 1"),
        ("1 1:1\n0 2:1\n-1 2:1\n", "takes labels 0 and 1, or -1 and 1"),
        ("1 1:1\n0 2:x\n", 'bad:2:5: value "x" is not a number'),
        ("1 3:1 2:1\n", "bad:1:7: index 2 is below the one before"),
    ],
)
def test_bad_data_is_one_line_and_no_model(
    text: str, message: str, workers: int, tmp_path: Path
) -> None:
    (tmp_path / "bad").write_text(text)
    model = tmp_path / "model.npz"
    arguments = ("--data", tmp_path / "bad", "--model", model, "--workers", workers)
    assert_refused(FAILURE, [message], "train", "linear", *arguments)
    assert [path.name for path in tmp_path.iterdir()] == ["bad"]


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--data", "/nowhere/rows"], FAILURE, "/nowhere/rows: no such file"),
        (["--data", "ROWS", "--codec", "nothing"], USAGE, "--codec"),
        (["--data", "ROWS", "--optimizer", "adamw"], USAGE, "sgd, adagrad or adam"),
        (["--data", "ROWS", "--model", "/nowhere/model.npz"], FAILURE, "/nowhere/model.npz"),
        (["--data", "-", "--workers", "2"], FAILURE, "standard input feeds one worker"),
        (["--data", "ROWS", "--model", "-"], USAGE, "--model: -"),
        (["--data", "ROWS", *DIVERGING], FAILURE, "--lr"),
    ],
)
def test_refusals(arguments: list[str], status: int, message: str, data: Path) -> None:
    named = [str(data) if argument == "ROWS" else argument for argument in arguments]
    assert_refused(status, [message], "train", "linear", *named)


def test_predict_says_what_the_model_has_not_seen(data: Path, tmp_path: Path) -> None:
    model = tmp_path / "model.npz"
    train("--data", data, "--model", model, "--epochs", 1, "--no-bias")
    done = run("predict", "--model", model, "--data", "-", stdin=b"1 1:1\n1 1000:1\n")
    assert done.returncode == 0
    assert done.stdout.decode().split()[1] == "0.5"
    assert "where there is none, write 0" in must_run("predict", "--help").decode()
    without = run("predict", "--model", model, "--data", "-", stdin=b"0 1:1\n0 1000:1\n")
    assert without.stdout == done.stdout
    assert done.stderr == (
        b"warning: 1 of 2 values have an index beyond the model's 51 weights and were "
        b"ignored; check that the model belongs to this data set\n"
    )
    other = run("predict", "--model", model, "--data", "-", stdin=b"1 1:1 500:1\n1 1000:1\n")
    assert other.returncode == FAILURE
    assert b"2 of 3 values" in other.stderr and b"model of another data set?" in other.stderr


def test_predict_refuses_files_that_are_not_models(data: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.npz"
    np.savez(other, x=np.ones(3))
    assert_refused(FAILURE, ["is not a model"], "predict", "--model", other, "--data", data)
    assert_refused(FAILURE, [str(data)], "predict", "--model", data, "--data", data)
    assert_refused(FAILURE, ["/dev/zero"], "predict", "--model", "/dev/zero", "--data", data)
    np.savez_compressed(other, weights=np.zeros(1 << 20, np.float32))
    words = [str(other), "larger than the file", "numpy.savez"]
    assert_refused(FAILURE, words, "predict", "--model", other, "--data", data)
