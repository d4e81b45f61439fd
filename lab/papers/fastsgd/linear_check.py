"""`deltawire train linear` compared with scikit-learn's solvers: the same objective and rows.

    pip install scikit-learn
    DELTAWIRE_DATA=data python -m lab.papers.fastsgd.linear_check a9a w8a
    DELTAWIRE_DATA=data python -m lab.papers.fastsgd.linear_check --codec all a9a w8a rcv1_small

Both minimize the mean loss per row plus L2 / 2 times the sum of squares of the weights, including
the bias: scikit-learn gets an additional feature that every row has. deltawire is only given the
loss and L2, and the settings in SLOW; it chooses optimizer, rate, steps and when to stop. "says" is
its own bound of its error. scikit-learn reads the files with its own parser. A set is a file in
$DELTAWIRE_DATA/libsvm, `NAME.xz` or `NAME.train.libsvm.xz`; for 20news-bydate, whose rows are
scaled to length 1, one label is trained against the rest. The objectives of both models' weights
are computed here, from the formula.

With --codec (`all`, or a spec, several times) it prints another table: two workers train with each
codec, compared with plain pairs. Only 20news-bydate then needs scikit-learn.

With --speed it prints rows per second: of one worker's steps, and of SGDClassifier, which steps
after every row; the fastest of five data epochs each, without reading.
"""

import argparse
import json
import lzma
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from lab.command.paths import DELTAWIRE
from lab.command.program import main_of, make_parser
from lab.papers.fastsgd import linear_codecs

L2 = 1e-3
LOSSES = ("logistic", "squared", "squared-hinge", "hinge")
_SPEED_EPOCHS = 5
TOLERANCE = 0.01  # of the objective, as `--stop` has it
POSITIVE = {"20news-bydate": 10}  # the label trained against the rest, for more than two labels
# With few rows and many features, most rows end exactly on the hinge's kink. A step that finds such
# a row within the margin moves it beyond, by the rate times its squared length, and only L2 moves
# it back. This is not noise, and averaging does not remove it: it takes a small rate and many
# steps. AdaGrad, whose steps are smaller for frequent features, needs the fewest.
SLOW = {
    ("criteo-tiny", "squared"): ("--epochs", 1000),
    ("criteo-tiny", "hinge"): (
        *("--optimizer", "adagrad", "--lr", 0.3, "--decay", 0.1, "--batch", 0.1),
        *("--epochs", 1500, "--average-power", 15),
    ),
}


class CheckFailed(Exception):
    """The table can't be made; the message is one line that says why."""


def find_set(name: str) -> Path:
    """The file of a data set's training rows."""
    folder = Path(os.environ.get("DELTAWIRE_DATA", "data")) / "libsvm"
    for path in (folder / f"{name}.xz", folder / f"{name}.train.libsvm.xz"):
        if path.is_file():
            return path
    raise CheckFailed(f"{folder} has no {name}.xz; set DELTAWIRE_DATA to the folder of the data")


def mean_loss(loss: str, margins: np.ndarray, labels: np.ndarray) -> float:
    """The mean loss per row; labels are -1 and 1."""
    short = np.maximum(0, 1 - labels * margins)
    losses = {
        "logistic": np.logaddexp(0, -labels * margins),
        "squared": (margins - labels) ** 2 / 2,
        "hinge": short,
        "squared-hinge": short**2 / 2,
    }
    return float(losses[loss].mean())


def objective(loss: str, rows: object, labels: np.ndarray, weights: np.ndarray) -> float:
    """The objective that both minimize."""
    return mean_loss(loss, rows @ weights, labels) + L2 / 2 * float(weights @ weights)


def solve(loss: str, rows: object, labels: np.ndarray) -> np.ndarray:
    """scikit-learn's weights, with its constants converted to ours."""
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


def prepared(name: str, folder: Path) -> Path:
    """The file of a data set's rows for both programs: two labels are -1 and 1."""
    path = find_set(name)
    if name not in POSITIVE:
        return path
    from sklearn.datasets import dump_svmlight_file
    from sklearn.preprocessing import normalize

    rows, labels = load(path)
    file = folder / f"{name}.libsvm"
    signs = np.where(labels == POSITIVE[name], 1, -1)
    dump_svmlight_file(normalize(rows), signs, str(file), zero_based=True)
    return file


def train_with(path: Path, trial: linear_codecs.Trial, options: argparse.Namespace) -> dict:
    """The report of a training with one codec."""
    command = [
        *(DELTAWIRE, "train", "linear", "--data", path, "--stop", 0, "--json", "-"),
        *("--loss", trial.loss, "--codec", trial.codec, "--seed", trial.seed, "--l2", L2 / 100),
        *("--workers", 2, "--lr", 0.02, "--batch", options.batch, "--epochs", options.epochs),
        *("--optimizer", "adam", "--decay", 0, "--no-bias", "--no-average"),
    ]
    return json.loads(_run(command))


def _run(command: list[object]) -> bytes:
    done = subprocess.run(list(map(str, command)), capture_output=True, check=False)
    if done.returncode != 0:
        raise CheckFailed(done.stderr.decode().strip())
    return done.stdout


def train(path: Path, name: str, loss: str, workers: int) -> tuple[np.ndarray, dict]:
    """deltawire's weights, with the bias last, and its report."""
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model.npz"
        command = [
            *(DELTAWIRE, "train", "linear", "--data", path, "--held-out", 0, "--loss", loss),
            *("--l2", L2, "--codec", "fp32", "--workers", workers, *SLOW.get((name, loss), ())),
            *("--model", model, "--json", "-"),
        ]
        report = json.loads(_run(command))
        with np.load(model) as saved:
            return np.append(saved["weights"], saved["bias"]).astype(float), report


def load(path: Path) -> tuple[object, np.ndarray]:
    """Rows and labels by scikit-learn's own parser."""
    from sklearn.datasets import load_svmlight_file

    with lzma.open(path) if path.suffix == ".xz" else path.open("rb") as text:
        rows, labels = load_svmlight_file(text, zero_based=True)
    rows.indices = rows.indices.astype(np.int32)  # its solvers take no others
    rows.indptr = rows.indptr.astype(np.int32)
    return rows, labels


def check(name: str, path: Path, options: argparse.Namespace) -> bool:
    """Prints a set's rows of the table. Returns whether all are within the tolerance."""
    from scipy.sparse import csr_matrix, hstack

    rows, labels = load(path)
    rows = csr_matrix(hstack([rows, np.ones((rows.shape[0], 1))]))
    labels = np.where(labels > 0, 1.0, -1.0)
    near = True
    for loss in LOSSES:
        expected = objective(loss, rows, labels, solve(loss, rows, labels))
        weights, report = train(path, name, loss, options.workers)
        last = report["final"]
        off = objective(loss, rows, labels, weights) / expected - 1
        near = near and off < TOLERANCE
        says = "-" if last["gap"] is None else f"{100 * last['gap']:.2f} %"
        print(
            f"| {name} | {loss} | {expected:.5f} | {(1 + off) * expected:.5f} "
            f"| {100 * off:+.2f} % | {says} | {last['epoch']} | {last['seconds']:.1f} |",
            flush=True,
        )
    return near


def speed_table(paths: dict[str, Path], options: argparse.Namespace) -> int:
    """Prints rows per second; returns the exit status."""
    from sklearn.linear_model import SGDClassifier

    print(
        "| data | rows | deltawire, SGD | deltawire, Adam | SGDClassifier |\n|---|---|---|---|---|"
    )
    for name, path in paths.items():
        ours = []
        for optimizer in ("sgd", "adam"):
            command = [
                *(DELTAWIRE, "train", "linear", "--data", path, "--stop", 0, "--json", "-"),
                *("--held-out", 0, "--epochs", _SPEED_EPOCHS, "--batch", options.batch),
                *("--optimizer", optimizer, "--lr", 0.01, "--no-bias", "--no-average"),
            ]
            epochs = json.loads(_run(command))["epochs"]
            ours.append(f"{max(epoch['rows_per_second'] for epoch in epochs):,.0f}")
        rows, labels = load(path)
        model = SGDClassifier(loss="log_loss", alpha=1e-4, tol=None, max_iter=1)
        seconds = []
        for _ in range(_SPEED_EPOCHS):
            begin = time.perf_counter()
            model.partial_fit(rows, labels, classes=np.unique(labels))
            seconds.append(time.perf_counter() - begin)
        print(
            f"| {name} | {len(labels):,} | {' | '.join(ours)} | {len(labels) / min(seconds):,.0f} |"
        )
    return 0


def solver_table(paths: dict[str, Path], options: argparse.Namespace) -> int:
    """Prints the comparison with scikit-learn; returns the exit status."""
    print(
        "| data | loss | scikit-learn | deltawire | off by | says | data epochs | seconds |\n"
        "|---|---|---|---|---|---|---|---|"
    )
    near = [check(name, path, options) for name, path in paths.items()]
    return 0 if all(near) else 1


def codec_table(paths: dict[str, Path], options: argparse.Namespace) -> int:
    """Prints the comparison of codecs; returns the exit status."""
    codecs = list(linear_codecs.CODECS) if options.codec == ["all"] else options.codec
    print("\n".join(linear_codecs.head()))
    for name, path in paths.items():
        lines = linear_codecs.measure(
            name, codecs, options.seeds, lambda trial, path=path: train_with(path, trial, options)
        )
        for line in lines:
            print(line, flush=True)
    return 0


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = make_parser("lab.papers.fastsgd.linear_check", __doc__)
    parser.add_argument("sets", nargs="*", default=["a9a", "w8a"])
    parser.add_argument(
        "--codec", action="append", help="all, or a spec; again for more: their table"
    )
    parser.add_argument("--speed", action="store_true", help="rows a second instead")
    parser.add_argument("--seeds", type=int, default=3, help="of the codecs' table")
    parser.add_argument("--workers", type=int, default=1, help="in the comparison of solvers")
    parser.add_argument("--epochs", type=int, default=10, help="of the codecs' table")
    parser.add_argument("--batch", type=float, default=0.02, help="of it, and of speeds")
    return parser.parse_args(arguments)


def run(options: argparse.Namespace) -> int:
    """Prints a table; exit status 0: all objectives are within the tolerance."""
    table = codec_table if options.codec else speed_table if options.speed else solver_table
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: prepared(name, Path(folder)) for name in options.sets}
        return table(paths, options)


main = main_of("lab.papers.fastsgd.linear_check", parse, run, CheckFailed)


if __name__ == "__main__":
    sys.exit(main())
