"""`deltawire train linear` beside scikit-learn's solvers: the same objective, on the same rows.

    pip install scikit-learn
    DELTAWIRE_DATA=data python -m lab.linear_check a9a w8a

Both minimize the mean loss of a row plus L2 / 2 times the sum of squares of the weights, without a
bias. scikit-learn reads the files by its own parser. A set is a file of $DELTAWIRE_DATA/libsvm,
`NAME.xz` or `NAME.train.libsvm.xz`. The objective of the weights that deltawire wrote is computed
here, from the formula, and so is that of scikit-learn's.
"""

import argparse
import json
import lzma
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

L2 = 1e-3
LOSSES = ("logistic", "squared", "squared-hinge", "hinge")
TOLERANCE = 0.005  # of the objective
_ROOT = Path(__file__).resolve().parents[1]
_PROGRAM = Path(os.environ.get("DELTAWIRE_BIN", _ROOT / "build" / "release" / "deltawire"))


class CheckFailed(Exception):
    """One line that says why there is no table."""


def find_set(name: str) -> Path:
    """The file of a data set's training rows."""
    folder = Path(os.environ.get("DELTAWIRE_DATA", "data")) / "libsvm"
    for path in (folder / f"{name}.xz", folder / f"{name}.train.libsvm.xz"):
        if path.is_file():
            return path
    raise CheckFailed(f"{folder} has no {name}.xz; set DELTAWIRE_DATA to the folder of the data")


def mean_loss(loss: str, margins: np.ndarray, labels: np.ndarray) -> float:
    """Of a row; labels are -1 and 1."""
    short = np.maximum(0, 1 - labels * margins)
    losses = {
        "logistic": np.logaddexp(0, -labels * margins),
        "squared": (margins - labels) ** 2 / 2,
        "hinge": short,
        "squared-hinge": short**2 / 2,
    }
    return float(losses[loss].mean())


def objective(loss: str, rows: object, labels: np.ndarray, weights: np.ndarray) -> float:
    """What both minimize."""
    return mean_loss(loss, rows @ weights, labels) + L2 / 2 * float(weights @ weights)


def solve(loss: str, rows: object, labels: np.ndarray) -> np.ndarray:
    """scikit-learn's weights, its constants written as ours."""
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.svm import LinearSVC

    scale = 1 / (L2 * len(labels))
    if loss == "logistic":
        model = LogisticRegression(C=scale, fit_intercept=False, tol=1e-8, max_iter=5000)
    elif loss == "squared":
        model = Ridge(alpha=1 / scale, fit_intercept=False, tol=1e-10)
    elif loss == "squared-hinge":
        model = LinearSVC(C=scale / 2, fit_intercept=False, dual=False, tol=1e-8, max_iter=100_000)
    else:
        model = LinearSVC(C=scale, loss="hinge", fit_intercept=False, tol=1e-6, max_iter=200_000)
    return np.ravel(model.fit(rows, labels).coef_)


def train(path: Path, loss: str, options: argparse.Namespace) -> tuple[np.ndarray, dict]:
    """deltawire's weights and report."""
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model.npz"
        command = [
            *(_PROGRAM, "train", "linear", "--data", path, "--held-out", 0, "--stop", 0),
            *("--loss", loss, "--l2", L2, "--codec", options.codec, "--workers", options.workers),
            *("--optimizer", "adam", "--lr", 0.02, "--decay", 0.1, "--batch", options.batch),
            *("--epochs", options.epochs, "--model", model, "--json", "-"),
        ]
        done = subprocess.run(list(map(str, command)), capture_output=True, check=False)
        if done.returncode != 0:
            raise CheckFailed(done.stderr.decode().strip())
        with np.load(model) as saved:
            return saved["weights"].astype(float), json.loads(done.stdout)


def check(name: str, options: argparse.Namespace) -> bool:
    """Prints a set's rows of the table; whether all are near enough."""
    from sklearn.datasets import load_svmlight_file

    path = find_set(name)
    with lzma.open(path) as text:
        rows, labels = load_svmlight_file(text, zero_based=True)
    rows.indices, rows.indptr = (
        rows.indices.astype(np.int32),
        rows.indptr.astype(np.int32),
    )  # LinearSVC's
    labels = np.where(labels > 0, 1.0, -1.0)
    near = True
    for loss in LOSSES:
        expected = objective(loss, rows, labels, solve(loss, rows, labels))
        weights, report = train(path, loss, options)
        ours = objective(loss, rows, labels, weights[: rows.shape[1]])
        off = ours / expected - 1
        near = near and off < TOLERANCE
        seconds = report["final"]["seconds"]
        print(
            f"| {name} | {loss} | {expected:.5f} | {ours:.5f} | {100 * off:+.2f} % "
            f"| {seconds:.1f} |"
        )
    return near


def main(arguments: list[str]) -> int:
    """Exit status 0: all objectives within the tolerance."""
    parser = argparse.ArgumentParser(prog="python -m lab.linear_check", description=__doc__)
    parser.add_argument("sets", nargs="*", default=["a9a", "w8a"])
    parser.add_argument("--codec", default="direct(fp32)")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--batch", type=float, default=0.02)
    options = parser.parse_args(arguments)
    print(
        "| data | loss | scikit-learn | deltawire | off by | seconds |\n|---|---|---|---|---|---|"
    )
    try:
        near = [check(name, options) for name in options.sets]
    except CheckFailed as error:
        print(error, file=sys.stderr)
        return 1
    return 0 if all(near) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
